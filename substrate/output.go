package substrate

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenOutput opens a file to append a command's output to. It does not follow a symbolic
// link, because any user who can write to the folder could put one there.
func OpenOutput(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a file for output: %w", err)
	}
	return f, nil
}

// LastOutput returns the end of an output file for an error's text, at most that many
// bytes. If the file cannot be read, LastOutput returns the reason instead.
func LastOutput(path string, most int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-int64(most)), int64(most)))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
