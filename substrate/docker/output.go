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

// An output is where a process's standard output and error go.
type output struct {
	stdout, stderr io.Writer
	files          []*file
}

// openOutput opens the log in dir and, when stdout is not empty, that file for
// standard output. What is written also goes to the tail when there is one.
func openOutput(dir, stdout string, also *tail) (*output, error) {
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
	if also != nil {
		o.stdout, o.stderr = io.MultiWriter(o.stdout, also), io.MultiWriter(o.stderr, also)
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

// A file keeps its first failure and takes what comes after for written, so
// that a full disk does not stall the process that writes.
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

// A tail keeps the end of what is written to it.
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

// String is the last lines, each indented; empty when there are none.
func (t *tail) String() string {
	text := strings.TrimRight(string(t.kept), "\n")
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	return "\n  " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n  ")
}
