// Package machine runs QEMU virtual machines. It finds the accelerator, writes the command
// line, wires the machine to the network interface that a fabric gave its namespace, binds
// its processors and ends it.
//
// A machine runs in a place of package process. The place provides its network namespace,
// and its cgroup with the quota on all of QEMU. It also ends QEMU when this process ends.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"vitrine"
	"vitrine/substrate"
	"vitrine/substrate/process"
)

// Program is the program that runs machines.
const Program = "qemu-system-x86_64"

// Version returns the version that Program reports. Without the program, the error is
// a *vitrine.Unsupported.
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
	MicroVM = "microvm" // no PCI, only virtio devices; starts faster
)

// A Spec describes one machine.
type Spec struct {
	Name        string // for humans: "vt-RUN-sprout-1"
	Accelerator string // see Prober
	Model       string // Q35 or MicroVM; empty: Q35
	VCPUs       int    // at least 1
	Memory      int64  // bytes
	CPUs        []int  // CPUs of the host, one to bind each vCPU to; if their number is not VCPUs, none is bound

	Kernel  string   // file that QEMU boots directly
	Initrd  string   // empty: none
	Append  string   // the kernel's command line
	Disks   []Disk   // vda, vdb, ...
	Ports   []string // names of virtio serial ports, each a Port of the machine
	Console string   // file to which the first serial line is appended
	Link    *Link    // nil: no network
	Devices []string // further -device arguments

	Confinement Confinement // how QEMU is isolated from the host

	// Dir is the machine's own folder, and must be the place's folder. It has a file log with
	// QEMU's own output.
	Dir string
}

// A Disk is a file that the machine uses as a disk.
type Disk struct {
	Path     string
	Format   string // "raw", "qcow2"
	ReadOnly bool   // false: no other process may have it open

	Backing       string // file below an overlay, whatever the overlay names; empty: none
	BackingFormat string
}

// OverheadMemory is the memory of QEMU itself, in bytes: mostly code that TCG has translated.
const OverheadMemory = 512 << 20

// namePattern allows names that are safe for files, namespaces and the guest's hostname.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,60}$`)

// Complete checks what a machine needs of an instance, and completes the instance: it sets the
// memory, in bytes, if there is none, and makes the path of the folder absolute. kind names the
// substrate in errors; least is the smallest memory.
func Complete(kind string, of *substrate.Spec, memory, least int64) (err error) {
	if !namePattern.MatchString(of.Name) {
		return &vitrine.BadInput{File: kind, Found: fmt.Sprintf("instance %q", of.Name), Want: "a name of letters, digits and hyphens, valid as a host name"}
	}
	of.Memory = cmp.Or(of.Memory, memory)
	if of.Memory < least {
		return &vitrine.BadInput{File: kind, Found: fmt.Sprintf("%d MiB of memory", of.Memory>>20), Want: fmt.Sprintf("at least %d MiB for a virtual machine", least>>20)}
	}
	of.Dir, err = filepath.Abs(of.Dir)
	return err
}

// Processors returns the number of a machine's vCPUs: its flavor's, rounded up, or the
// number of CPUs that it may run on, at least 1.
func Processors(of substrate.Spec) int {
	if of.VCPUs > 0 {
		return int(math.Ceil(of.VCPUs - 1e-9)) // 0.1+0.2 exceeds 0.3
	}
	return max(1, len(of.CPUs))
}

// A Machine is a running machine.
type Machine struct {
	process substrate.Process
	place   *process.Instance
	monitor *Monitor
	ports   map[string]net.Conn
}

// startLimit bounds how long QEMU itself may take to be ready, before the machine runs
// its first instruction.
const startLimit = 2 * time.Minute

// Start starts a machine in the place and returns when it executes. On failure it
// leaves only files in Dir.
func Start(ctx context.Context, place *process.Instance, spec Spec) (*Machine, error) {
	m, err := start(ctx, place, spec)
	if err != nil {
		return nil, fmt.Errorf("starting machine %s: %w", spec.Name, err)
	}
	return m, nil
}

func start(ctx context.Context, place *process.Instance, spec Spec) (_ *Machine, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var inherited descriptors
	defer inherited.close()
	if err := inherited.open(spec, place.NetNS()); err != nil {
		return nil, err
	}
	conns, err := inherited.connect(append([]string{monitorPort}, spec.Ports...))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			hangUp(conns)
		}
	}()
	args, err := spec.command(inherited.number)
	if err != nil {
		return nil, err
	}
	// QEMU's user may not be allowed to enter the machine's folder.
	command := vitrine.Command{Args: args, Env: []string{"LC_ALL=C"}, Dir: "/"}
	qemu, err := place.StartAs(ctx, command, spec.Confinement.Account, inherited.files...)
	if err != nil {
		return nil, err
	}
	inherited.close() // otherwise the monitor's connection would not end with QEMU
	defer func() {
		if err != nil {
			err = errors.Join(err, outputError(spec.Dir), place.Stop(context.WithoutCancel(ctx), 0))
		}
	}()
	m := &Machine{process: qemu, place: place, ports: conns}
	m.monitor, err = newMonitor(ctx, conns[monitorPort])
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

// Err returns how QEMU ended, once Done is closed; nil: the machine was switched off.
func (m *Machine) Err() error { return m.process.Err() }

// Port returns the host's end of one of the machine's serial ports; nil: there is no
// such port. Stop closes it.
func (m *Machine) Port(name string) net.Conn { return m.ports[name] }

// Monitor returns the client of QEMU's monitor.
func (m *Machine) Monitor() *Monitor { return m.monitor }

// PowerDown presses the power button (ACPI) and waits until the machine has switched itself
// off or grace is over. Call Stop afterwards to end what is left.
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

// Stop ends the machine at once and waits until it has ended. It is idempotent.
func (m *Machine) Stop(ctx context.Context) error {
	err := m.place.Stop(ctx, 0)
	hangUp(m.ports)
	return err
}

func hangUp(conns map[string]net.Conn) {
	for _, conn := range conns {
		_ = conn.Close() // the other end is closed
	}
}

// outputError returns an error with the last of QEMU's own output; nil: no output.
func outputError(dir string) error {
	last := substrate.LastOutput(Log(dir), 1000)
	if last == "" {
		return nil
	}
	return fmt.Errorf("%s printed: %s", Program, last)
}

// Log returns the file with QEMU's own output.
func Log(dir string) string { return filepath.Join(dir, "log") }
