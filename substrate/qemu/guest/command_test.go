package guest

import (
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine/internal/pidfd"
)

// TestEndOfWhatHasEnded checks that end succeeds for a command whose cgroup is already gone.
func TestEndOfWhatHasEnded(t *testing.T) {
	r := &command{group: filepath.Join(t.TempDir(), "gone"), ended: make(chan struct{})}
	close(r.ended)
	a := &agent{commands: map[uint32]*command{7: r}}
	if err := a.end(t.Context(), 7); err != nil || a.find(7) != nil {
		t.Errorf("end of a finished command: %v", err)
	}
}

// TestSignalBeforeReap checks that wait does not reap a command while signal holds it. Otherwise
// another process could get its number and the signal.
func TestSignalBeforeReap(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &command{cmd: cmd, group: filepath.Join(t.TempDir(), "gone"), ended: make(chan struct{})}
	a := &agent{commands: map[uint32]*command{7: r}, out: NewWriter(io.Discard)}
	r.mu.Lock()
	waited := make(chan error, 1)
	go func() { waited <- a.wait(7, r, nil) }()
	pidfd.AwaitChild(cmd.Process.Pid)
	if err := unix.Kill(-cmd.Process.Pid, 0); err != nil {
		t.Errorf("the process group disappeared while a signal could be sent: %v", err)
	}
	r.mu.Unlock()
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	a.commands[7] = r
	cmd.Process.Pid = 1 << 30 // no process: a signal would fail
	if err := a.signal(7, unix.Signal(1<<20)); err != nil {
		t.Errorf("signal to a finished command: %v", err)
	}
}
