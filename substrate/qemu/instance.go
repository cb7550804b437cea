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
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu/machine"
)

// An Instance is a virtual machine and its place on the host.
type Instance struct {
	substrate *Substrate
	spec      substrate.Spec
	files     *guestFiles
	place     *process.Instance // QEMU's

	life sync.Mutex // held by Start, Stop and Remove from beginning to end
	main *command   // what Start started; nil after Stop

	booting sync.Mutex // held while the machine is started or removed
	guest   *running   // nil: none
	used    bool       // a machine has run from the disk
	wired   bool
	link    *machine.Link
	removed bool
}

// Files in the instance's folder.
const (
	machineDir  = "machine"    // QEMU's own
	logFile     = "log"        // what commands print
	consoleFile = "console"    // what the guest's kernel says
	useFile     = "guest.csv"  // what the guest reads of itself
	overlayFile = "disk.qcow2" // in machineDir
)

// make makes the place; what is made when it fails is for Remove.
func (in *Instance) make(ctx context.Context) error {
	s, dir := in.substrate, filepath.Join(in.spec.Dir, machineDir)
	if err := s.config.Run.Record(recordKind, in.spec.Name, []byte(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	spec := in.spec
	spec.Image, spec.Dir, spec.Memory = "", dir, spec.Memory+overheadMemory
	place, err := s.places.Create(ctx, spec)
	if err != nil {
		return err
	}
	in.place = place.(*process.Instance)
	return s.overlay(ctx, in.spec.Image, filepath.Join(dir, overlayFile))
}

// NetNS is the path of the network namespace that the machine is wired in.
func (in *Instance) NetNS() string { return in.place.NetNS() }

// Start starts the command in the machine, which is started first if it does not
// run.
func (in *Instance) Start(ctx context.Context, c vitrine.Command) (substrate.Process, error) {
	in.life.Lock()
	defer in.life.Unlock()
	if in.main != nil && !substrate.Ended(in.main) {
		return nil, fmt.Errorf("starting %s: it runs already", in.spec.Name)
	}
	if err := in.stop(ctx, 0); err != nil { // what the last one left
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

// Stop sends SIGTERM to what Start started and, once that has ended or grace is
// over, SIGKILL to all that descends from it. The machine goes on; one that does
// not answer is switched off.
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

// end ends all that descends from the command. Where the agent does not see to
// that, the machine ends.
func (in *Instance) end(ctx context.Context, r *command) error {
	ctx, cancel := substrate.Ending(ctx)
	defer cancel()
	err := r.end(ctx)
	if err == nil {
		return nil
	}
	select {
	case <-r.client.ended: // and all in it
		return nil
	default:
	}
	in.substrate.config.Logger.Warn("a virtual machine does not answer and is switched off", "instance", in.spec.Name, "error", err)
	in.booting.Lock()
	defer in.booting.Unlock()
	return in.halt(ctx)
}

// Remove switches the machine off, cleanly if it can be, and removes its place.
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

// Vantage says where the use of the machine, all of QEMU, can be read on the
// host, and where what the guest reads of itself is kept.
func (in *Instance) Vantage() vitrine.Vantage {
	v := in.place.Vantage()
	v.Memory = in.spec.Memory
	in.booting.Lock()
	defer in.booting.Unlock()
	if in.link != nil {
		v.Interface = in.link.Interface
	}
	if in.guest != nil {
		v.Guest = filepath.Join(in.spec.Dir, useFile)
	}
	return v
}
