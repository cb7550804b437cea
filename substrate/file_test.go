package substrate_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vitrine/substrate"
)

// TestWriteFileFollowsNoLink writes over files and links. A link must be replaced, and a link in place
// of a folder must be refused. Nothing may be written where links point to.
func TestWriteFileFollowsNoLink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	target := filepath.Join(outside, "target")
	if err := errors.Join(
		os.Mkdir(in("folder"), 0o755), os.WriteFile(target, []byte("before"), 0o600), os.WriteFile(in("file"), []byte("much longer"), 0o600),
		os.Symlink(target, in("link")), os.Symlink(filepath.Join(outside, "new"), in("folder/dangling")), os.Symlink(outside, in("out")),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "file", "link", "folder/dangling"} {
		if err := substrate.WriteFile(dir, name, []byte("after"), 0o755); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info, err := os.Lstat(in(name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o700 != 0o700 {
			t.Errorf("%s: got %v, error %v, want an executable file", name, info, err)
		}
		if text, err := os.ReadFile(in(name)); err != nil || string(text) != "after" {
			t.Errorf("%s holds %q, error %v", name, text, err)
		}
	}
	if err := substrate.WriteFile(dir, "out/target", []byte("after"), 0o755); err == nil {
		t.Error("a link to another folder was followed")
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "before" {
		t.Errorf("the target of the link holds %q, error %v", text, err)
	}
	if files, err := os.ReadDir(outside); err != nil || len(files) != 1 {
		t.Errorf("the other folder holds %v, error %v, want one file", files, err)
	}
}

// TestOutputFilesAreRegular: a container may put a link or a pipe in place of a file of its output.
// The link leads to files of the host, and a pipe without another end blocks.
func TestOutputFilesAreRegular(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(in("target"), []byte("secret"), 0o600), os.Symlink(in("target"), in("link")), syscall.Mkfifo(in("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "pipe"} {
		if f, err := substrate.OpenOutput(in(name)); err == nil {
			t.Errorf("the %s was opened for output", name)
			f.Close()
		}
		if text := substrate.LastOutput(in(name), 100); text == "" || strings.Contains(text, "secret") {
			t.Errorf("the end of the %s is %q, want an error", name, text)
		}
	}
}

// TestOutputIsPrintable: a terminal must not obey what an instance writes.
func TestOutputIsPrintable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := substrate.OpenOutput(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("before\nred \x1b[31mé\r\n\tend\a\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if text, want := substrate.OutputSince(path, int64(len("before\n")), 100), "red ?[31mé\n\tend?"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}
