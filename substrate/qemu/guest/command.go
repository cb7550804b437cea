package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"vitrine/internal/pidfd"
	"vitrine/substrate"
)

// groups holds a cgroup (version 2) for each command, which contains all its descendants.
const groups = "/sys/fs/cgroup/guest"

// A command is a started command.
type command struct {
	cmd   *exec.Cmd
	group string
	pipes []*os.File    // read ends of its output
	ended chan struct{} // closed when the command is reaped
	mu    sync.Mutex    // held while the command is signaled or reaped
}

// start starts a command. The answer says that it started; its output and exit follow later.
func (a *agent) start(number uint32, c Command) error {
	if len(c.Args) == 0 {
		return errors.New("no command")
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	group := filepath.Join(groups, strconv.FormatUint(uint64(number), 10))
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(group)
	if err != nil {
		return err
	}
	defer dir.Close()
	// The command outlives the agent's context: it ends when the host asks for that.
	cmd := exec.CommandContext(context.Background(), c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, environment("/root", c.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	account, err := runAs(cmd, c)
	if err != nil {
		return errors.Join(err, unix.Rmdir(group))
	}
	r := &command{cmd: cmd, group: group, ended: make(chan struct{})}
	var outputs []*output
	for _, to := range []Kind{KindStdout, KindStderr} {
		read, write, err := os.Pipe()
		if err != nil {
			return errors.Join(err, r.forget())
		}
		defer write.Close()
		r.pipes = append(r.pipes, read)
		outputs = append(outputs, &output{pipe: read, out: a.out, kind: to, number: number})
		if to == KindStdout {
			cmd.Stdout = write
		} else {
			cmd.Stderr = write
		}
		if account != nil { // it may open /dev/stdout
			if err := write.Chown(int(account.UID), int(account.GID)); err != nil {
				return errors.Join(err, r.forget())
			}
		}
	}
	if err := startKillable(cmd.Start); err != nil {
		return errors.Join(err, r.forget())
	}
	a.mu.Lock()
	a.commands[number] = r
	a.mu.Unlock()
	var copying errgroup.Group
	for _, o := range outputs {
		copying.Go(o.copy)
	}
	a.work.Go(func() error {
		return errors.Join(copying.Wait(), a.out.Frame(Frame{Kind: KindClosed, Number: number}))
	})
	a.work.Go(func() error { return a.wait(number, r, outputs) })
	return nil
}

// runAs makes the command run as its user, who gets the command's folder; nil: root.
func runAs(cmd *exec.Cmd, c Command) (*substrate.Account, error) {
	if c.User == "" {
		return nil, nil
	}
	account, err := substrate.FindAccount(c.User)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr.Credential = account.Credential()
	if account.Home != "" {
		cmd.Env = environment(account.Home, c.Env)
	}
	return account, account.Own(c.Dir)
}

// agentKiB is the page cache of the agent's and the commands' programs. The kernel counts
// it as available, but would have to read it again.
const agentKiB = 8 << 10

// confine limits the commands' memory to what is available, minus a reserve for the kernel
// and the agent. So the OOM killer ends a command that wants all memory before the machine
// stalls. The reserve includes the kernel's caches of names and files, which it counts as
// available but does not free in time.
func confine() error {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return err
	}
	total, available, caches := memory.MemTotal, memory.MemAvailable, memory.SReclaimable
	if total == nil || available == nil || caches == nil {
		return errors.New("the kernel does not report its memory")
	}
	kib := *available - min(*available, *caches+*total/32+agentKiB)
	return os.WriteFile(filepath.Join(groups, "memory.max"), []byte(strconv.FormatUint(kib<<10, 10)), 0)
}

// Values of oom_score_adj (proc(5)).
const (
	oomSpared  = "-1000"
	oomDefault = "0"
)

// startKillable starts a process that the OOM killer may kill. A child inherits oom_score_adj, so
// startKillable changes the agent's own value during the start. Calls must not overlap.
func startKillable(start func() error) error {
	const file = "/proc/self/oom_score_adj"
	if err := os.WriteFile(file, []byte(oomDefault), 0); err != nil {
		return err
	}
	return errors.Join(start(), os.WriteFile(file, []byte(oomSpared), 0))
}

// environment returns the command's variables, with a PATH and a HOME if it sets none.
func environment(home string, env []string) []string {
	full := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home}
	return append(full, env...) // the later one of two with the same name wins
}

// wait reports how the command ended, after all its output has been sent.
func (a *agent) wait(number uint32, r *command, outputs []*output) error {
	err := r.reap()
	for _, o := range outputs {
		err = errors.Join(err, o.flush())
	}
	var exit Exit
	if err != nil {
		exit = Exit{Error: err.Error(), OutOfMemory: r.outOfMemory()}
	}
	if gone, _ := r.remove(); gone { // the command left no process running
		a.mu.Lock()
		delete(a.commands, number)
		a.mu.Unlock()
	}
	return a.out.Value(KindExit, number, exit)
}

// reap waits for the command's end. It takes mu before it reaps the command, because after
// that another process may have its number.
func (r *command) reap() error {
	pidfd.AwaitChild(r.cmd.Process.Pid)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(r.ended)
	return r.cmd.Wait()
}

// outOfMemory reports whether the OOM killer killed one of the command's processes.
func (r *command) outOfMemory() bool {
	text, err := os.ReadFile(filepath.Join(r.group, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}

// forget removes the resources of a command that did not start.
func (r *command) forget() error {
	for _, p := range r.pipes {
		_ = p.Close()
	}
	return unix.Rmdir(r.group)
}

// remove removes the command's cgroup, and the cgroups that the command made below it, if
// no process runs in them.
func (r *command) remove() (gone bool, err error) {
	var dirs []string
	err = filepath.WalkDir(r.group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // a group that is gone by now
	})
	if err != nil {
		return false, err
	}
	for _, dir := range slices.Backward(dirs) {
		err := unix.Rmdir(dir)
		if errors.Is(err, unix.EBUSY) {
			return false, nil
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false, err
		}
	}
	return true, nil
}

func (a *agent) find(number uint32) *command {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.commands[number]
}

// signal sends a signal to the command's process group.
func (a *agent) signal(number uint32, sig unix.Signal) error {
	r := a.find(number)
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended: // another process may have its number by now
		return nil
	default:
	}
	if err := unix.Kill(-r.cmd.Process.Pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %v: %w", sig, err)
	}
	return nil
}

// end kills the command and all its descendants, and waits until they have ended.
func (a *agent) end(ctx context.Context, number uint32) error {
	r := a.find(number)
	if r == nil {
		return nil
	}
	err := os.WriteFile(filepath.Join(r.group, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) { // they have just ended
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		gone, err := r.remove()
		if err != nil {
			return err
		}
		if gone {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	<-r.ended
	a.mu.Lock()
	delete(a.commands, number)
	a.mu.Unlock()
	return nil
}

// An output sends a command's output to the host.
type output struct {
	pipe   *os.File
	out    *Writer
	kind   Kind
	number uint32

	mu     sync.Mutex // held from before a read until the data is sent
	closed bool
	buf    [32 << 10]byte
}

// copy runs until the last process that has the pipe's other end closes it, which may be
// long after the command ended.
func (o *output) copy() error {
	defer o.close()
	conn, err := o.pipe.SyscallConn()
	if err != nil {
		return err
	}
	for more := true; more; {
		var failed error
		err := conn.Read(func(fd uintptr) (done bool) {
			o.mu.Lock()
			defer o.mu.Unlock()
			var waits bool
			more, waits, failed = o.next(int(fd))
			return !waits
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	_ = o.pipe.Close() // the pipe is only read from
}

// next sends what is in the pipe, up to one buffer. more is false at the pipe's end, and
// waits is true if the pipe is empty now. The caller holds mu.
func (o *output) next(fd int) (more, waits bool, err error) {
	n, err := unix.Read(fd, o.buf[:])
	switch {
	case errors.Is(err, unix.EINTR):
		return true, false, nil
	case errors.Is(err, unix.EAGAIN):
		return true, true, nil
	case n <= 0 || err != nil:
		return false, false, err
	}
	return true, false, o.out.Frame(Frame{Kind: o.kind, Number: o.number, Payload: o.buf[:n]})
}

// flush sends what is in the pipe now.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil // copy has sent everything
	}
	conn, err := o.pipe.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for more, waits := true, false; more && !waits && failed == nil; {
			more, waits, failed = o.next(int(fd))
		}
	})
	return errors.Join(failed, err)
}
