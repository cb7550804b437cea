package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestModes checks that only the store's user can open its files, even in a folder that existed
// before.
func TestModes(t *testing.T) {
	t.Parallel()
	there := t.TempDir()
	if err := os.Chmod(there, 0o755); err != nil { //nolint:gosec // what it must not stay
		t.Fatal(err)
	}
	for _, dir := range []string{there, filepath.Join(t.TempDir(), "made")} {
		s := start(t, "--dir", dir, "--listen", "127.0.0.1:0")
		if err := ask(t, "http://"+s.address, nil, ""); err != nil {
			t.Error(err)
		}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			is, err := e.Info()
			if err == nil && is.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %s, want no access for others", path, is.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		s.kill(t)
	}
}
