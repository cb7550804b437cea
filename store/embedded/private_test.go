package embedded

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPrivate checks that Open closes the records' folder to other users, and leaves other folders
// alone.
func TestPrivate(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		mode os.FileMode
		want os.FileMode
	}{
		"empty":          {"", 0o755, 0o700},
		"of records":     {"MANIFEST-000001", 0o750, 0o700},
		"closed":         {"other", 0o700, 0o700},
		"of other files": {"other", 0o755, 0o755},
		"for everybody":  {"", 0o777 | os.ModeSticky, 0o777 | os.ModeSticky},
	} {
		dir := t.TempDir()
		if c.file != "" {
			if err := os.WriteFile(filepath.Join(dir, c.file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		if err := restrictFolder(Config{Dir: dir, FS: vfs.Default, Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		is, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := is.Mode() &^ os.ModeDir; got != c.want {
			t.Errorf("%s: mode %s, want %s", name, got, c.want)
		}
		if warned := strings.Contains(log.String(), "others can open"); warned != (c.want&0o077 != 0) {
			t.Errorf("%s: got log %q", name, log.String())
		}
	}
}
