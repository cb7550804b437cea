package runstate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/internal/runstate"
)

const (
	holderVariable = "VITRINE_RUNSTATE_TEST_HOLD"
	held           = "the CPUs are locked"
	limit          = time.Minute // far beyond what a busy host needs
)

// TestHoldCPUs is the code of another process. It locks CPUs 3 and 4 in the folder until its
// standard input ends, and prints held when it holds them.
func TestHoldCPUs(t *testing.T) {
	dir := os.Getenv(holderVariable)
	if dir == "" {
		t.Skip("the tests of locks run this in a process")
	}
	l, err := runstate.LockCPUs(dir, []int{4, 3}, runstate.Owner{Run: "first", PID: os.Getpid(), Command: []string{"vitrine", "measure"}})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(held)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// hold starts another process that holds CPUs 3 and 4.
func hold(t *testing.T, dir string) (pid int, stop io.Closer) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHoldCPUs$")
	c.Env = append(os.Environ(), holderVariable+"="+dir)
	in, err := c.StdinPipe()
	out, outErr := c.StdoutPipe()
	if err = errors.Join(err, outErr); err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != held+"\n" {
		t.Fatalf("the other process did not lock its CPUs: %q, %v", line, err)
	}
	return c.Process.Pid, in
}

func TestAnotherProcessHoldsCPU(t *testing.T) {
	dir := t.TempDir()
	pid, stop := hold(t, dir)
	me := runstate.Owner{Run: "second", PID: os.Getpid(), Command: []string{"vitrine"}}

	_, err := runstate.LockCPUs(dir, []int{2, 3}, me)
	if busy, ok := errors.AsType[*runstate.CPUBusyError](err); !ok || busy.CPU != 3 || busy.Owner.PID != pid || busy.Owner.Run != "first" {
		t.Fatalf("error %v, want CPU 3 held by run first, pid %d", err, pid)
	}
	if text := err.Error(); !strings.Contains(text, `"vitrine" "measure"`) {
		t.Errorf("%q does not name the command", text)
	}
	other, err := runstate.LockCPUs(dir, []int{2}, me)
	if err != nil {
		t.Fatalf("CPU 2 is not free after a failed lock: %v", err)
	}

	calls := 0
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	l, err := runstate.WaitForCPUs(ctx, dir, []int{3, 4}, me, func(*runstate.CPUBusyError) {
		if calls++; calls == 1 {
			_ = stop.Close()
		}
	})
	if err != nil || calls == 0 {
		t.Fatalf("waiting: %v, %d calls", err, calls)
	}
	if err := errors.Join(l.Close(), l.Close(), other.Close()); err != nil {
		t.Error(err)
	}
}

// TestKilledProcessHoldsNoCPU checks that the kernel drops the locks of a killed process.
func TestKilledProcessHoldsNoCPU(t *testing.T) {
	dir := t.TempDir()
	pid, _ := hold(t, dir)
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	l, err := runstate.WaitForCPUs(ctx, dir, []int{3}, runstate.Owner{}, func(*runstate.CPUBusyError) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestWaitingEndsWithContext(t *testing.T) {
	dir := t.TempDir()
	l, err := runstate.LockCPUs(dir, []int{0}, runstate.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	_, err = runstate.WaitForCPUs(ctx, dir, []int{0}, runstate.Owner{}, func(*runstate.CPUBusyError) { cancel(enough) })
	if !errors.Is(err, enough) {
		t.Errorf("error %v, want %v", err, enough)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestRemovedLockFile checks that the CPU stays locked if somebody removes the lock file, as systemd-logind
// does when the user who made the file logs out.
func TestRemovedLockFile(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("x", 200), fmt.Sprint(os.Getpid()))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := runstate.LockCPUs(dir, []int{5}, runstate.Owner{})
		if err == nil {
			err = os.Remove(filepath.Join(dir, "vitrine-cpu-5"))
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = runstate.LockCPUs(dir, []int{4, 5}, runstate.Owner{})
		if busy, ok := errors.AsType[*runstate.CPUBusyError](err); !ok || busy.CPU != 5 {
			t.Errorf("error %v, want that another run holds CPU 5", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err = runstate.LockCPUs(dir, []int{4, 5}, runstate.Owner{}); err != nil {
			t.Fatalf("after the end of the first run: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLockFilesAreForAll(t *testing.T) {
	dir := t.TempDir()
	l, err := runstate.LockCPUs(dir, []int{7}, runstate.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(filepath.Join(dir, "vitrine-cpu-7"))
	if err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("mode %v, error %v, want 0666", info.Mode(), err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(dir, "vitrine-cpu-8")); err != nil {
		t.Fatal(err)
	}
	if _, err := runstate.LockCPUs(dir, []int{8}, runstate.Owner{}); err == nil {
		t.Error("openCPULock follows a symbolic link")
	}
}
