// Package forwarder is the reference network function of service chains. It
// rewrites the link-layer addresses of incoming frames and sends them to the next
// function, as the Click elements of the paper "Performance Considerations of
// Network Functions Virtualization using Containers" (section III.B) do.
package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/thread"
	"vitrine/reference/forwarder/xdp"
)

// Modes of a forwarder.
const (
	Packet = "packet" // AF_PACKET: a process reads, rewrites and sends
	XDP    = "xdp"    // a program in the kernel
)

// maxDelay is the longest time that a frame may be held, because the other frames
// in the ring wait behind it.
const maxDelay = 100 * time.Millisecond

// Options configure a forwarder.
type Options struct {
	In, Out string           // names of interfaces; may be the same
	Next    net.HardwareAddr // address of the next hop
	Mode    string           // Packet or XDP
	Attach  string           // XDP only: xdp.Auto, xdp.Native, xdp.Generic
	CPU     int              // CPU that the thread is pinned to; -1 for any
	Delay   time.Duration    // time that each frame is held

	in, out *net.Interface
}

// Counters count frames by result.
type Counters struct {
	Received       uint64 `json:"received"`        // all received frames
	Forwarded      uint64 `json:"forwarded"`       // forwarded frames
	ForwardedBytes uint64 `json:"forwarded_bytes"` // bytes of the forwarded frames, without frame check sequences
	NotOurs        uint64 `json:"not_ours"`        // to other, multicast or broadcast addresses: left to the host
	NotIP          uint64 `json:"not_ip"`          // neither IPv4 nor IPv6: left to the host
	Short          uint64 `json:"short"`           // ended inside the headers: left to the host
	TooLong        uint64 `json:"too_long"`        // larger than the interface takes: dropped
	Refused        uint64 `json:"refused"`         // refused by the outgoing interface: dropped
	Lost           uint64 `json:"lost"`            // arrived while the ring was full: dropped
}

// A Report is printed at the end, as JSON.
type Report struct {
	Mode     string `json:"mode"`
	Attached string `json:"attached,omitempty"` // XDP only: native or generic
	Why      string `json:"why,omitempty"`      // why the mode is generic
	Counters
	CPU float64 `json:"cpu_seconds,omitempty"` // of the forwarding thread; 0 for XDP, which runs in the kernel
}

// Run runs `vitrine reference forwarder`: it forwards until ctx is done. It
// prints a line once it forwards, and a Report at the end. The error is a
// *vitrine.BadInput for wrong arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	report, err := Forward(ctx, o, func(ready string) { fmt.Fprintf(stdout, "forwarder: ready: %s\n", ready) })
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(report)
}

const usage = `Usage: vitrine reference forwarder --in NAME --next-mac ADDRESS [FLAG...]

Rewrites the link-layer addresses of IP frames addressed to it, and forwards
them to the next hop. It leaves other frames to the host. At the end it prints
counts of frames.

`

func parse(args []string, stderr io.Writer) (o Options, err error) {
	flags := pflag.NewFlagSet("forwarder", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage, flags.FlagUsages()) }
	flags.StringVar(&o.In, "in", "", "incoming interface")
	flags.StringVar(&o.Out, "out", "", "outgoing interface; default: that of --in")
	next := flags.String("next-mac", "", "link-layer address of the next hop")
	flags.StringVar(&o.Mode, "mode", Packet, "packet: a process, on AF_PACKET; xdp: a program in the kernel")
	flags.StringVar(&o.Attach, "attach", xdp.Auto, "with --mode xdp: native, generic, or auto: native if its frames get through")
	flags.IntVar(&o.CPU, "cpu", -1, "CPU that the forwarding thread is pinned to; default: any")
	flags.DurationVar(&o.Delay, "delay", 0, "hold every frame for this time, to find the delay in a measurement")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		return o, bad("", err.Error(), "see --help")
	}
	if flags.NArg() > 0 {
		return o, bad("", fmt.Sprintf("%q", flags.Arg(0)), "flags only")
	}
	if o.In == "" {
		return o, bad("--in", "no interface", "the name of one")
	}
	if o.Out == "" {
		o.Out = o.In
	}
	if o.Next, err = net.ParseMAC(*next); err != nil || len(o.Next) != macSize {
		return o, bad("--next-mac", fmt.Sprintf("%q", *next), "an address such as 02:00:00:00:00:01")
	}
	return o, o.check()
}

