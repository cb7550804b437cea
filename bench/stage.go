package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/internal/thread"
	"vitrine/testbed"
)

//go:embed forwarder/forwarder.c
var forwarderSource []byte

//go:embed forwarder/load.c
var loadSource []byte

// A stage is the environment of a device under test and its load: a network
// namespace that has only lo, and one core for each of the two.
type stage struct {
	dir       string // for files
	netns     string // path
	forwarder string // program
	load      string // program
	run       *runstate.Run
	devices   int // the core of the device under test
	loads     int // the core of load and sinks
	// realtime makes both sides keep their cores. The device gets SCHED_FIFO. The
	// load, which is never idle, gets the largest fair share, like everything
	// that sends packets for a measurement.
	realtime bool
}

// newStage returns a partly built stage together with an error, so that the
// caller can close it.
func newStage(ctx context.Context) (s *stage, err error) {
	s = &stage{}
	cpus, err := testbed.ShareCPUs(nil, nil)
	if err != nil {
		return s, err
	}
	s.devices, s.loads = cpus.Function[0], cpus.Generator[0]
	if s.run, err = runstate.New(runstate.DefaultRoot()); err != nil {
		return s, err
	}
	if s.dir, err = os.MkdirTemp("", "bench-stage-"); err != nil {
		return s, err
	}
	if s.netns, err = netns.Create(s.namespace()); err != nil {
		return s, err
	}
	if s.forwarder, err = compileC(ctx, s.dir, "forwarder", forwarderSource); err != nil {
		return s, err
	}
	if s.load, err = compileC(ctx, s.dir, "load", loadSource, "-lm"); err != nil {
		return s, err
	}
	return s, nil
}

// onStage wraps a bench that needs a stage.
func onStage(of func(ctx context.Context, s *stage, progress io.Writer) ([]Row, error)) measurement {
	return func(ctx context.Context, progress io.Writer) (rows []Row, err error) {
		s, err := newStage(ctx)
		defer func() { err = errors.Join(err, s.close()) }()
		if err != nil {
			return nil, err
		}
		return of(ctx, s, progress)
	}
}

// buildID returns a hash of a program. A resumed bench counts only the results of the same build.
func buildID(program string) (string, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:6]), nil
}

func (s *stage) namespace() string { return runstate.Name(s.run.ID, "bench") }

func (s *stage) close() (err error) {
	if s.netns != "" {
		err = netns.Delete(s.namespace())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if s.run != nil {
		err = errors.Join(err, s.run.Close())
	}
	return err
}

// start starts the command in the namespace, in a process group of its own. The command and its
// children stay on the core.
func (s *stage) start(cmd *exec.Cmd, core int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return netns.Do(s.netns, func() error {
		return startOn(cmd, core, func() (func(), error) { return s.rank(core) })
	})
}

// startLoad is start on the core of the load.
func (s *stage) startLoad(cmd *exec.Cmd) error { return s.start(cmd, s.loads) }

// startOn starts the command. The command and its children stay on the core. rank gives the calling
// thread the scheduling of the command; nil: the thread has it. The caller must have locked the thread.
func startOn(cmd *exec.Cmd, core int, rank func() (back func(), err error)) error {
	anywhere, err := thread.Keep(core)
	if err != nil {
		return fmt.Errorf("keep %s to core %d: %w", cmd.Path, core, err)
	}
	if rank != nil {
		back, err := rank()
		if err != nil {
			return errors.Join(fmt.Errorf("have %s keep core %d: %w", cmd.Path, core, err), anywhere())
		}
		defer back()
	}
	return errors.Join(cmd.Start(), anywhere())
}

// rank gives the calling thread the scheduling of the core's programs. back restores the previous
// scheduling.
func (s *stage) rank(core int) (back func(), err error) {
	switch {
	case !s.realtime:
		return func() {}, nil
	case core != s.devices:
		return thread.Prefer(), nil
	}
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil, err
	}
	first := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	return func() { _ = unix.SchedSetAttr(0, before, 0) }, unix.SchedSetAttr(0, &first, 0)
}

// stopWait is how long a program may take to end after SIGTERM.
const stopWait = 10 * time.Second

// stop sends SIGTERM to the command's process group and reaps the command.
func stop(cmd *exec.Cmd) error {
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", cmd.Path, err)
	}
	late := time.AfterFunc(stopWait, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer late.Stop()
	err := cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok { // ended by the signal, or with an exit code
		return nil
	}
	return err
}

// listen opens a UDP socket in the namespace.
func (s *stage) listen(port int) (conn *net.UDPConn, err error) {
	err = netns.Do(s.netns, func() error {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		return err
	})
	return conn, err
}
