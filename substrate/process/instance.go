package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// An Instance is a place for processes: a cgroup and a network namespace, or
// neither.
type Instance struct {
	substrate *Substrate
	spec      substrate.Spec
	account   *substrate.Account // that commands run as; nil: this process's own
	group     *cgroup.Group      // nil: none
	netns     string             // path; empty: the host's

	life sync.Mutex // held by Start, Stop and Remove from beginning to end

	mu       sync.Mutex
	removed  bool                // no more commands may start
	commands int                 // started so far
	main     *child              // what Start started; nil before Start and after Stop
	children map[*child]struct{} // all that may still have processes, including main
	running  sync.WaitGroup      // counts the children that have not ended
}

// make makes the instance's cgroup and namespace. When it fails, Remove removes what it has
// made.
func (in *Instance) make() error {
	s := in.substrate
	if s.groups != nil {
		if err := s.recordGroups(); err != nil {
			return err
		}
		group, err := s.groups.Create(in.spec.Run, in.spec.Name, cgroup.Limits{
			VCPUs: in.spec.VCPUs, Period: in.spec.CFSPeriod, Memory: in.spec.Memory, CPUs: in.spec.CPUs, Idle: in.spec.Idle,
		})
		if err != nil {
			return err
		}
		in.group = group
	}
	if s.namespaces {
		path, err := netns.Create(runstate.Name(in.spec.Run, in.spec.Name))
		if err != nil {
			return err
		}
		in.netns = path
	}
	return nil
}

// SetQuota changes the CPU quota from that of the Spec; 0: none. It does nothing without a
// cgroup: an instance that is bound to CPUs keeps them.
func (in *Instance) SetQuota(vcpus float64) error {
	if in.group == nil {
		return nil
	}
	if err := in.group.SetQuota(cgroup.Limits{VCPUs: vcpus, Period: in.spec.CFSPeriod}); err != nil {
		return fmt.Errorf("changing the CPU quota of %s: %w", in.spec.Name, err)
	}
	return nil
}

// NetNS returns the path of the network namespace; empty: the instance shares the host's.
func (in *Instance) NetNS() string { return in.netns }

// Start starts the command. It runs in the instance's cgroup and namespace from its first
// instruction, and the kernel kills it when this process dies.
func (in *Instance) Start(ctx context.Context, command vitrine.Command) (substrate.Process, error) {
	return in.StartAs(ctx, command, in.account)
}

// StartAs is like Start, but the command runs as the account. It inherits the files as
// descriptors 3, 4 and so on.
func (in *Instance) StartAs(ctx context.Context, command vitrine.Command, account *substrate.Account, files ...*os.File) (substrate.Process, error) {
	in.life.Lock()
	defer in.life.Unlock()
	if in.main != nil && !substrate.Ended(in.main) {
		return nil, fmt.Errorf("starting %s: it is already running", in.spec.Name)
	}
	if err := in.stop(ctx, 0); err != nil { // processes that the last command left
		return nil, fmt.Errorf("starting %s: %w", in.spec.Name, err)
	}
	log, err := substrate.OpenOutput(filepath.Join(in.spec.Dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", in.spec.Name, err)
	}
	defer log.Close()
	c, err := in.spawn(ctx, command, account, log, files...)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", in.spec.Name, err)
	}
	in.mu.Lock()
	in.main = c
	in.mu.Unlock()
	return c, nil
}

// Run runs a command to its end. The log has its output when Run returns.
func (in *Instance) Run(ctx context.Context, command vitrine.Command) error {
	// Output goes to a file, not a pipe, because processes that the command leaves in the
	// background may still write.
	output, err := os.CreateTemp(in.spec.Dir, ".output-")
	if err != nil {
		return fmt.Errorf("running %s in %s: %w", command.Args, in.spec.Name, err)
	}
	defer output.Close()
	if err := os.Remove(output.Name()); err != nil {
		return fmt.Errorf("running %s in %s: %w", command.Args, in.spec.Name, err)
	}
	c, err := in.spawn(ctx, command, in.account, output)
	if err != nil {
		return fmt.Errorf("running %s in %s: %w", command.Args, in.spec.Name, err)
	}
	select {
	case <-c.Done():
		err = c.Err()
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), in.end(ctx, c))
	}
	in.dropEnded(c)
	last, logging := in.appendLog(output)
	if err != nil && last != "" {
		err = fmt.Errorf("%w; it printed:\n%s", err, last)
	}
	if err = errors.Join(err, logging); err != nil {
		return fmt.Errorf("running %s in %s: %w", command.Args, in.spec.Name, err)
	}
	return nil
}

