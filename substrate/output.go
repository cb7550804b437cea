package substrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// OpenOutput opens a file to append a command's output to. It opens only a regular file: any user who
// can write to the folder could put a symbolic link there, or a pipe that nobody reads.
func OpenOutput(path string) (*os.File, error) {
	f, _, err := OpenRegular(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("opening a file for output: %w", err)
	}
	if err := unix.SetNonblock(int(f.Fd()), false); err != nil { // commands inherit the descriptor
		return nil, errors.Join(fmt.Errorf("opening a file for output: %w", err), f.Close())
	}
	return f, nil
}

// LastOutput returns the end of an output file for an error's text, at most that many
// bytes. If the file cannot be read, LastOutput returns the reason instead.
func LastOutput(path string, most int) string { return OutputSince(path, 0, most) }

// OutputSince is like LastOutput, but returns no bytes from before the offset in begins.
func OutputSince(path string, begins int64, most int) string {
	f, size, err := OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if begins > size {
		begins = 0 // the file was shortened below the offset
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(begins, size-int64(most)), int64(most)))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(Printable(string(text)))
}

// ErrIrregular is the error for a folder, a pipe or a device in place of a file.
var ErrIrregular = errors.New("not a regular file")

// OpenRegular opens a file and returns its size. It follows no symbolic link, and waits for no reader
// or writer of a pipe. If the file opens but is not a regular one, the error is ErrIrregular.
func OpenRegular(path string, flag int) (*os.File, int64, error) {
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w", path, ErrIrregular)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// Printable returns a text from an instance without the control characters that a terminal would
// obey. Line feeds and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return -1
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			return r
		}
		return '?'
	}, text)
}
