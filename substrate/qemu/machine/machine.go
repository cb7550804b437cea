// Package machine runs virtual machines of QEMU: it finds the accelerator,
// writes the command line, wires the machine to the network interface that a
// fabric gave its namespace, binds its processors and ends it.
//
// A machine runs in a place of package process: its network namespace, its
// cgroup, with the quota on all of QEMU, and its end when this process ends are
// that place's.
package machine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"vitrine"
	"vitrine/substrate"
)

// Program is the one that runs machines.
const Program = "qemu-system-x86_64"

// Version is what the program that runs machines says of itself. Without the
// program the error is a *vitrine.Unsupported.
func Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, Program, "--version").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", withoutProgram()
	}
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", Program, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first, nil
}

func withoutProgram() error {
	return &vitrine.Unsupported{What: "virtual machines", Missing: "the program " + Program, Do: "install qemu-system-x86"}
}

// Models of machines.
const (
	Q35     = "q35"     // a PC with PCI Express: any device
	MicroVM = "microvm" // no PCI: virtio devices alone, and a quicker start
)

// A Spec is one machine.
type Spec struct {
	Name        string // for people: "vt-RUN-sprout-1"
	Accelerator string // see Prober
	Model       string // Q35 or MicroVM; empty: Q35
	Processor   string // QEMU's -cpu; empty: the host's, as far as the accelerator gives it
	VCPUs       int    // at least 1
	Memory      int64  // bytes
	CPUs        []int  // of the host, one for each vCPU to be bound to; of another number: none is bound

	Kernel  string   // file that QEMU starts by itself; empty: the first disk is booted from
	Initrd  string   // empty: none
	Append  string   // the kernel's command line
	Disks   []Disk   // vda, vdb, ...
	Ports   []string // names of virtio serial ports, each a Port of the machine
	Console string   // file that the first serial line is appended to
	Link    *Link    // nil: no network
	Devices []string // further -device arguments

	// Dir is the machine's own folder: its sockets, and a file log with what QEMU
	// itself says. It must be that of the place.
	Dir string
}

// A Disk is a file that the machine has for a disk.
type Disk struct {
	Path     string
	Format   string // "raw", "qcow2"
	ReadOnly bool   // else nobody else may have it open
}

// Processors is how many an instance's machine has: those of its flavor rounded
// up, or as many as it may run on.
func Processors(of substrate.Spec) int {
	if of.VCPUs > 0 {
		return int(math.Ceil(of.VCPUs - 1e-9)) // 0.1+0.2 is not 0.3
	}
	return max(1, len(of.CPUs))
}

// A Machine is one that runs.
type Machine struct {
	process substrate.Process
	place   substrate.Instance
	monitor *Monitor
	ports   map[string]net.Conn
}

// starting bounds how long QEMU itself may take to be ready, before the machine
// runs a single instruction.
const starting = 2 * time.Minute

// Start starts a machine in the place, and comes back once it executes. When it
// fails nothing is left but files in Dir.
func Start(ctx context.Context, place substrate.Instance, spec Spec) (*Machine, error) {
	m, err := start(ctx, place, spec)
	if err != nil {
		return nil, fmt.Errorf("starting machine %s: %w", spec.Name, err)
	}
	return m, nil
}

func start(ctx context.Context, place substrate.Instance, spec Spec) (_ *Machine, err error) {
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	sockets, err := listen(spec.Dir, append([]string{monitorSocket}, spec.Ports...))
	if err != nil {
		return nil, err
	}
	defer sockets.close()
	args, err := spec.command()
	if err != nil {
		return nil, err
	}
	env := []string{"LC_ALL=C"}
	process, err := place.Start(ctx, vitrine.Command{Args: args, Env: env, Dir: spec.Dir})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, said(spec.Dir), place.Stop(context.WithoutCancel(ctx), 0))
		}
	}()
	conns, err := sockets.accept(ctx, process)
	if err != nil {
		return nil, err
	}
	m := &Machine{process: process, place: place, ports: conns}
	defer func() {
		if err != nil {
			m.hangUp()
		}
	}()
	m.monitor, err = newMonitor(ctx, conns[monitorSocket])
	if err != nil {
		return nil, err
	}
	if len(spec.CPUs) == spec.VCPUs {
		if err := m.bind(ctx, spec.CPUs); err != nil {
			return nil, err
		}
	}
	if err := m.monitor.Run(ctx, "cont", nil, nil); err != nil {
		return nil, err
	}
	return m, nil
}

// Done is closed when the machine has ended.
func (m *Machine) Done() <-chan struct{} { return m.process.Done() }

// Err is how QEMU ended, once Done is closed; nil: the machine was switched off.
func (m *Machine) Err() error { return m.process.Err() }

// Port is the host's end of one of the machine's serial ports; nil: it has none
// of that name. It is closed with the machine.
func (m *Machine) Port(name string) net.Conn { return m.ports[name] }

// Monitor asks QEMU about the machine.
func (m *Machine) Monitor() *Monitor { return m.monitor }

// PowerDown presses the power button (ACPI) and waits until the machine has
// switched itself off or grace is over; Stop then ends what is left.
func (m *Machine) PowerDown(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := m.monitor.Run(ctx, "system_powerdown", nil, nil); err != nil {
		return err
	}
	select {
	case <-m.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the machine does not switch itself off: %w", context.Cause(ctx))
	}
}

// Stop ends the machine at once and comes back when it has ended. Idempotent.
func (m *Machine) Stop(ctx context.Context) error {
	err := m.place.Stop(ctx, 0)
	m.hangUp()
	return err
}

func (m *Machine) hangUp() {
	for _, conn := range m.ports {
		_ = conn.Close() // the other end has gone
	}
}

// Log is the file with what QEMU itself says.
func Log(dir string) string { return filepath.Join(dir, "log") }
