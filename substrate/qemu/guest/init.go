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

// Verbs of the guest's program, after its own arguments.
const (
	verbInit  = "init"  // the machine's first process
	verbAgent = "agent" // its child
)

// VerbInit returns the verb of the machine's first process, which follows the
// program's own arguments.
func VerbInit() string { return verbInit }

// Main is the guest's program. self is its command line, that is its file and first
// arguments, and verb follows them. Main returns when it cannot go on. The first process
// then switches the machine off, so there Main returns only if that fails.
func Main(ctx context.Context, self []string, verb string) error {
	switch verb {
	case verbInit:
		if os.Getpid() != 1 {
			return errors.New("this verb is for the first process of a virtual machine")
		}
		return runInit(ctx, self)
	case verbAgent:
		port, err := openPort(ctx)
		if err != nil {
			return err
		}
		defer port.Close()
		return serve(ctx, port)
	}
	return fmt.Errorf("unknown verb %q: virtual machines run this program", verb)
}

// runInit is the first process. It mounts the usual file systems, starts the agent, and reaps
// orphans until the agent ends.
func runInit(ctx context.Context, self []string) error {
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
	// The OOM killer must not kill the agent.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", agent.Process.Pid), []byte(oomSpared), 0); err != nil {
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

// mounts mounts the file systems that are not mounted yet.
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
			continue // without a folder, the kernel lacks that file system
		}
		if err := unix.Mount(m.kind, m.at, m.kind, unix.MS_NOSUID, m.options); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	if err := os.MkdirAll(groups, 0o755); err != nil {
		return err
	}
	// The controller counts each command's memory and OOM kills: see outOfMemory.
	for _, group := range []string{filepath.Dir(groups), groups} {
		if err := os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			return fmt.Errorf("cgroups: %w", err)
		}
	}
	return nil
}

// isMounted reports whether a file system is mounted at the folder. It makes
// the folder if possible.
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

// openPort finds the agent's port by its name in sysfs, because without udev /dev has no names.
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
		select { // the driver needs a moment to find the port
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
