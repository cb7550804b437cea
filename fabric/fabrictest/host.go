package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/segment"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// A Host is a network namespace that represents a host with two interfaces, eno1 and eno2. Both
// are connected to one switch, a namespace with the bridge br0, 198.18.255.1/16. The bridge's
// ports are in hairpin mode: a port also sends frames back out that it received.
type Host struct {
	Path   string // path of the host's namespace
	Switch string // path of the switch's namespace
}

// NewHost creates a host that lasts until the test ends.
func NewHost(t *testing.T) Host {
	t.Helper()
	label := fmt.Sprintf("test%d", os.Getpid())
	h := Host{Path: Place(t, label, "host"), Switch: Place(t, label, "switch")}
	if err := netns.Do(h.Path, h.cable); err != nil {
		if vitrine.IsUnsupported(err) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return h
}

// cable creates the interfaces and the switch. It runs in the host's namespace.
func (h Host) cable() error {
	fd, err := unix.Open(h.Switch, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, name := range []string{"eno1", "eno2"} {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: name, TxQLen: -1, Flags: net.FlagUp})
		pair.PeerName, pair.PeerNamespace = name, netlink.NsFd(fd)
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
	}
	return segment.In(h.Switch, bridgeAll)
}

// bridgeAll creates the bridge in the switch's namespace and waits until it forwards. links must
// be a handle to that namespace.
func bridgeAll(links *netlink.Handle) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1, Flags: net.FlagUp}}
	if err := links.LinkAdd(bridge); err != nil {
		return err
	}
	for _, name := range []string{"eno1", "eno2"} {
		port, err := links.LinkByName(name)
		if err != nil {
			return err
		}
		err = errors.Join(links.LinkSetMaster(port, bridge), links.LinkSetHairpin(port, true), links.LinkSetUp(port))
		if err == nil {
			err = segment.Settle(links, port.Attrs().Index)
		}
		if err != nil {
			return err
		}
	}
	addr, err := netlink.ParseAddr("198.18.255.1/16")
	if err != nil {
		return err
	}
	return errors.Join(links.AddrAdd(bridge, addr), segment.Settle(links, bridge.Index))
}

// Unplug sets the other end of eno1's cable down, so that eno1 has no carrier.
func (h Host) Unplug(t *testing.T) {
	t.Helper()
	err := netns.Do(h.Switch, func() error {
		port, err := netlink.LinkByName("eno1")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(port)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Do calls f on a thread in the host's namespace.
func (h Host) Do(t *testing.T, f func() error) {
	t.Helper()
	if err := netns.Do(h.Path, f); err != nil {
		t.Fatal(err)
	}
}

// OnHost calls open in the host's namespace and returns the result of open.
func OnHost[T any](t *testing.T, host Host, open func() (T, error)) (made T) {
	t.Helper()
	host.Do(t, func() (err error) {
		made, err = open()
		return err
	})
	return made
}

// Uplink returns the switch's own interface as an instance.
func (h Host) Uplink() Instance {
	return instance{
		Endpoint: fabric.Endpoint{Addr: netip.MustParseAddr("198.18.255.1"), Interface: "br0"},
		port:     fabric.Port{Instance: "switch", NetNS: h.Switch}, place: h.Switch,
	}
}

// An Instance is an instance that a Bench attached.
type Instance = instance

// A Bench is a fabric for a test that drives it step by step.
type Bench struct{ s *suite }

// NewBench returns a bench for f. It closes f when the test ends.
func NewBench(t *testing.T, f fabric.Fabric, run *runstate.Run) Bench {
	t.Helper()
	h := Harness{Fabric: f, Run: run, Place: func(t *testing.T, instance string) string { return Place(t, run.ID, instance) }}
	hosttest.AtEnd(t, func() error { return f.Close(context.Background()) })
	return Bench{&suite{T: t, h: h, ctx: t.Context()}}
}

// NewHostBench is like NewBench, for instances that share the host's network.
func NewHostBench(t *testing.T, f fabric.Fabric, run *runstate.Run, host Host) Bench {
	t.Helper()
	b := NewBench(t, f, run)
	b.s.h.Host = host.Path
	b.s.h.Place = func(*testing.T, string) string { return "" }
	return b
}

// Attach creates a place for an instance and attaches the instance.
func (b Bench) Attach(name string) Instance {
	b.s.Helper()
	return b.s.attach(name)
}

// Reach sends a question from one instance to another over UDP and checks the answer.
func (b Bench) Reach(from, to Instance) error {
	b.s.Helper()
	got, err := b.s.ask(from, "udp", b.s.serve(to, "udp", to.port.Instance, 0))
	if want := to.port.Instance + " " + from.Addr.String(); err == nil && got != want {
		err = fmt.Errorf("the answer is %q, want %q", got, want)
	}
	if err != nil {
		return fmt.Errorf("from %s to %s: %w", from.port.Instance, to.port.Instance, err)
	}
	return nil
}

// Apart checks that two runs can use the same host interface at once: their addresses differ, and
// the instances of each run reach each other.
func Apart(t *testing.T, host Host, open func(run *runstate.Run) (fabric.Fabric, error)) {
	t.Helper()
	root := t.TempDir() + "/runs"
	had := make(map[netip.Addr]bool)
	for range 2 {
		run := NewRun(t, root)
		f := OnHost(t, host, func() (fabric.Fabric, error) { return open(run) })
		bench := NewBench(t, f, run)
		bono, sprout := bench.Attach("bono-1"), bench.Attach("sprout-1")
		if err := bench.Reach(bono, sprout); err != nil {
			t.Error(err)
		}
		for _, in := range []Instance{bono, sprout} {
			if had[in.Addr] {
				t.Errorf("two runs allocated the address %s", in.Addr)
			}
			had[in.Addr] = true
		}
		if err := f.Detach(t.Context(), "sprout-1"); err != nil { // frees its address
			t.Error(err)
		}
		delete(had, sprout.Addr)
	}
}
