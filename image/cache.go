package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/durable"
)

// A Cache is a folder of build results that are used often: kernels, guest bases, images.
// Several processes may use it at the same time.
type Cache struct {
	Dir string // absolute
}

// CacheEnv is the variable with the folder's path, for callers that name no folder.
const CacheEnv = "VITRINE_CACHE"

// FindCache returns the cache in the named folder. If named is empty, it uses $VITRINE_CACHE,
// else $XDG_CACHE_HOME/vitrine, else ~/.cache/vitrine. It does not make the folder.
func FindCache(named string, getenv func(string) string) (Cache, error) {
	dir := named
	if dir == "" {
		dir = getenv(CacheEnv)
	}
	if base := getenv("XDG_CACHE_HOME"); dir == "" && base != "" {
		dir = filepath.Join(base, "vitrine")
	}
	if home := getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".cache", "vitrine")
	}
	if dir == "" {
		return Cache{}, &vitrine.BadInput{File: "cache", Found: "no folder: neither " + CacheEnv + " nor XDG_CACHE_HOME nor HOME is set", Want: "set " + CacheEnv}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Cache{}, fmt.Errorf("finding the cache: %w", err)
	}
	return Cache{Dir: dir}, nil
}

var entryPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}$`)

// Once returns the folder <kind>/<key> of the cache. If the folder does not exist, fill makes its
// content. One process calls fill while the others wait for the result or for the end of ctx.
// Other processes see the complete folder or none, even if the process that runs fill is killed.
// fill gets an empty folder on the same file system. On success that folder is renamed to the
// final path, and on failure it is removed. So the content must not contain the folder's path.
func (c Cache) Once(ctx context.Context, kind, key string, fill func(ctx context.Context, dir string) error) (string, error) {
	return c.Replace(ctx, kind, key, func() bool { return true }, fill)
}

// Replace is like Once, but fill also makes a new folder in place of an existing one if keep returns false.
// Until the new folder is complete, other processes see the old one. On failure the old one stays.
func (c Cache) Replace(ctx context.Context, kind, key string, keep func() bool, fill func(ctx context.Context, dir string) error) (string, error) {
	if !entryPattern.MatchString(kind) || !entryPattern.MatchString(key) {
		return "", fmt.Errorf("cache: %q of kind %q: not a valid name", key, kind)
	}
	final := filepath.Join(c.Dir, kind, key)
	kept := func() bool {
		_, err := os.Stat(final)
		return err == nil && keep()
	}
	if kept() {
		return final, nil
	}
	unlock, err := c.lock(ctx, kind, key)
	if err != nil {
		return "", fmt.Errorf("cache %s: %w", final, err)
	}
	defer unlock()
	if kept() { // another process has just made the folder
		return final, nil
	}
	work, old := c.hidden(kind, key, "new"), c.hidden(kind, key, "old")
	if err := errors.Join(remove(work), remove(old)); err != nil { // remains of a killed process
		return "", fmt.Errorf("cache: %w", err)
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	err = fill(ctx, work)
	if err == nil {
		err = durable.SyncTree(work) // a crash of the machine could keep the final name without the content
	}
	if err == nil {
		err = exchange(work, final, old)
	}
	if err != nil {
		return "", errors.Join(err, remove(work))
	}
	// The names must be on disk before the old folder loses its content.
	return final, errors.Join(durable.Sync(filepath.Dir(final)), remove(work), remove(old))
}

// exchange gives the folder work the name final. An existing folder final gets the name work in the
// same step. A file system that cannot exchange names, such as NFS, needs two steps: the existing folder
// gets the name old, and until the second step there is no final.
func exchange(work, final, old string) error {
	if unix.Renameat2(unix.AT_FDCWD, work, unix.AT_FDCWD, final, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	if err := hide(final, old); err != nil {
		return err
	}
	if err := os.Rename(work, final); err != nil {
		return errors.Join(err, hide(old, final)) // put the old folder back
	}
	return nil
}

// mountNames reverses the kernel's escapes in the paths of mount points.
var mountNames = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// remove removes a folder. First it detaches the mounts below the folder, so that their content
// stays. Killed build programs may leave such mounts.
func remove(dir string) error {
	path, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		point := mountNames.Replace(m.MountPoint)
		if !strings.HasPrefix(point, path+"/") {
			continue
		}
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "unmount", Path: point, Err: err}
		}
	}
	return os.RemoveAll(dir)
}

// hidden returns the path of <kind>/<key> while the folder is being made (new) or removed (old).
func (c Cache) hidden(kind, key, what string) string {
	return filepath.Join(c.Dir, kind, "."+key+"."+what)
}

// hide renames a folder, which may be missing.
func hide(final, old string) error {
	if err := os.Rename(final, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// Drop removes <kind>/<key>, atomically for its readers. It is no error if the
// folder does not exist.
func (c Cache) Drop(ctx context.Context, kind, key string) error {
	if !entryPattern.MatchString(kind) || !entryPattern.MatchString(key) {
		return fmt.Errorf("cache: %q of kind %q: not a valid name", key, kind)
	}
	final := filepath.Join(c.Dir, kind, key)
	if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := c.lock(ctx, kind, key)
	if err != nil {
		return fmt.Errorf("cache %s: %w", final, err)
	}
	defer unlock()
	old := c.hidden(kind, key, "old")
	if err := remove(old); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := hide(final, old); err != nil {
		return err
	}
	return remove(old)
}

// lock waits for the lock of <kind>/<key>. The kernel releases the lock when its process ends,
// however it ends.
func (c Cache) lock(ctx context.Context, kind, key string) (unlock func(), err error) {
	dir := filepath.Join(c.Dir, kind)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "."+key+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock: %w", err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another process that builds the same: %w", context.Cause(ctx)), f.Close())
		}
	}
}
