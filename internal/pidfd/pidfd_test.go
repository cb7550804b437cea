package pidfd

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"github.com/prometheus/procfs"
)

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestPidfdKillsAndWaits(t *testing.T) {
	first, second := sleeper(t), sleeper(t)
	s := make(Set)
	defer s.Close()
	for _, cmd := range []*exec.Cmd{first, second} {
		for range 2 {
			if err := s.Add(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Drop(second.Process.Pid)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := first.Process.Pid
	_ = first.Wait()
	if s.Alive(pid) {
		t.Error("a reaped process is alive")
	}
	if err := s.Kill(); err != nil { // must not hit another process that has the PID now
		t.Errorf("Kill of an ended process: %v", err)
	}
	if err := s.Add(second.Process.Pid); err != nil || !s.Alive(second.Process.Pid) {
		t.Errorf("Kill hit a dropped process: %v", err)
	}
	var gone Set = make(map[int]int)
	if err := gone.Add(pid); err != nil || len(gone) != 0 {
		t.Errorf("Add added an ended process: %v, %v", gone, err)
	}
}

func TestPidfdWaitIsBounded(t *testing.T) {
	cmd := sleeper(t)
	s := make(Set)
	defer s.Close()
	if err := s.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait for a live process: %v", err)
	}
}

// TestAwaitChildDoesNotReap checks that AwaitChild returns when the child ends, or at once if it
// has ended, and does not take its exit status.
func TestAwaitChildDoesNotReap(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read _; exit 7")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	awaited := make(chan struct{})
	go func() {
		defer close(awaited)
		AwaitChild(pid)
	}()
	select {
	case <-awaited:
		t.Error("AwaitChild returned while the child runs")
	default:
	}
	_ = in.Close()
	<-awaited
	AwaitChild(pid)
	if p, err := procfs.NewProc(pid); err != nil {
		t.Error(err)
	} else if stat, err := p.Stat(); err != nil || stat.State != "Z" {
		t.Errorf("the child's state is %q, %v, want Z", stat.State, err)
	}
	exit := new(exec.ExitError)
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit %v, want 7", err)
	}
}
