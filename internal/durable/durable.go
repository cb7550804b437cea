// Package durable writes files that are complete or absent after a crash of the machine.
package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// Replace writes the file in one step: readers see the old content or the new one. It syncs the
// content before the rename, and the folder after it. So once Replace has returned, a power loss
// does not bring back the old file. If only the sync of the folder fails, the new file exists.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return ReplaceFrom(path, mode, bytesWriter(data))
}

// ReplaceFrom is like Replace for content that write produces.
func ReplaceFrom(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return put(path, mode, write, os.Rename)
}

// Create is like Replace, but never replaces a file. If the file exists, the error is fs.ErrExist.
func Create(path string, data []byte, mode fs.FileMode) error {
	return put(path, mode, bytesWriter(data), os.Link)
}

func bytesWriter(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// put writes a temporary file in the same folder and moves or links it to path. The temporary
// name begins with a dot and ends in .tmp. A crash may leave such a file.
func put(path string, mode fs.FileMode, write func(io.Writer) error, name func(from, to string) error) (err error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+base+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(f.Name()); err == nil && !errors.Is(gone, fs.ErrNotExist) {
			err = gone
		}
	}()
	if err := errors.Join(write(f), f.Chmod(mode)); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := name(f.Name(), path); err != nil {
		return err
	}
	return Sync(dir)
}

// temporary matches the names of put's temporary files, and in them the name of the file.
var temporary = regexp.MustCompile(`^\.(.+)\.[0-9]+\.tmp$`)

// Unfinished returns the name of the file that a killed process did not finish, if name is that of a
// temporary file.
func Unfinished(name string) (of string, ok bool) {
	part := temporary.FindStringSubmatch(name)
	if part == nil {
		return "", false
	}
	return part[1], true
}

// Torn returns the size of a file of lines. torn is true if the file ends within a line, because
// a crash cut off the last write.
func Torn(f *os.File) (size int64, torn bool, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return info.Size(), last[0] != '\n', err
}

// Sync makes the content of a file, or the names in a folder, survive a crash of the machine.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err // EINVAL: a file system that cannot sync folders
	}
	return nil
}

// SyncTree calls Sync for a folder and all files and folders below it.
func SyncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && (e.IsDir() || e.Type().IsRegular()) {
			err = Sync(path)
		}
		return err
	})
}
