package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"vitrine"
)

// The kinds of time, as bpf/account.c numbers them.
const (
	idle = iota
	user
	kernel
	softirq
	hardirq
	instrument
	kinds
)

// A Reading is the time of one CPU since the Meter was opened, by use; ns.
type Reading struct {
	User      int64 `json:"user_ns"`      // of processes, without the processes of the measurement
	Kernel    int64 `json:"kernel_ns"`    // on behalf of processes, and of kernel threads
	Interrupt int64 `json:"interrupt_ns"` // hard and soft
	Own       int64 `json:"own_ns"`       // of the measurement: waiting senders, soakers, the Meter itself
	Idle      int64 `json:"idle_ns"`
}

// Sub returns the time spent between two readings.
func (r Reading) Sub(before Reading) Reading {
	return Reading{r.User - before.User, r.Kernel - before.Kernel, r.Interrupt - before.Interrupt, r.Own - before.Own, r.Idle - before.Idle}
}

// Busy returns the time that was neither idle nor the measurement's own.
func (r Reading) Busy() int64 { return r.User + r.Kernel + r.Interrupt }

// A Meter counts the time of all CPUs until it is closed.
type Meter struct {
	objects *ebpf.Collection
	links   []link.Link
}

// OpenMeter loads the counting programs into the kernel. It returns a
// *vitrine.Unsupported if this host cannot run them.
func OpenMeter() (_ *Meter, err error) {
	m := &Meter{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("count CPU time by BPF: %w", unsupported(err)), m.Close())
		}
	}()
	if err := rlimit.RemoveMemlock(); err != nil { // kernels before 5.11 charge BPF's memory to it
		return nil, err
	}
	if m.objects, err = load(); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unmetered := callNothing()
	// Attach the program for the end of each kind of work before the program for its
	// beginning (off_ sorts before on_). Otherwise the Meter could see work begin and
	// miss its end.
	for _, name := range slices.Sorted(maps.Keys(m.objects.Programs)) {
		l, err := link.AttachTracing(link.TracingOptions{Program: m.objects.Programs[name]})
		if err != nil {
			return nil, err
		}
		m.links = append(m.links, l)
	}
	return m, m.probe(unmetered)
}

// load loads the programs for the events that this kernel has. Other architectures lack the events
// of x86's own interrupts, because they handle these like any interrupt. Kernels before 6.16 lack
// the event for the end of a task switch. On these kernels, the last part of a task switch counts
// for the next task.
func load() (*ebpf.Collection, error) {
	spec, err := loadAccount()
	if err != nil {
		return nil, err
	}
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"on_timer", "off_timer", "on_reschedule", "off_reschedule", "on_call", "off_call", "on_call_single", "off_call_single", "on_work", "off_work", "off_switch"} {
		var event *btf.Typedef
		if err := types.TypeByName("btf_trace_"+spec.Programs[name].AttachTo, &event); errors.Is(err, btf.ErrNotFound) {
			delete(spec.Programs, name)
		}
	}
	if err := spec.Variables["ends"].Set(spec.Programs["off_switch"] != nil); err != nil {
		return nil, err
	}
	return ebpf.NewCollection(spec)
}

// Close unloads the programs. It may be called more than once.
func (m *Meter) Close() error {
	var errs []error
	for _, l := range m.links {
		errs = append(errs, l.Close())
	}
	m.links = nil
	if m.objects != nil {
		m.objects.Close()
		m.objects = nil
	}
	return errors.Join(errs...)
}

// Read returns the readings of all CPUs, by number, up to now.
func (m *Meter) Read() ([]Reading, time.Time, error) {
	var accounts []accountAccount
	var zero uint32
	if err := m.objects.Maps["accounts"].Lookup(&zero, &accounts); err != nil {
		return nil, time.Time{}, fmt.Errorf("read the CPU time counted by BPF: %w", err)
	}
	at := time.Now()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, at, fmt.Errorf("read the clock: %w", err)
	}
	out := make([]Reading, len(accounts))
	for i := range accounts {
		out[i] = accounts[i].until(now.Nano())
	}
	return out, at, nil
}

// until returns the reading at now, including the work in progress.
func (a *accountAccount) until(now int64) Reading {
	ns := a.Ns
	if a.Last > 0 && now > int64(a.Last) {
		kind := a.Mode
		switch {
		case a.Hardirq != 0:
			kind = hardirq
		case a.Softirq != 0:
			kind = softirq
		}
		if kind < kinds {
			ns[kind] += uint64(now) - a.Last
		}
	}
	return Reading{
		User: int64(ns[user]), Kernel: int64(ns[kernel]), Interrupt: int64(ns[softirq] + ns[hardirq]),
		Own: int64(ns[instrument]), Idle: int64(ns[idle]),
	}
}

func unsupported(err error) error {
	switch {
	case vitrine.IsUnsupported(err):
		return err
	case errors.Is(err, fs.ErrPermission):
		return &vitrine.Unsupported{What: "counting CPU time by BPF", Missing: "the privilege (CAP_BPF and CAP_PERFMON): " + err.Error(), Do: "run as root"}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOSYS):
		return &vitrine.Unsupported{What: "counting CPU time by BPF", Missing: "a kernel with BPF tracing (5.5) and its type information (CONFIG_DEBUG_INFO_BTF): " + err.Error()}
	}
	return err
}
