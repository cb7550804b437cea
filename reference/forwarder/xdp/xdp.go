// Package xdp forwards frames in the kernel, with an XDP program on the incoming
// interface. `go generate`, which needs clang, compiles forwarder.bpf.c into the
// objects beside it. Users need no clang.
package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
)

// The modes of a program.
const (
	Auto    = "auto"    // native if its frames get through, otherwise generic
	Native  = "native"  // in the driver
	Generic = "generic" // in the stack, after the socket buffer is allocated
)

// MaxDelay is the longest time that a frame can be held, because the CPU does
// nothing else meanwhile.
const MaxDelay = time.Millisecond

// Config configures a forwarder in the kernel. The interfaces are those of the
// calling thread's network namespace, which must stay the same until Close.
type Config struct {
	In, Out           int     // indices of interfaces
	Own, Source, Next [6]byte // addresses of In, of Out and of the next hop
	Delay             time.Duration
	Attach            string // Auto, Native, Generic
}

// Counters count the frames. All but the forwarded frames were left to the host.
type Counters struct {
	Forwarded, ForwardedBytes uint64
	Short, NotOurs, NotIP     uint64
}

// A Forwarder is attached from New to Close.
type Forwarder struct {
	Attached string // Native or Generic
	Why      string // why Attached is Generic although Config.Attach is Auto

	objects programObjects
	at      link.Link
}

// New attaches the program to the interface. After an error nothing stays
// attached.
func New(c Config) (*Forwarder, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, unsupported(err)
	}
	f := &Forwarder{}
	if err := f.load(c); err != nil {
		return nil, fmt.Errorf("load the XDP forwarder: %w", unsupported(err))
	}
	if err := f.attach(c); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the XDP forwarder: %w", unsupported(err)), f.Close())
	}
	return f, nil
}

func (f *Forwarder) load(c Config) error {
	spec, err := loadProgram()
	if err != nil {
		return err
	}
	for name, value := range map[string]any{
		programVarOwn: c.Own, programVarSource: c.Source, programVarNext: c.Next,
		programVarDelay: uint64(c.Delay.Nanoseconds()),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := spec.LoadAndAssign(&f.objects, nil); err != nil {
		return err
	}
	if err := f.objects.Out.Put(uint32(0), uint32(c.Out)); err != nil {
		return errors.Join(fmt.Errorf("name the interface to send on: %w", err), f.objects.Close())
	}
	return nil
}

func (f *Forwarder) attach(c Config) (err error) {
	if c.Attach != Generic {
		err = f.attachTo(c.In, Native, link.XDPDriverMode)
		if err == nil && c.Attach == Auto {
			err = f.probe(c.Out)
		}
		if err == nil || c.Attach == Native {
			return err
		}
		f.Why = err.Error()
		if f.at != nil {
			if err := f.at.Close(); err != nil {
				return err
			}
			f.at = nil
		}
	}
	return f.attachTo(c.In, Generic, link.XDPGenericMode)
}

func (f *Forwarder) attachTo(in int, mode string, flags link.XDPAttachFlags) (err error) {
	f.at, err = link.AttachXDP(link.XDPOptions{Program: f.objects.Forward, Interface: in, Flags: flags})
	f.Attached = mode
	if err != nil {
		return fmt.Errorf("%s mode: %w", mode, err)
	}
	return nil
}

// The frames that probe sends.
const (
	probes    = 8
	probeSize = 60             // bytes: the Ethernet minimum without the frame check sequence
	probeKind = uint16(0x88b5) // local experimental EtherType 1 (IEEE 802)
)

// nearest is an address that no bridge forwards (IEEE 802.1Q table 8-1).
var nearest = [6]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// probe returns nil if frames that a driver's XDP sends out of the interface get
// through. A veth accepts them only if its other end receives by NAPI (generic
// receive offload is on, or it has a program of its own). Otherwise it drops them
// without an error. That end may be in a namespace that is not visible from here.
func (f *Forwarder) probe(out int) error {
	frame := make([]byte, probeSize)
	copy(frame, nearest[:])
	binary.BigEndian.PutUint16(frame[12:], probeKind)
	before, err := sentPackets(out)
	if err != nil {
		return err
	}
	_, err = f.objects.Bounce.Run(&ebpf.RunOptions{
		Data: frame, Repeat: probes, BatchSize: probes, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		Context: context{End: probeSize, In: uint32(out)},
	})
	if err != nil {
		return fmt.Errorf("send a probe out of interface %d: %w", out, err)
	}
	// The frames are counted when the other end receives them.
	for deadline := time.Now().Add(50 * time.Millisecond); ; time.Sleep(time.Millisecond) {
		after, err := sentPackets(out)
		if err != nil {
			return err
		}
		if after >= before+probes {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("the other end does not accept frames that the driver's XDP sends (turn on generic receive offload there: ethtool -K NAME gro on)")
		}
	}
}

// context is struct xdp_md.
type context struct{ Data, End, Meta, In, Queue, Egress uint32 }

func sentPackets(index int) (uint64, error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0, fmt.Errorf("read counters of interface %d: %w", index, err)
	}
	if l.Attrs().Statistics == nil {
		return 0, fmt.Errorf("interface %d has no counters", index)
	}
	return l.Attrs().Statistics.TxPackets, nil
}

// Counters returns the counts since New.
func (f *Forwarder) Counters() (c Counters, err error) {
	read := func(verdict uint32) (frames, bytes uint64) {
		var each []programCount
		if e := f.objects.Counts.Lookup(verdict, &each); e != nil {
			err = errors.Join(err, fmt.Errorf("read the XDP forwarder's counters: %w", e))
		}
		for _, cpu := range each {
			frames, bytes = frames+cpu.Frames, bytes+cpu.Bytes
		}
		return frames, bytes
	}
	c.Forwarded, c.ForwardedBytes = read(0)
	c.Short, _ = read(1)
	c.NotOurs, _ = read(2)
	c.NotIP, _ = read(3)
	return c, err
}

// Close detaches the program from the interface.
func (f *Forwarder) Close() (err error) {
	if f.at != nil {
		err = f.at.Close()
		f.at = nil
	}
	return errors.Join(err, f.objects.Close())
}

// unsupported converts an error about a missing kernel feature or privilege into
// a *vitrine.Unsupported.
func unsupported(err error) error {
	switch {
	case vitrine.IsUnsupported(err):
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return &vitrine.Unsupported{What: "forwarding by XDP", Missing: "the privilege (CAP_BPF, CAP_NET_ADMIN): " + err.Error(), Do: "run as root, or --mode packet"}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return &vitrine.Unsupported{What: "forwarding by XDP", Missing: "support by the kernel or the driver: " + err.Error(), Do: "--attach generic, or --mode packet"}
	}
	return err
}
