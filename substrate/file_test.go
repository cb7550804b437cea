package substrate_test

import (
	"errors"
	"os"
	"path/filepath"
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
