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
)

// groups is where each command has a cgroup (version 2) of its own, so that all
// that descends from it is found.
const groups = "/sys/fs/cgroup/guest"

// A command is one that was started.
type command struct {
	cmd   *exec.Cmd
	group string
	pipes []*os.File // ends of its output
	ended chan struct{}
}

// start starts a command; that it started is the answer, what it prints and how
// it ends follows.
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
	// The agent's context is not the command's: that ends when the host says so.
	cmd := exec.CommandContext(context.Background(), c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, environment(c.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
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
	}
	if err := mortal(cmd.Start); err != nil {
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

// agentKiB is what the agent's program and the commands' take of the memory that
// the kernel would give away, for they would have to be read again.
const agentKiB = 8 << 10

// confine leaves the kernel and the agent what memory they have, and a little
// more: a command that wants all is killed, and the machine does not come to a
// standstill before. What the kernel says is available has its own caches of
// names and files in it, which it does not give back in time.
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
		return errors.New("the kernel does not say how much there is")
	}
	kib := *available - min(*available, *caches+*total/32+agentKiB)
	return os.WriteFile(filepath.Join(groups, "memory.max"), []byte(strconv.FormatUint(kib<<10, 10)), 0)
}

// Shares of being killed for want of memory (proc(5), oom_score_adj).
const (
	spared = "-1000"
	usual  = "0"
)

// mortal starts a process that can be killed for want of memory: it has from
// this one what this one must not have. One is started at a time.
func mortal(start func() error) error {
	const file = "/proc/self/oom_score_adj"
	if err := os.WriteFile(file, []byte(usual), 0); err != nil {
		return err
	}
	return errors.Join(start(), os.WriteFile(file, []byte(spared), 0))
}

// environment is the command's, with a PATH and a HOME where it has none.
func environment(env []string) []string {
	full := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	return append(full, env...) // of two of a name the later one counts
}

// wait says how the command ended once all that it printed has been sent.
func (a *agent) wait(number uint32, r *command, outputs []*output) error {
	err := r.cmd.Wait()
	close(r.ended)
	for _, o := range outputs {
		err = errors.Join(err, o.flush())
	}
	var exit Exit
	if err != nil {
		exit = Exit{Error: err.Error(), OutOfMemory: r.outOfMemory()}
	}
	if gone, _ := r.remove(); gone { // it has left nothing running
		a.mu.Lock()
		delete(a.commands, number)
		a.mu.Unlock()
	}
	return a.out.Value(KindExit, number, exit)
}

// outOfMemory says whether the kernel killed one of the command's processes for
// want of memory.
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

// forget removes what was made for a command that did not start.
func (r *command) forget() error {
	for _, p := range r.pipes {
		_ = p.Close()
	}
	return unix.Rmdir(r.group)
}

// remove removes the command's group, and those that it made below, if nothing
// runs in them.
func (r *command) remove() (gone bool, err error) {
	var dirs []string
	err = filepath.WalkDir(r.group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // one that has gone meanwhile
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
	select {
	case <-r.ended: // its number may be another's by now
		return nil
	default:
	}
	if err := unix.Kill(-r.cmd.Process.Pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %v: %w", sig, err)
	}
	return nil
}

// end kills all that descends from the command and comes back when it has ended.
func (a *agent) end(ctx context.Context, number uint32) error {
	r := a.find(number)
	if r == nil {
		return nil
	}
	err := os.WriteFile(filepath.Join(r.group, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) { // it has just ended
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

// An output carries what a command prints to the host.
type output struct {
	pipe   *os.File
	out    *Writer
	kind   Kind
	number uint32

	mu     sync.Mutex // from before a read to after it was sent
	closed bool
	buf    [32 << 10]byte
}

// copy goes on until the last process that has the pipe's other end closes it,
// which may be long after the command ended.
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
	_ = o.pipe.Close() // only read from
}

// next sends what is in the pipe, up to a buffer full; more is false at the
// pipe's end, and waits is true when there is nothing now. The caller holds mu.
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
		return nil // all was sent
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
