package result

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"vitrine"
)

// maxLinks is how many symbolic links the kernel follows in a path (path_resolution(7)).
const maxLinks = 40

// scratch is the folder that an instance may write to. Links in that folder do not matter, because
// Vitrine writes there by substrate.WriteFile and substrate.OpenOutput alone, which follow none.
const scratch = "scratch"

// CheckLinks returns an error if a folder lies behind a symbolic link of another user, or contains
// such a link. The folder need not exist. Vitrine often runs as root, and through such a link
// another user would choose where Vitrine writes. Links of root are followed.
func CheckLinks(dir string) error { return checkLinks(dir, os.Geteuid()) }

func checkLinks(dir string, self int) error {
	found, err := resolve(dir, self)
	if err != nil {
		return err
	}
	return filepath.WalkDir(found, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission): // nobody writes there
			return nil
		case err != nil:
			return advise("looking for links", err)
		case d.IsDir() && d.Name() == scratch && path != found:
			return fs.SkipDir
		case d.Type()&fs.ModeSymlink == 0:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return advise("looking for links", err)
		}
		return checkOwner(path, info, self)
	})
}

// resolve returns the path without symbolic links, as far as it exists.
func resolve(path string, self int) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	at, links := "/", 0
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil { // nothing exists from here on; opening the path reports that
			return filepath.Join(append([]string{next}, rest...)...), nil //nolint:nilerr // see above
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if err := checkOwner(next, info, self); err != nil {
			return "", err
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return "", advise("following "+next, errors.Join(err, syscall.ELOOP))
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// checkOwner returns an error if the link belongs to neither this user nor root.
func checkOwner(path string, link fs.FileInfo, self int) error {
	owner := int(link.Sys().(*syscall.Stat_t).Uid)
	if owner == self || owner == 0 {
		return nil
	}
	return &vitrine.BadInput{
		File: path, Found: fmt.Sprintf("a symbolic link of another user (%d)", owner),
		Want: "choose a folder of your own, on a path without links (--out)",
	}
}
