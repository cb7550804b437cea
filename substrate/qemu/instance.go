package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu/machine"
)

// An Instance is a virtual machine and its place on the host.
type Instance struct {
	substrate *Substrate
	spec      substrate.Spec
	files     *guestFiles
	place     *process.Instance // QEMU's place
	disk      machine.Disk
	unchanged func() error // fails if the image below the disk was replaced

	confinement machine.Confinement // QEMU's

	life sync.Mutex // held by Start, Stop and Remove from beginning to end
	main *command   // what Start started; nil before Start and after Stop

	booting sync.Mutex // held while the machine starts or is removed
	guest   *running   // nil: none
	used    bool       // a machine has run from the disk
	wired   bool
	link    *machine.Link
	removed bool
}

// Files in the instance's folder.
const (
	machineDir  = "machine"    // QEMU's own
	logFile     = "log"        // output of commands
	consoleFile = "console"    // output of the guest's kernel
	useFile     = "guest.csv"  // the guest's own counters
	overlayFile = "disk.qcow2" // in machineDir
)

// Logs returns the output of the guest's kernel and QEMU's own.
func (in *Instance) Logs() []string {
	return []string{filepath.Join(in.spec.Dir, consoleFile), machine.Log(filepath.Join(in.spec.Dir, machineDir))}
}

// make makes the instance's place. When it fails, Remove removes what it has made.
func (in *Instance) make(ctx context.Context) error {
	s, dir := in.substrate, filepath.Join(in.spec.Dir, machineDir)
	if err := s.config.Run.Record(recordKind, in.spec.Name, []byte(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	spec := in.spec
	spec.Image, spec.Dir, spec.Memory, spec.User, spec.AllowPrivilegeEscalation = "", dir, spec.Memory+machine.OverheadMemory, "", false
	place, err := s.places.Create(ctx, spec)
	if err != nil {
		return err
	}
	in.place = place.(*process.Instance)
	in.disk, in.unchanged, err = s.overlay(ctx, in.spec.Image, filepath.Join(dir, overlayFile))
	return err
}

// NetNS returns the path of the network namespace that the machine is wired in.
func (in *Instance) NetNS() string { return in.place.NetNS() }

// Start starts the command in the machine, and before that the machine if it does not run.
func (in *Instance) Start(ctx context.Context, c vitrine.Command) (substrate.Process, error) {
	in.life.Lock()
	defer in.life.Unlock()
	if in.main != nil && !substrate.Ended(in.main) {
		return nil, fmt.Errorf("starting %s: it is already running", in.spec.Name)
	}
	if err := in.stop(ctx, 0); err != nil { // processes that the last command left
		return nil, fmt.Errorf("starting %s: %w", in.spec.Name, err)
	}
	r, err := in.begin(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", in.spec.Name, err)
	}
	in.main = r
	return r, nil
}

// Run runs a command in the machine to its end.
func (in *Instance) Run(ctx context.Context, c vitrine.Command) error {
	r, err := in.begin(ctx, c)
	if err != nil {
		return fmt.Errorf("running %s in %s: %w", c.Args, in.spec.Name, err)
	}
	select {
	case <-r.Done():
		err = r.Err()
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), in.end(ctx, r))
	}
	if err == nil {
		return nil
	}
	r.mu.Lock()
	last := strings.TrimSpace(string(r.tail))
	r.mu.Unlock()
	if last != "" {
		err = fmt.Errorf("%w; it printed:\n%s", err, last)
	}
	return fmt.Errorf("running %s in %s: %w", c.Args, in.spec.Name, err)
}

// Stop sends SIGTERM to the process group of the command that Start started. When the
// command has ended or grace is over, it sends SIGKILL to all its descendants. The machine
// keeps running, but Stop switches off a machine that does not answer.
func (in *Instance) Stop(ctx context.Context, grace time.Duration) error {
	in.life.Lock()
	defer in.life.Unlock()
	if err := in.stop(ctx, grace); err != nil {
		return fmt.Errorf("stopping %s: %w", in.spec.Name, err)
	}
	return nil
}

func (in *Instance) stop(ctx context.Context, grace time.Duration) error {
	r := in.main
	if r == nil {
		return nil
	}
	if !substrate.Ended(r) {
		asking, cancel := substrate.Ending(ctx)
		err := r.signal(asking, unix.SIGTERM)
		cancel()
		if err == nil {
			substrate.Await(ctx, r, grace)
		}
	}
	if err := in.end(ctx, r); err != nil {
		return err
	}
	in.main = nil
	return nil
}

// end kills the command and all its descendants. If the agent does not do that, end
// switches the machine off.
func (in *Instance) end(ctx context.Context, r *command) error {
	ctx, cancel := substrate.Ending(ctx)
	defer cancel()
	err := r.end(ctx)
	if err == nil {
		return nil
	}
	select {
	case <-r.client.ended: // the machine has ended, with all its processes
		return nil
	default:
	}
	in.substrate.config.Logger.Warn("switching off a virtual machine that does not answer", "instance", in.spec.Name, "error", err)
	in.booting.Lock()
	defer in.booting.Unlock()
	return in.halt(ctx)
}

// Remove switches the machine off, cleanly if possible, and removes its place.
func (in *Instance) Remove(ctx context.Context) error {
	in.life.Lock()
	defer in.life.Unlock()
	in.booting.Lock()
	defer in.booting.Unlock()
	if err := in.remove(ctx); err != nil {
		return fmt.Errorf("removing %s: %w", in.spec.Name, err)
	}
	in.main = nil
	in.substrate.instances.Forget(in.spec.Name, in)
	return nil
}

func (in *Instance) remove(ctx context.Context) error {
	in.removed = true
	ctx, cancel := substrate.Ending(ctx)
	defer cancel()
	if err := in.halt(ctx); err != nil {
		return err
	}
	if in.place != nil {
		if err := in.place.Remove(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(in.spec.Dir, machineDir)); err != nil {
		return err
	}
	return in.substrate.config.Run.Erase(recordKind, in.spec.Name)
}

// Vantage returns where to read the use of the whole QEMU on the host, and the file of
// the guest's own counters.
func (in *Instance) Vantage() vitrine.Vantage {
	v := in.place.Vantage()
	v.Memory = in.spec.Memory
	in.booting.Lock()
	defer in.booting.Unlock()
	if in.link != nil {
		v.Interface = segment.Inside
	}
	if in.guest != nil {
		v.Guest = filepath.Join(in.spec.Dir, useFile)
	}
	return v
}
