package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine"
)

func TestFindCache(t *testing.T) {
	for _, tt := range []struct {
		named string
		env   map[string]string
		want  string
	}{
		{"/named", map[string]string{CacheEnv: "/e", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/named"},
		{"", map[string]string{CacheEnv: "/e", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/e"},
		{"", map[string]string{"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/vitrine"},
		{"", map[string]string{"HOME": "/h"}, "/h/.cache/vitrine"},
	} {
		c, err := FindCache(tt.named, func(k string) string { return tt.env[k] })
		if err != nil || c.Dir != tt.want {
			t.Errorf("%q, %v: %q, %v; want %q", tt.named, tt.env, c.Dir, err, tt.want)
		}
	}
	if _, err := FindCache("", func(string) string { return "" }); err == nil {
		t.Error("FindCache returns a cache without any folder")
	}
}

func TestOnceIsMadeOnce(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, err := c.Once(t.Context(), "kernel", "6.1-abc", func(_ context.Context, dir string) error {
				made.Add(1)
				return os.WriteFile(filepath.Join(dir, "bzImage"), []byte("k"), 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(filepath.Join(dir, "bzImage")); err != nil || string(b) != "k" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	all.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
	if err := c.Drop(t.Context(), "kernel", "6.1-abc"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "kernel", "6.1-abc")); err == nil {
		t.Error("the folder exists after Drop")
	}
}

func TestFailedOnceLeavesNothing(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	broken := errors.New("no space")
	_, err := c.Once(t.Context(), "kernel", "k", func(_ context.Context, dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o600), broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	dir, err := c.Once(t.Context(), "kernel", "k", func(_ context.Context, dir string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("the failed fill left: %v, %v", list, err)
	}
	if _, err := c.Once(t.Context(), "kernel", "../k", nil); err == nil {
		t.Error("Once accepts a path as a key")
	}
}

// TestReplaceKeepsTheName checks that Replace exchanges the old folder and the new one in one step. A
// replacement in two steps first moves the old folder to a name that is occupied here, and fails.
func TestReplaceKeepsTheName(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	replace := func(content string) string {
		t.Helper()
		dir, err := c.Replace(t.Context(), "kernel", "k", func() bool { return false }, func(_ context.Context, dir string) error {
			occupied := filepath.Join(c.hidden("kernel", "k", "old"), "occupied")
			return errors.Join(os.MkdirAll(occupied, 0o755), os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	replace("first")
	if b, err := os.ReadFile(filepath.Join(replace("second"), "file")); err != nil || string(b) != "second" {
		t.Errorf("%q, %v; want the second content", b, err)
	}
	if left, err := filepath.Glob(filepath.Join(c.Dir, "kernel", ".k.*")); err != nil || len(left) != 1 {
		t.Errorf("beside the folder: %q, %v, want only the lock", left, err)
	}
}

// TestOnceAfterMounts checks that Once detaches a mount that a killed build left, and does not
// remove the mounted content.
func TestOnceAfterMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "mounting", Missing: "root"})
	}
	c := Cache{Dir: filepath.Join(t.TempDir(), "a cache")}
	below := filepath.Join(c.Dir, "kernel", ".k.new", "root", "below")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	kept := t.TempDir()
	if err := unix.Mount(kept, below, "", unix.MS_BIND, ""); err != nil {
		t.Skip(&vitrine.Unsupported{What: "mounting", Missing: err.Error()})
	}
	t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
	file := filepath.Join(below, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Once(t.Context(), "kernel", "k", func(_ context.Context, dir string) error { return nil }); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(kept, "file")); err != nil {
		t.Errorf("the mounted content: %v", err)
	}
}

func TestOnceWaitsNoLongerThanItsContext(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Once(t.Context(), "kernel", "k", func(context.Context, string) error {
		cancel()
		_, err := c.Once(ctx, "kernel", "k", func(context.Context, string) error { t.Error("made twice"); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Once that waits for itself: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
