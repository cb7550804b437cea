package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/netns"
	"vitrine/internal/pidfd"
	"vitrine/internal/thread"
	"vitrine/substrate"
)

// A holder tracks the processes of one command: the command and all its descendants.
type holder interface {
	// start starts the command under the holder. The caller's goroutine is locked to its
	// thread, and the thread runs nothing else before the command has ended.
	start(cmd *exec.Cmd) error
	// look records the command's descendants, before the command gets SIGTERM.
	look() error
	// ending is called when the command has ended but is not yet reaped.
	ending() error
	// kill kills all the processes and waits until they have ended.
	kill(ctx context.Context) error
	// remove drops the holder if none of its processes is left, and reports whether it did.
	remove() (gone bool, err error)
}

// A child is one started command.
type child struct {
	cmd     *exec.Cmd
	holder  holder
	limited *cgroup.Group // the cgroup, if it has a memory limit; nil: none
	killed  int           // the group's out-of-memory kills before the start

	done chan struct{}
	err  error

	mu     sync.Mutex
	reaped bool // another process may have its number by now
}

// Done is closed when the command has ended.
func (c *child) Done() <-chan struct{} { return c.done }

// Err returns how the command ended.
func (c *child) Err() error { return c.err }

// Spent returns the CPU time of the command and of the descendants that it waited for.
func (c *child) Spent() time.Duration {
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// signal sends a signal to the command's process group. The group's number cannot be reused
// before the command is reaped.
func (c *child) signal(sig unix.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil
	}
	if err := unix.Kill(-c.pid(), sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("sending %v to process group %d: %w", sig, c.pid(), err)
	}
	return nil
}

// spawn starts a command whose standard output and error go to the log. With
// command.Stdout, standard output goes to that file instead. The command inherits the files.
func (in *Instance) spawn(ctx context.Context, command vitrine.Command, account *substrate.Account, log *os.File, files ...*os.File) (*child, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if len(command.Args) == 0 {
		return nil, errors.New("no command")
	}
	// The context bounds the start, not how long the command runs.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command.Args[0], command.Args[1:]...)
	cmd.Env, cmd.ExtraFiles = in.substrate.environment(command, account), files
	cmd.Dir = command.Dir
	if cmd.Dir == "" {
		cmd.Dir = in.spec.Dir
	}
	cmd.Stdout, cmd.Stderr = log, log
	if command.Stdout != "" {
		out, err := substrate.OpenOutput(command.Stdout)
		if err != nil {
			return nil, err
		}
		defer out.Close()
		cmd.Stdout = out
	}
	if err := giveOutput(cmd, account); err != nil {
		return nil, err
	}
	// The kernel sends SIGKILL when the thread that forked the command ends. That thread
	// waits for the command, so it ends only when this process dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: account.Credential()}

	in.mu.Lock() // a later Remove finds the child
	defer in.mu.Unlock()
	if in.removed {
		return nil, errors.New("the instance was removed")
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	if err := in.hold(c); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	in.running.Add(1)
	onOwnThread(func() {
		err := in.fork(c)
		started <- err
		if err == nil {
			c.wait()
			in.running.Done()
		}
	})
	if err := <-started; err != nil {
		in.running.Done()
		_, removing := c.holder.remove()
		if account != nil && errors.Is(err, fs.ErrPermission) {
			err = noAccess(cmd, account, err)
		}
		return nil, errors.Join(err, removing)
	}
	in.children[c] = struct{}{}
	return c, nil
}

// hold chooses the holder of the child's processes.
func (in *Instance) hold(c *child) error {
	in.commands++
	number := strconv.Itoa(in.commands)
	if in.group == nil {
		c.holder = newSession(in.substrate.config.Run, in.spec.Name+"."+number, in.spec.Dir)
		return nil
	}
	l, err := in.group.Leaf(number)
	if err != nil {
		return err
	}
	if in.spec.Memory > 0 {
		c.limited, c.killed = in.group, in.group.OutOfMemory()
	}
	c.holder = leaf{l}
	return nil
}

// fork starts the child from a thread that has entered the child's namespace and CPUs. The
// thread also sets no_new_privs (prctl(2)), unless the Spec allows privileges; the child
// inherits all of this.
func (in *Instance) fork(c *child) error {
	if !in.spec.AllowPrivilegeEscalation {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("forbidding the command to gain privileges: %w", err)
		}
	}
	if in.netns != "" {
		if err := netns.Enter(in.netns); err != nil {
			return err
		}
	}
	// A cpuset does not suffice. Before Linux 6.3, a child that starts in another cgroup of version 2
	// keeps the CPUs of its parent (Linux commit 42a11bf5c543), which are the generator's.
	if len(in.spec.CPUs) > 0 {
		if _, err := thread.Keep(in.spec.CPUs...); err != nil {
			return fmt.Errorf("binding to CPUs %v: %w", in.spec.CPUs, err)
		}
	}
	return c.holder.start(c.cmd)
}

// wait reaps the command.
func (c *child) wait() {
	pidfd.AwaitChild(c.pid()) // not reaped, so that signal never hits another process
	looking := c.holder.ending()
	c.mu.Lock()
	err := errors.Join(c.cmd.Wait(), looking)
	c.reaped = true
	c.mu.Unlock()
	if err != nil && c.limited != nil && c.limited.OutOfMemory() > c.killed {
		err = fmt.Errorf("%w: over the memory limit", err)
	}
	c.err = err
	close(c.done)
}

// onOwnThread calls f on its own thread, which ends with f. It never uses the process's first
// thread, because that thread cannot end, and /proc/self shows its state as the process's.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		another := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(another)
			f()
		}()
		<-another
		runtime.UnlockOSThread()
	}()
}

// appendLog appends the output of a command that Run ran to the log, and returns its last lines,
// at most 2 KiB.
func (in *Instance) appendLog(output *os.File) (last string, err error) {
	size, err := output.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return "", err
	}
	const most = 2 << 10
	tail := make([]byte, min(size, most))
	if _, err := output.ReadAt(tail, size-int64(len(tail))); err != nil {
		return "", fmt.Errorf("reading the output: %w", err)
	}
	log, err := substrate.OpenOutput(filepath.Join(in.spec.Dir, "log"))
	if err != nil {
		return string(tail), err
	}
	if _, err := output.Seek(0, io.SeekStart); err != nil {
		return string(tail), errors.Join(err, log.Close())
	}
	_, err = io.Copy(log, output)
	return string(tail), errors.Join(err, log.Close())
}

// leaf is a holder that uses a leaf of the instance's cgroup.
type leaf struct{ *cgroup.Leaf }

func (l leaf) start(cmd *exec.Cmd) error      { return l.Start(cmd) }
func (l leaf) look() error                    { return nil } // no process can leave the leaf
func (l leaf) ending() error                  { return nil }
func (l leaf) kill(ctx context.Context) error { return l.Kill(ctx) }
func (l leaf) remove() (bool, error)          { return l.Remove() }
