package docker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"vitrine/substrate"
)

// An output holds the destinations of a process's standard output and error.
type output struct {
	stdout, stderr io.Writer
	files          []*file
}

// openOutput opens the log in dir and, if stdout is not empty, that file for standard
// output. Everything written also goes to the tail, if that is not nil.
func openOutput(dir, stdout string, copyTo *tail) (*output, error) {
	o := &output{}
	log, err := o.open(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	o.stdout, o.stderr = log, log
	if stdout != "" {
		f, err := o.open(stdout)
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		o.stdout = f
	}
	if copyTo != nil {
		o.stdout, o.stderr = io.MultiWriter(o.stdout, copyTo), io.MultiWriter(o.stderr, copyTo)
	}
	return o, nil
}

func (o *output) open(path string) (*file, error) {
	f, err := substrate.OpenOutput(path)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	o.files = append(o.files, &file{f: f})
	return o.files[len(o.files)-1], nil
}

func (o *output) close() error {
	var failed error
	for _, f := range o.files {
		failed = errors.Join(failed, f.failed, f.f.Close())
	}
	o.files = nil
	return failed
}

// A file keeps its first error and then drops further output, so that a full disk does not
// stall the writing process.
type file struct {
	f      *os.File
	failed error
}

func (f *file) Write(b []byte) (int, error) {
	if f.failed == nil {
		_, f.failed = f.f.Write(b)
	}
	return len(b), nil
}

// A tail keeps the last tailBytes bytes written to it.
type tail struct{ kept []byte }

const (
	tailBytes = 4096
	tailLines = 10
)

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}

// String returns the last lines, each indented; empty: no lines.
func (t *tail) String() string {
	text := strings.TrimRight(substrate.Printable(string(t.kept)), "\n")
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	return "\n  " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n  ")
}
