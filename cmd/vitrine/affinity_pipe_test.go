package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestACaptureMayComeThroughAPipe checks that affinity reads a capture from another program's pipe.
func TestACaptureMayComeThroughAPipe(t *testing.T) {
	file := recordWeb(t, webUsers)
	capture, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		out, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err == nil {
			_, err = out.Write(capture)
			err = errors.Join(err, out.Close())
		}
		written <- err
	}()
	var want, got, stderr bytes.Buffer
	for from, out := range map[string]*bytes.Buffer{file: &want, pipe: &got} {
		if code := run(t.Context(), []string{"affinity", from}, out, &stderr); code != exitDone {
			t.Fatalf("%s: exit code %d: %s", from, code, stderr.String())
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if want.Len() == 0 || got.String() != want.String() {
		t.Errorf("output for the pipe:\n%s\noutput for the file:\n%s", got.String(), want.String())
	}
}
