package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Verbs of the program that runs in the guest, after its own.
const (
	verbInit  = "init"  // the machine's first process
	verbAgent = "agent" // its child
)

// VerbInit is how the machine's first process is called: its program's words,
// and then this.
func VerbInit() string { return verbInit }

// Main is the program in the guest: self is how it is called, its file and its
// first words, and verb what follows them. It comes back when it cannot go on,
// and as the first process only once the machine is to be switched off.
func Main(ctx context.Context, self []string, verb string) error {
	switch verb {
	case verbInit:
		if os.Getpid() != 1 {
			return errors.New("this is for the first process of a virtual machine")
		}
		return first(ctx, self)
	case verbAgent:
		port, err := openPort(ctx)
		if err != nil {
			return err
		}
		defer port.Close()
		return serve(ctx, port)
	}
	return fmt.Errorf("no verb %q: this program is run by virtual machines", verb)
}

// first is the first process: it mounts what every Linux has mounted, starts the
// agent, and reaps whoever has lost its parent until the agent ends.
func first(ctx context.Context, self []string) error {
	err := mounts()
	if err == nil {
		err = reap(ctx, self)
	}
	fmt.Fprintln(os.Stderr, "vitrine: the agent has ended:", err)
	return errors.Join(err, off())
}

func reap(ctx context.Context, self []string) error {
	agent := exec.CommandContext(ctx, self[0], append(self[1:], verbAgent)...)
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	agent.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	if err := agent.Start(); err != nil {
		return err
	}
	// It is the last to be killed for want of memory.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", agent.Process.Pid), []byte(spared), 0); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if pid == agent.Process.Pid {
			return fmt.Errorf("status %d", status)
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// mounts mounts what is not mounted yet.
func mounts() error {
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"bpf", "/sys/fs/bpf", ""},
		{"debugfs", "/sys/kernel/debug", ""},
	} {
		mounted, err := isMounted(m.at)
		if err != nil || mounted {
			continue // what has no folder the kernel does not have
		}
		if err := unix.Mount(m.kind, m.at, m.kind, unix.MS_NOSUID, m.options); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	if err := os.MkdirAll(groups, 0o755); err != nil {
		return err
	}
	// So that each command's use of memory is known: see outOfMemory.
	for _, group := range []string{filepath.Dir(groups), groups} {
		if err := os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			return fmt.Errorf("cgroups: %w", err)
		}
	}
	return nil
}

// isMounted says whether a file system is mounted at the folder, which is made
// where it can be.
func isMounted(at string) (bool, error) {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return false, err
	}
	var here, above unix.Stat_t
	if err := errors.Join(unix.Stat(at, &here), unix.Stat(filepath.Dir(at), &above)); err != nil {
		return false, err
	}
	return here.Dev != above.Dev, nil
}

// openPort finds the agent's port: without udev nothing names it in /dev.
func openPort(ctx context.Context) (*os.File, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, file := range names {
			name, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(name)) != PortName {
				continue
			}
			port, err := os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(file))), os.O_RDWR, 0)
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return port, err
			}
		}
		select { // the driver takes a moment to see it
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
