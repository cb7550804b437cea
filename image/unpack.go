package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// Unpack writes the files of a Layer below dir, and makes dir.
func Unpack(layer, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("unpacking %s: %w", layer, err)
	}
	root, err := os.OpenRoot(dir) // links in the archive cannot lead out of dir
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", layer, err)
	}
	f, err := os.Open(layer)
	if err == nil {
		err = errors.Join(unpack(tar.NewReader(f), root), f.Close())
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("unpacking %s: %w", layer, err)
	}
	return nil
}

func unpack(archive *tar.Reader, root *os.Root) error {
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, mode := path.Clean(h.Name), h.FileInfo().Mode()
		switch h.Typeflag {
		case tar.TypeDir:
			if err = root.MkdirAll(name, 0o755); err == nil {
				err = root.Chmod(name, mode&(fs.ModePerm|fs.ModeSticky))
			}
		case tar.TypeSymlink:
			err = root.Symlink(h.Linkname, name)
		case tar.TypeReg:
			err = write(root, name, mode.Perm(), archive)
		default:
			err = fmt.Errorf("%s has the unsupported type %c", name, h.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

func write(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
