package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Cgroup files are many and small, and never block. So this package opens them with plain system
// calls. Package os makes four more calls per file to find that out, and it takes a dozen files to
// start and stop a command.

// set writes one file of a group.
func set(group, file, value string) error {
	path := filepath.Join(group, file)
	fd, err := open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = ignoringEINTR(func() (int, error) { return unix.Write(fd, []byte(value)) })
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// get reads one file of a group.
func get(group, file string) ([]byte, error) {
	path := filepath.Join(group, file)
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	var all []byte
	for page := make([]byte, os.Getpagesize()); ; {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, page) })
		if n <= 0 {
			if err := errors.Join(err, unix.Close(fd)); err != nil {
				return nil, &fs.PathError{Op: "read", Path: path, Err: err}
			}
			return all, nil
		}
		all = append(all, page[:n]...)
	}
}

func open(path string, flags int) (int, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