// Stop sends SIGTERM to the process group of the command that Start started. When the
// command has ended or grace is over, Stop sends SIGKILL to all its descendants. It also
// kills the processes that ended commands of Run left, because a fresh deployment must not
// find them.
func (in *Instance) Stop(ctx context.Context, grace time.Duration) error {
	in.life.Lock()
	defer in.life.Unlock()
	if err := errors.Join(in.stop(ctx, grace), in.endLeft(ctx)); err != nil {
		return fmt.Errorf("stopping %s: %w", in.spec.Name, err)
	}
	return nil
}

func (in *Instance) stop(ctx context.Context, grace time.Duration) error {
	c := in.main
	if c == nil {
		return nil
	}
	if !substrate.Ended(c) {
		if err := c.holder.look(); err != nil {
			return err
		}
		if err := c.signal(unix.SIGTERM); err != nil {
			return err
		}
		substrate.Await(ctx, c, grace)
	}
	if err := in.end(ctx, c); err != nil {
		return err
	}
	in.dropEnded(c)
	in.mu.Lock()
	in.main = nil
	in.mu.Unlock()
	return nil
}

// endLeft kills the processes that ended commands left.
func (in *Instance) endLeft(ctx context.Context) error {
	in.mu.Lock()
	children := slices.Collect(maps.Keys(in.children))
	in.mu.Unlock()
	for _, c := range children {
		if !substrate.Ended(c) { // a Run waits for it
			continue
		}
		if err := in.end(ctx, c); err != nil {
			return err
		}
		in.dropEnded(c)
	}
	return nil
}

// end kills the command and all its descendants.
func (in *Instance) end(ctx context.Context, c *child) error {
	ctx, cancel := substrate.Ending(ctx)
	defer cancel()
	if err := c.holder.kill(ctx); err != nil {
		return err
	}
	select {
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d does not end after SIGKILL", c.pid())
	}
}

// dropEnded drops an ended command that has left no process running.
func (in *Instance) dropEnded(c *child) {
	gone, err := c.holder.remove()
	if err != nil {
		in.substrate.config.Logger.Warn("cannot remove the cgroup or record of an ended command", "instance", in.spec.Name, "error", err)
	}
	if gone {
		in.mu.Lock()
		delete(in.children, c)
		in.mu.Unlock()
	}
}

// Remove ends everything in the instance and removes its group and namespace.
func (in *Instance) Remove(ctx context.Context) error {
	in.life.Lock()
	defer in.life.Unlock()
	in.mu.Lock()
	in.removed = true
	children := slices.Collect(maps.Keys(in.children))
	in.mu.Unlock()

	ctx, cancel := substrate.Ending(ctx)
	defer cancel()
	err := in.remove(ctx, children)
	if err != nil {
		return fmt.Errorf("removing %s: %w", in.spec.Name, err)
	}
	in.substrate.forget(in)
	return nil
}

func (in *Instance) remove(ctx context.Context, children []*child) error {
	if in.group != nil {
		if err := in.group.Remove(ctx); err != nil {
			return err
		}
	} else {
		for _, c := range children {
			if err := c.holder.kill(ctx); err != nil {
				return err
			}
			if _, err := c.holder.remove(); err != nil {
				return err
			}
		}
	}
	in.running.Wait() // all were killed above
	in.mu.Lock()
	in.main = nil
	clear(in.children)
	in.mu.Unlock()
	if in.netns == "" {
		return nil
	}
	return netns.Delete(runstate.Name(in.spec.Run, in.spec.Name))
}

// Vantage returns where to read the instance's use.
func (in *Instance) Vantage() vitrine.Vantage {
	v := vitrine.Vantage{
		Instance: in.spec.Name, Component: in.spec.Component,
		VCPUs: in.spec.VCPUs, Memory: in.spec.Memory, NetNS: in.netns,
		Missing: make(map[string]string),
	}
	in.mu.Lock()
	if in.main != nil && !substrate.Ended(in.main) {
		v.PID = in.main.pid()
	}
	in.mu.Unlock()

	s := in.substrate
	if in.group != nil {
		in.group.Vantage(&v)
	} else {
		v.Missing["throttled"] = "no quota is enforced: " + s.noGroups.Missing
	}
	if v.PID == 0 && in.group == nil {
		v.Missing["cpu"], v.Missing["memory"] = "nothing runs", "nothing runs"
	}
	if v.NetNS == "" {
		v.Missing["network"] = "the instance shares the host's network"
	}
	switch {
	case in.spec.Memory == 0:
	case in.group == nil:
		v.Missing["memory-limit"] = s.noGroups.Missing
	case !s.groups.Has(cgroup.Memory):
		v.Missing["memory-limit"] = "the cgroup controller memory"
		if s.groups.Version == 1 {
			v.Missing["memory"] = v.Missing["memory-limit"]
		}
	}
	return v
}
