package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// check checks that the file is the only one in its folder, and what it contains.
func check(t *testing.T, path, want string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != mode {
		t.Errorf("mode %v, want %v", info.Mode(), mode)
	}
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(all) != 1 {
		t.Errorf("the folder has %v, %v", all, err)
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		text string
		mode fs.FileMode
	}{{"first", 0o644}, {"second", 0o600}, {"", 0o640}} {
		if err := Replace(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		check(t, path, c.text, c.mode)
	}
	t.Chdir(filepath.Dir(path))
	if err := Replace("file", []byte("third"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, path, "third", 0o600)
}

// TestFailureKeepsTheOldFile checks failures while writing and while renaming.
func TestFailureKeepsTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Replace(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	err := ReplaceFrom(path, 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, "half of the n")
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	check(t, path, "old", 0o600)

	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(folder, "file"), []byte("new"), 0o600); err == nil {
		t.Error("Replace replaced a folder")
	}
	if all, err := os.ReadDir(folder); err != nil || len(all) != 1 {
		t.Errorf("the folder has %v, %v", all, err)
	}
	if err := Replace(filepath.Join(folder, "none", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v does not name the folder", err)
	}
}

func TestCreateNeverReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Create(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, []byte("second"), 0o644); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want fs.ErrExist", err)
	}
	check(t, path, "first", 0o600)
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "below", "file")
	err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("text"), 0o600), os.Symlink("none", filepath.Join(dir, "link")))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Sync(dir), Sync(file), SyncTree(dir)); err != nil {
		t.Error(err)
	}
	none := filepath.Join(dir, "none")
	if err := Sync(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if err := SyncTree(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