func (o Options) check() error {
	longest := maxDelay
	if o.Mode == XDP {
		longest = xdp.MaxDelay
	}
	switch {
	case o.Mode != Packet && o.Mode != XDP:
		return bad("--mode", fmt.Sprintf("%q", o.Mode), "packet or xdp")
	case o.Attach != xdp.Auto && o.Attach != xdp.Native && o.Attach != xdp.Generic:
		return bad("--attach", fmt.Sprintf("%q", o.Attach), "auto, native or generic")
	case o.Delay < 0 || o.Delay > longest:
		return bad("--delay", o.Delay.String(), fmt.Sprintf("from 0 to %s in mode %s", longest, o.Mode))
	case o.CPU < -1:
		return bad("--cpu", fmt.Sprint(o.CPU), "the number of a CPU")
	}
	return nil
}

func bad(flag, found, want string) error {
	return &vitrine.BadInput{File: strings.TrimSpace("vitrine reference forwarder " + flag), Found: found, Want: want}
}

// Forward forwards until ctx is done, between interfaces of the calling
// goroutine's network namespace. It calls ready once it takes frames, with a
// description of the forwarder.
func Forward(ctx context.Context, o Options, ready func(string)) (Report, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer thread.Prefer()()
	if o.CPU >= 0 {
		back, err := thread.Keep(o.CPU)
		if err != nil {
			return Report{}, bad("--cpu", fmt.Sprintf("%d: %v", o.CPU, err), "a CPU that this process may run on")
		}
		defer func() { _ = back() }()
	}
	var err error
	if o.in, err = findInterface(o.In); err != nil {
		return Report{}, err
	}
	if o.out, err = findInterface(o.Out); err != nil {
		return Report{}, err
	}
	if o.Mode == XDP {
		return forwardXDP(ctx, o, ready)
	}
	f, err := newPacketForwarder(o)
	if err != nil {
		return Report{}, err
	}
	ready(o.describe(Packet))
	before := threadTime()
	err = f.run(ctx)
	used := threadTime() - before
	counters, countErr := f.counters()
	return Report{Mode: Packet, Counters: counters, CPU: used.Seconds()}, errors.Join(err, countErr, f.close())
}

// threadTime returns the CPU time of the calling thread, or 0 if it cannot be
// read.
func threadTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func forwardXDP(ctx context.Context, o Options, ready func(string)) (Report, error) {
	a := o.addresses()
	f, err := xdp.New(xdp.Config{
		In: o.in.Index, Out: o.out.Index, Own: a.own, Source: a.source, Next: a.next, Delay: o.Delay, Attach: o.Attach,
	})
	if err != nil {
		return Report{}, err
	}
	ready(o.describe(XDP + ", " + f.Attached))
	<-ctx.Done()
	c, err := f.Counters()
	return Report{Mode: XDP, Attached: f.Attached, Why: f.Why, Counters: Counters{
		Received: c.Forwarded + c.Short + c.NotOurs + c.NotIP, Forwarded: c.Forwarded, ForwardedBytes: c.ForwardedBytes,
		Short: c.Short, NotOurs: c.NotOurs, NotIP: c.NotIP,
	}}, errors.Join(err, f.Close())
}

func (o Options) describe(mode string) string {
	return fmt.Sprintf("%s: %s (%s) to %s (%s), next %s", mode, o.In, o.in.HardwareAddr, o.Out, o.out.HardwareAddr, o.Next)
}

func (o Options) addresses() addresses {
	return addresses{own: [macSize]byte(o.in.HardwareAddr), source: [macSize]byte(o.out.HardwareAddr), next: [macSize]byte(o.Next)}
}

// findInterface returns the interface with that name, which must be an Ethernet interface
// that is up.
func findInterface(name string) (*net.Interface, error) {
	i, err := net.InterfaceByName(name)
	switch {
	case err != nil:
		return nil, bad("", "no interface "+name+" here", "one of `ip link`")
	case len(i.HardwareAddr) != macSize:
		return nil, bad("", name+" has no Ethernet address", "an Ethernet interface")
	case i.Flags&net.FlagUp == 0:
		return nil, bad("", name+" is down", "ip link set up dev "+name)
	}
	return i, nil
}

// unsupported converts an error of the kernel that means that this host cannot
// forward into a *vitrine.Unsupported.
func unsupported(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &vitrine.Unsupported{What: "forwarding by packet sockets", Missing: "the privilege (CAP_NET_RAW): " + err.Error(), Do: "run as root"}
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.ENOPROTOOPT):
		return &vitrine.Unsupported{What: "forwarding by packet sockets", Missing: "a kernel option (CONFIG_PACKET): " + err.Error()}
	}
	return err
}
