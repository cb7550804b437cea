package result

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
)

// foreign makes a symbolic link that belongs to another user, and returns the user ID for
// checkLinks. Only root can give a link to another user. Without root, foreign returns an ID that
// is not this user's.
func foreign(t *testing.T, target, link string) (self int) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return os.Geteuid() + 1
	}
	if err := os.Lchown(link, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	return 0
}

// TestForeignLinks checks that a folder is refused if it lies behind another user's link, or
// contains one, and that nothing is written through the link.
func TestForeignLinks(t *testing.T) {
	for name, link := range map[string]string{
		"the folder": "run", "a folder above": ".", "the journal": "run/outcomes.jsonl", "the logs": "run/logs",
		"a log": "run/logs/sprout-1/log", "behind a link of this user": "other/run",
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			above, target := filepath.Join(root, "above"), filepath.Join(root, "target")
			dir := filepath.Join(above, "run")
			if err := errors.Join(os.Mkdir(target, 0o700), os.Mkdir(filepath.Join(root, "other"), 0o700)); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(above, link)
			switch link {
			case ".":
				at = above
			case "other/run":
				at = filepath.Join(root, link)
				if err := os.Symlink("other", above); err != nil {
					t.Fatal(err)
				}
			default:
				if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			self := foreign(t, target, at)
			err := checkLinks(dir, self)
			if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "--out") {
				t.Errorf("%v", err)
			}
			if os.Geteuid() == 0 {
				if _, err := Create(dir, Manifest{}); !vitrine.IsBadInput(err) {
					t.Errorf("Create: %v", err)
				}
				if _, err := Open(dir); !vitrine.IsBadInput(err) {
					t.Errorf("Open: %v", err)
				}
			}
			if entries, err := os.ReadDir(target); err != nil || len(entries) > 0 {
				t.Errorf("%v were written through the link, %v", entries, err)
			}
		})
	}
}

// TestOwnLinks checks that links of this user are followed, that links in an instance's scratch
// folder do not matter, and that the folder need not exist.
func TestOwnLinks(t *testing.T) {
	root := t.TempDir()
	in := func(name string) string { return filepath.Join(root, name) }
	if err := errors.Join(os.MkdirAll(in("real/run/logs/a-1/scratch"), 0o700), os.Symlink("real", in("short")), os.Symlink(in("short"), in("long")),
		os.Symlink("/nowhere", in("real/run/dangling")), os.Symlink("loop", in("loop"))); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"real/run", "short/run", "long/run", "long/../real/run", "long/new/folder", "real/run/dangling/x"} {
		if err := CheckLinks(in(dir)); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := CheckLinks(in("loop/run")); err == nil {
		t.Error("checkLinks accepts a loop of links")
	}
	if self := foreign(t, "/etc", in("real/run/logs/a-1/scratch/link")); self == os.Geteuid() {
		if err := checkLinks(in("real/run"), self); err != nil {
			t.Errorf("a link in a scratch folder is refused: %v", err)
		}
	}
	r, err := Create(in("long/new"), Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(in("real/new/manifest.json")); err != nil {
		t.Error(err)
	}
}

// TestFilesAreNoLinks checks that a link in place of a file of the run is not followed, even if
// this user owns the link.
func TestFilesAreNoLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Create(dir, Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "target")
	key := vitrine.Key{Seq: 1, Attempt: 1}
	w, path, err := r.CreateUsage(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.Remove(path), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.CreateUsage(key); err == nil {
		t.Error("CreateUsage writes through a link")
	}
	journal := filepath.Join(dir, "outcomes.jsonl")
	if err := errors.Join(r.Close(), os.Rename(journal, target), os.Symlink(target, journal)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("Open writes the journal through a link")
	}
}
