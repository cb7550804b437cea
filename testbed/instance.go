package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/internal/netns"
	"vitrine/substrate"
)

const (
	removeGrace = 2 * time.Second
	tailBytes   = 2048 // read from a log's end
)

// The pause between probes is a fraction of the time waited so far. So the excess of the wait is
// at most that fraction, whether an instance takes milliseconds or minutes.
const (
	probeShare = 20                     // the fraction is 1/20,
	probeLeast = time.Millisecond       // but no less than this
	probeMost  = 100 * time.Millisecond // and no more than this
	probeLimit = time.Second            // of one probe, or a tenth of all the time if that is longer
)

// An Instance is one instance of a placement. Only one goroutine at a time may call
// its methods, but any goroutine may call Ended, Done and Log.
type Instance struct {
	Spec
	Endpoint fabric.Endpoint // zero: it is not wired

	place     substrate.Instance
	process   substrate.Process // started last; nil: none
	logBegins int64             // offset in the log at which the output of the last start begins
}

// create makes the instance's place, with its folder. It empties the scratch folder, because a killed
// run may have left files there. If the place cannot be made, create removes the scratch folder only if
// it made that folder: another instance may have the same name.
func (in *Instance) create(ctx context.Context, s *Site) error {
	if err := os.MkdirAll(in.Dir, 0o755); err != nil {
		return err
	}
	err := os.Mkdir(in.Scratch(), 0o755)
	made := err == nil
	if !made && !errors.Is(err, fs.ErrExist) {
		return err
	}
	on := s.function
	if in.OnHost {
		on = s.host
	}
	place, err := on.Create(ctx, in.Spec.Spec)
	if err != nil {
		if made {
			err = errors.Join(err, os.RemoveAll(in.Scratch()))
		}
		return fmt.Errorf("create %s: %w", in.Name, err)
	}
	in.place = place
	return in.ClearScratch()
}

// Scratch returns the folder on the host that the instance may write to. The folder is removed
// with the instance.
func (in *Instance) Scratch() string { return filepath.Join(in.Dir, "scratch") }

// ClearScratch empties the scratch folder, and restores the files of an image that the instance's
// commands may have changed. No command may run.
func (in *Instance) ClearScratch() error {
	if err := errors.Join(in.removeScratch(), os.MkdirAll(in.Scratch(), 0o755), substrate.Own(in.place, in.Scratch()), substrate.Restore(in.place)); err != nil {
		return fmt.Errorf("empty %s's folder: %w", in.Name, err)
	}
	return nil
}

// removeScratch removes the scratch folder. An ordinary user cannot remove what is in a folder that
// a container made as root.
func (in *Instance) removeScratch() error {
	err := os.RemoveAll(in.Scratch())
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; if a container made it, remove it as root, and set the component's user to %d:%d or run vitrine as root", err, os.Getuid(), os.Getgid())
	}
	return err
}

// NetNS returns the path of the instance's network namespace; empty: the host's.
func (in *Instance) NetNS() string { return in.place.NetNS() }

// Inside calls f on a thread that is in the instance's network namespace.
func (in *Instance) Inside(f func() error) error { return netns.Do(in.NetNS(), f) }

// At returns a port at the instance's address on the fabric.
func (in *Instance) At(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(in.Endpoint.Addr, port)
}

// AddNeighbour adds a permanent neighbour entry, so that no packet waits for ARP.
func (in *Instance) AddNeighbour(addr netip.Addr, mac net.HardwareAddr) error {
	return in.Inside(func() error {
		link, err := netlink.LinkByName(in.Endpoint.Interface)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
		})
	})
}

// Vantage returns the places to read the instance's resource use. It does not change from Start to
// Stop.
func (in *Instance) Vantage() vitrine.Vantage { return in.place.Vantage() }

// Start starts the command and returns when the command runs, which may be before it is ready.
// Standard output and error go to the log.
func (in *Instance) Start(ctx context.Context, command vitrine.Command) error {
	in.logBegins = 0
	if info, err := os.Stat(in.logFile()); err == nil {
		in.logBegins = info.Size()
	}
	process, err := in.place.Start(ctx, command)
	if err != nil {
		return fmt.Errorf("start %s: %w", in.Name, err)
	}
	in.process = process
	return nil
}

// Run runs a command in the instance until it exits. Run may be called before Start, or while the
// command of Start runs.
func (in *Instance) Run(ctx context.Context, command vitrine.Command) error {
	return in.place.Run(ctx, command)
}

// Await probes until the instance is ready, that is, until probe returns nil. It fails if the
// started command exits or the limit passes. The error then has the end of the log. Await also
// fails if the context ends.
func (in *Instance) Await(ctx context.Context, limit time.Duration, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for began := time.Now(); ; {
		err := probeOnce(ctx, max(probeLimit, limit/10), probe)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // a probe that the limit cut short says less than the one before
			last = err
		}
		pause := min(max(time.Since(began)/probeShare, probeLeast), probeMost)
		select {
		case <-in.process.Done():
			return fmt.Errorf("%s ended before it was ready: %w", in.Name, in.Ended())
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return fmt.Errorf("%s was not ready within %s: %w; %s", in.Name, limit, last, in.logEnd())
		case <-time.After(pause):
		}
	}
}

func probeOnce(ctx context.Context, limit time.Duration, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("one check took longer than %s", limit))
	defer cancel()
	return probe(ctx)
}

// Done is closed when the command of Start has exited.
func (in *Instance) Done() <-chan struct{} { return in.process.Done() }

// Err returns the result of that command once Done is closed: nil for exit status 0.
func (in *Instance) Err() error { return in.process.Err() }

// Spent returns the CPU time of that command, and of the descendants that it waited for. known is
// false if the command has not ended, or if the substrate does not know the time.
func (in *Instance) Spent() (spent time.Duration, known bool) {
	p, known := in.process.(substrate.Timed)
	if !known || !substrate.Ended(in.process) {
		return 0, false
	}
	return p.Spent(), true
}

// Ended returns an error with the result of the last started command and the end of its log. It
// returns nil if the command runs or nothing was started.
func (in *Instance) Ended() error {
	if in.process == nil || !substrate.Ended(in.process) {
		return nil
	}
	how := "exit status 0"
	if err := in.process.Err(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%s ended (%s); %s", in.Name, how, in.logEnd())
}

// Stop ends the started command by SIGTERM, and by SIGKILL after grace. The place and its wiring
// stay. It is not an error if nothing runs.
func (in *Instance) Stop(ctx context.Context, grace time.Duration) error {
	if err := in.place.Stop(ctx, grace); err != nil {
		return fmt.Errorf("stop %s: %w", in.Name, err)
	}
	return nil
}

func (in *Instance) logFile() string { return filepath.Join(in.Dir, "log") }

// logEnd returns the end of the log, to end an error with.
func (in *Instance) logEnd() string {
	if log := in.Log(); log != "" {
		return "its log ends:\n" + log
	}
	return "its log is empty"
}

// Log returns the output since the instance's last start, at most its last 2 KiB.
func (in *Instance) Log() string {
	return substrate.OutputSince(in.logFile(), in.logBegins, tailBytes)
}

// remove removes the instance, if it was created.
func (in *Instance) remove(ctx context.Context, fab fabric.Fabric) error {
	if in.place == nil {
		return nil
	}
	errs := []error{in.place.Stop(ctx, removeGrace)}
	if fab != nil {
		errs = append(errs, fab.Detach(ctx, in.Name))
	}
	errs = append(errs, in.place.Remove(ctx), in.removeScratch())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove %s: %w", in.Name, err)
	}
	in.place = nil
	return nil
}
