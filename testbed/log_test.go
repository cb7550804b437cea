package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/substrate"
)

// onDisk returns the number of bytes that a file uses on the disk. Holes do not count.
func onDisk(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

func grow(t *testing.T, f *os.File, bytes int) {
	t.Helper()
	if _, err := f.WriteString(strings.Repeat("0123456789abcde\n", bytes/16)); err != nil {
		t.Fatal(err)
	}
}

// TestLogsAreTrimmedWhileTheyGrow checks that a log uses little of the disk while a process writes
// to it. Every dropped byte must be counted.
func TestLogsAreTrimmedWhileTheyGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const most, step = 1 << 20, 3 << 20
	l := &boundedLog{path: path, most: most}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- trimLogs(ctx, []*boundedLog{{path: path + "-none", most: most}, l}) }()
		for range 4 {
			grow(t, f, step)
			time.Sleep(2 * logEvery)
			synctest.Wait()
			if n := onDisk(t, path); n > most {
				t.Errorf("the log uses %d bytes on disk, above the limit", n)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	grow(t, f, 16)
	for range 2 {
		if err := l.shorten(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(droppedNote, 4*step+16-(len(text)-len(note(string(text)))), most)
	if note(string(text)) != want || strings.Contains(string(text), "\x00") {
		t.Errorf("note in the log: got %q, want %q", note(string(text)), want)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("folder of the log: got %v, error %v, want one file", entries, err)
	}
}

// TestDroppedBytesAddUp checks that the note counts the dropped bytes of all deployments that wrote
// to the log. A temporary file of a killed run must do no harm.
func TestDroppedBytesAddUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const most, each, deployments = 1 << 20, 3 << 20, 3
	for range deployments {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		grow(t, f, each)
		if err := errors.Join(f.Close(), os.WriteFile(path+".short", []byte("left"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := (&boundedLog{path: path, most: most}).shorten(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(droppedNote, deployments*each-(len(text)-len(note(string(text)))), most); note(string(text)) != want {
		t.Errorf("note in the log: got %q, want %q", note(string(text)), want)
	}
}

// TestLogStaysWhole checks that a log keeps all bytes on a file system that cannot free a part of a
// file, and that this is no error.
func TestLogStaysWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const size = 3 << 20
	if err := os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600); err != nil {
		t.Fatal(err)
	}
	tries := 0
	l := &boundedLog{path: path, most: 1 << 20, fallocate: func(int, uint32, int64, int64) error {
		tries++
		return syscall.EOPNOTSUPP
	}}
	if err := errors.Join(l.trim(), l.trim(), l.shorten()); err != nil || tries != 1 {
		t.Errorf("tried %d times to free the middle, error %v", tries, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != strings.Repeat("x", size) {
		t.Errorf("got %d bytes, error %v, want the log unchanged", len(text), err)
	}
}

// note returns the note in a log with its line breaks, or "" if there is none.
func note(log string) string {
	begin, end := strings.Index(log, "\n[vitrine: "), strings.Index(log, "]\n")
	if begin < 0 || end < begin {
		return ""
	}
	return log[begin : end+2]
}

// TestShortLogsStay checks that shorten leaves three things alone: a log within its bound, a log
// that was begun anew after trimming, and anything that is not a regular file.
func TestShortLogsStay(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, bytes int) {
		t.Helper()
		if err := os.WriteFile(in(name), []byte(strings.Repeat("x", bytes)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log", 4096)
	write("other", 1<<20)
	if err := errors.Join(os.Symlink(in("other"), in("link")), os.Mkdir(in("folder"), 0o700), syscall.Mkfifo(in("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log", "link", "pipe", "none"} {
		if err := (&boundedLog{path: in(name), most: 8192}).shorten(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]int64{"log": 4096, "other": 1 << 20} {
		if info, err := os.Lstat(in(name)); err != nil || info.Size() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if info, err := os.Lstat(in("link")); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link became %v, error %v", info, err)
	}

	l := &boundedLog{path: in("other"), most: 8192}
	if err := l.trim(); err != nil {
		t.Fatal(err)
	}
	write("other", 5000) // a deployment begins the log anew
	if err := l.shorten(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(in("other")); err != nil || string(text) != strings.Repeat("x", 5000) {
		t.Errorf("got %d bytes, error %v, want the other file unchanged", len(text), err)
	}
}

// TestLogFollowsNoLink: a container may put a link in place of its log. The end of the log is quoted in
// errors and results, which more users may read than the link's target.
func TestLogFollowsNoLink(t *testing.T) {
	in := &Instance{Spec: Spec{Spec: substrate.Spec{Dir: t.TempDir()}}}
	target := filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.WriteFile(target, []byte("secret"), 0o600), os.Symlink(target, in.logFile())); err != nil {
		t.Fatal(err)
	}
	if text := in.Log(); strings.Contains(text, "secret") {
		t.Errorf("the log is %q", text)
	}
}
