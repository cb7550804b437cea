package substrate

import (
	"errors"
	"io/fs"
	"os"
)

// WriteFile makes a new file below dir, in place of an old one. name is a path from dir. The user of an
// instance may have put symbolic links below dir, and would choose with them where this process writes.
// So WriteFile replaces a link at name, and fails at a folder of the path that is a link out of dir.
func WriteFile(dir, name string, content []byte, mode fs.FileMode) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(replace(root, name, content, mode), root.Close())
}

func replace(root *os.Root, name string, content []byte, mode fs.FileMode) error {
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
