package mirror

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/mirror/mirrortest"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
)

// A place is a bridge with three instances: A, B and the listener.
type place struct {
	links *netlink.Handle // in the bridge's namespace
	outer [3]int          // indexes of the outer ends
	inner [3]mirrortest.Place
}

const (
	a = iota
	b
	listener
)

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{}
	home := namespace(t, "fabric")
	mirrortest.Must(t, netns.Do(home, func() (err error) {
		p.links, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	}))
	t.Cleanup(p.links.Close)
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1, Flags: net.FlagUp}}
	mirrortest.Must(t, p.links.LinkAdd(br))
	for i := range p.inner {
		p.inner[i] = mirrortest.Place{NetNS: namespace(t, fmt.Sprint(i)), Addr: netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})}
		ns, err := os.Open(p.inner[i].NetNS)
		mirrortest.Must(t, err)
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: fmt.Sprintf("p%d", i), MasterIndex: br.Index, TxQLen: -1, Flags: net.FlagUp})
		veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(ns.Fd())
		mirrortest.Must(t, p.links.LinkAdd(veth))
		mirrortest.Must(t, ns.Close())
		p.outer[i] = veth.Index
		mirrortest.Must(t, netns.Do(p.inner[i].NetNS, func() error {
			// With IPv6, the listener would also receive neighbor discovery.
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(p.inner[i].Addr.String() + "/24")
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
		}))
	}
	p.inner[b].Serve(t)
	return p
}

func namespace(t *testing.T, name string) string {
	t.Helper()
	name = fmt.Sprintf("vt-mirror%d-%s", os.Getpid(), name)
	path, err := netns.Create(name)
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return netns.Delete(name) })
	return path
}

// mirror mirrors the port of one instance to the port of another.
func (p *place) mirror(t *testing.T, of, to int) {
	t.Helper()
	hosttest.Need(t, Port(p.links, p.outer[of], p.outer[to]))
}

// talk sends n questions from A to B. It returns the number of answers that A got.
func (p *place) talk(t *testing.T, n int) (answered int) {
	t.Helper()
	return p.inner[a].Ask(t, p.inner[b], n, 10)
}

// TestMirrorOnABridge checks that the listener receives each datagram of A and
// of B exactly once, and that A and B lose none.
func TestMirrorOnABridge(t *testing.T) {
	const n = 1000
	p := newPlace(t)
	hear := p.inner[listener].Hear(t)
	if got := p.talk(t, 10); got != 10 {
		t.Fatalf("without a mirror: got %d of 10 answers", got)
	}
	if heard := hear(); len(heard) != 0 {
		t.Fatalf("without a mirror the listener received %d messages, want 0", len(heard))
	}
	for range 2 { // Port is idempotent
		p.mirror(t, a, listener)
	}
	if got := p.talk(t, n); got != n {
		t.Errorf("got %d of %d answers", got, n)
	}
	if heard := hear(); !maps.Equal(heard, mirrortest.Messages(n)) {
		t.Errorf("the listener received %d messages, want %d, each once", len(heard), 2*n)
		for message, times := range heard {
			if times != 1 {
				t.Errorf("received %q %d times, want once", message, times)
				break
			}
		}
	}
}

// TestMirrorToTwoListeners checks that each listener receives a copy. Removing one listener must
// not affect the other listener or the mirrored instances.
func TestMirrorToTwoListeners(t *testing.T) {
	const n = 50
	p := newPlace(t)
	p.mirror(t, b, listener)
	second := netlink.NewVeth(netlink.LinkAttrs{Name: "second", TxQLen: -1, Flags: net.FlagUp})
	second.PeerName = "second-in"
	mirrortest.Must(t, p.links.LinkAdd(second))
	peer, err := p.links.LinkByName("second-in")
	mirrortest.Must(t, err)
	mirrortest.Must(t, p.links.LinkSetUp(peer)) // a pair whose peer is down sends nothing
	if err := Port(p.links, p.outer[b], second.Index); err != nil {
		t.Fatal(err)
	}
	hear := p.inner[listener].Hear(t)
	if got := p.talk(t, n); got != n {
		t.Errorf("with two listeners: got %d of %d answers", got, n)
	}
	if heard := hear(); !maps.Equal(heard, mirrortest.Messages(n)) {
		t.Errorf("the first listener received %d messages, want %d, each once", len(heard), 2*n)
	}
	link, err := p.links.LinkByName("second")
	mirrortest.Must(t, err)
	if got := link.Attrs().Statistics.TxPackets; got < 2*n {
		t.Errorf("the second listener received %d frames, want at least %d", got, 2*n)
	}
	mirrortest.Must(t, p.links.LinkDel(second))
	if got := p.talk(t, n); got != n {
		t.Errorf("after one listener was removed: got %d of %d answers", got, n)
	}
	if heard := hear(); !maps.Equal(heard, mirrortest.Messages(n)) {
		t.Errorf("after the second listener was removed, the first received %d messages, want %d, each once", len(heard), 2*n)
	}
	mirrortest.Must(t, p.links.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: p.outer[listener]}}))
	if got := p.talk(t, n); got != n {
		t.Errorf("after all listeners were removed: got %d of %d answers", got, n)
	}
}

func TestMirrorRefuses(t *testing.T) {
	p := newPlace(t)
	if err := Port(p.links, p.outer[a], p.outer[a]); !vitrine.IsBadInput(err) {
		t.Errorf("mirror of a port to itself: got %v, want BadInput", err)
	}
	if err := Port(p.links, p.outer[a], 999); err == nil {
		t.Error("Port accepted a listener interface that does not exist")
	}
	if err := Port(p.links, 999, p.outer[a]); err == nil {
		t.Error("Port accepted a source interface that does not exist")
	}
	qdiscs, err := p.links.QdiscList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: p.outer[a]}})
	mirrortest.Must(t, err)
	for _, q := range qdiscs {
		if q.Type() == "clsact" {
			t.Error("a failed call left a clsact queue")
		}
	}
	p.mirror(t, a, listener)
	if err := Port(p.links, p.outer[listener], p.outer[a]); !vitrine.IsBadInput(err) {
		t.Errorf("mirror in a circle: got %v, want BadInput", err)
	}
	if got := p.talk(t, 10); got != 10 {
		t.Errorf("got %d of 10 answers", got)
	}
}
