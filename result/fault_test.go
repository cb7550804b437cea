package result_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/result"
)

// smallDisk mounts a file system of the given size. The test unmounts it at its end.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		err = &vitrine.Unsupported{What: "a small disk to fill", Missing: "mounting a tmpfs: " + err.Error()}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting: %v", err)
		}
	})
	return dir
}

func TestFullDiskKeepsMeasurements(t *testing.T) {
	disk := smallDisk(t, "256k")
	dir := filepath.Join(disk, "run")
	r := create(t, dir)
	ballast := filepath.Join(disk, "ballast")
	seq := 1
	for ; seq <= 3; seq++ {
		appendAll(t, r, seq)
	}
	if err := fill(ballast); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	var err error
	for ; err == nil && seq < 10_000; seq++ { // the last page of the full disk still has room for some trials
		err = r.Append(outcome(seq))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a full disk returns %v", err)
	}
	wantError(t, err, "writing trial", "no space left", "earlier measurements are kept", "--resume")
	kept := len(r.Outcomes())
	d, loadErr := result.Load(dir)
	if loadErr != nil || len(d.Outcomes) != kept || len(d.Warnings) != 0 || kept < 3 {
		t.Fatalf("on the full disk the run has %d outcomes, Load returns %+v, %v", kept, d, loadErr)
	}
	wantError(t, r.SaveSummary(result.Summary{VNF: strings.Repeat("x", 1<<19)}), "summary.json", "no space left")
	if err := r.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close without space for the Parquet files returns %v", err)
	}
	leftovers, globErr := filepath.Glob(filepath.Join(dir, ".*.tmp"))
	if globErr != nil || len(leftovers) > 0 {
		t.Errorf("left behind: %q, %v", leftovers, globErr)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, dir)
	if n := len(again.Outcomes()); n != kept {
		t.Fatalf("after the disk was full: %d outcomes, want %d", n, kept)
	}
	appendAll(t, again, kept+1)
	closed(t, again)
	if d, err := result.Load(dir); err != nil || len(d.Outcomes) != kept+1 || len(d.Warnings) != 0 {
		t.Errorf("Load returns %+v, %v", d, err)
	}
}

// fill writes to the file until the disk is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	return err
}

func TestErrorNamesMissingPermission(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	closed(t, create(t, run))
	asNobody(t, func() {
		_, err := result.Create(filepath.Join(dir, "new"), manifest())
		wantError(t, err, "permission denied", "--out")
		_, err = result.Open(run)
		wantError(t, err, "permission denied", "outcomes.jsonl")
		if d, err := result.Load(run); err != nil || d.Manifest.VNF != "ims" {
			t.Errorf("Load of a readable run returns %+v, %v", d, err)
		}
	})
}

// asNobody calls f with the file permissions of an ordinary user. fsuid belongs to one thread, and
// takes away root's right to ignore permissions.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "files of another user", Missing: "root"})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}
