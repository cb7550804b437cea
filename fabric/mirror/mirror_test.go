package mirror

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/netns"
)

// A place is a bridge with three instances: A, B and the listener.
type place struct {
	links *netlink.Handle // where the bridge is
	outer [3]int          // indexes of the outer ends
	inner [3]string       // paths of the instances' namespaces
	addr  [3]string
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
	must(t, netns.Do(home, func() (err error) {
		p.links, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	}))
	t.Cleanup(p.links.Close)
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1, Flags: net.FlagUp}}
	must(t, p.links.LinkAdd(br))
	for i := range p.inner {
		p.inner[i] = namespace(t, fmt.Sprint(i))
		p.addr[i] = fmt.Sprintf("198.18.0.%d", i+1)
		ns, err := os.Open(p.inner[i])
		must(t, err)
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: fmt.Sprintf("p%d", i), MasterIndex: br.Index, TxQLen: -1, Flags: net.FlagUp})
		veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(ns.Fd())
		must(t, p.links.LinkAdd(veth))
		must(t, ns.Close())
		p.outer[i] = veth.Index
		must(t, netns.Do(p.inner[i], func() error {
			// No discovery of neighbours: it would be heard too.
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(p.addr[i] + "/24")
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
		}))
	}
	return p
}

func namespace(t *testing.T, name string) string {
	t.Helper()
	name = fmt.Sprintf("vt-mirror%d-%s", os.Getpid(), name)
	path, err := netns.Create(name)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := netns.Delete(name); err != nil {
			t.Error(err)
		}
	})
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mirror mirrors one instance's port to another's.
func (p *place) mirror(t *testing.T, of, to int) {
	t.Helper()
	if err := Port(p.links, p.outer[of], p.outer[to]); vitrine.IsUnsupported(err) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

const port = 5060

// talk has B answer n numbered datagrams of A's, one after the other, and gives
// how many answers A got.
func (p *place) talk(t *testing.T, n int) (answered int) {
	t.Helper()
	var server, client *net.UDPConn
	must(t, netns.Do(p.inner[b], func() (err error) {
		server, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(p.addr[b]), Port: port})
		return err
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 100)
		for {
			n, from, err := server.ReadFromUDP(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDP(append([]byte("answer"), buf[len("asking"):n]...), from)
		}
	}()
	defer func() { _ = server.Close(); <-done }()
	must(t, netns.Do(p.inner[a], func() (err error) {
		client, err = net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
		return err
	}))
	defer client.Close()
	buf := make([]byte, 100)
	for i := range n {
		must(t, client.SetDeadline(time.Now().Add(5*time.Second)))
		_, err := client.Write(binary.BigEndian.AppendUint32([]byte("asking"), uint32(i)))
		must(t, err)
		got, err := client.Read(buf)
		if err == nil && got == 10 && binary.BigEndian.Uint32(buf[6:]) == uint32(i) {
			answered++
		}
	}
	return answered
}

// hear opens a socket that gets all that arrives at an instance; the function
// that it gives reads what has arrived: how often each message of talk.
func (p *place) hear(t *testing.T, at int) func() map[string]int {
	t.Helper()
	var fd int
	must(t, netns.Do(p.inner[at], func() (err error) {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(protocol)); err != nil {
			return err
		}
		// Room for all: nothing may be lost before it is read.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index})
	}))
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() map[string]int {
		heard := make(map[string]int)
		buf := make([]byte, 2000)
		for {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) {
				return heard
			}
			must(t, err)
			const headers = 14 + 20 + 8
			if frame := buf[:n]; n >= headers+10 && (bytes.HasPrefix(frame[headers:], []byte("asking")) || bytes.HasPrefix(frame[headers:], []byte("answer"))) {
				heard[string(frame[headers:headers+10])]++
			}
		}
	}
}

// messages are those of a talk of n datagrams, each once.
func messages(n int) map[string]int {
	all := make(map[string]int)
	for i := range n {
		for _, word := range []string{"asking", "answer"} {
			all[string(binary.BigEndian.AppendUint32([]byte(word), uint32(i)))] = 1
		}
	}
	return all
}

// TestMirrorOnABridge: the listener gets each datagram of A's and each of B's
// exactly once, and A and B lose none.
func TestMirrorOnABridge(t *testing.T) {
	const n = 1000
	p := newPlace(t)
	hear := p.hear(t, listener)
	if got := p.talk(t, 10); got != 10 {
		t.Fatalf("without a mirror %d of 10 were answered", got)
	}
	if heard := hear(); len(heard) != 0 {
		t.Fatalf("without a mirror the listener hears %d messages", len(heard))
	}
	for range 2 { // asking twice is asking once
		p.mirror(t, a, listener)
	}
	if got := p.talk(t, n); got != n {
		t.Errorf("%d of %d were answered", got, n)
	}
	if heard := hear(); !maps.Equal(heard, messages(n)) {
		t.Errorf("the listener heard %d messages, want %d, each once", len(heard), 2*n)
		for message, times := range heard {
			if times != 1 {
				t.Errorf("%q was heard %d times", message, times)
				break
			}
		}
	}
}

// TestMirrorToTwoListeners: each has its copy, and one's going is no harm to
// the other, nor to those that they listen to.
func TestMirrorToTwoListeners(t *testing.T) {
	const n = 50
	p := newPlace(t)
	p.mirror(t, b, listener)
	second := netlink.NewVeth(netlink.LinkAttrs{Name: "second", TxQLen: -1, Flags: net.FlagUp})
	second.PeerName = "second-in"
	must(t, p.links.LinkAdd(second))
	peer, err := p.links.LinkByName("second-in")
	must(t, err)
	must(t, p.links.LinkSetUp(peer)) // else nothing is sent into it
	if err := Port(p.links, p.outer[b], second.Index); err != nil {
		t.Fatal(err)
	}
	hear := p.hear(t, listener)
	if got := p.talk(t, n); got != n {
		t.Errorf("with two listeners %d of %d were answered", got, n)
	}
	if heard := hear(); !maps.Equal(heard, messages(n)) {
		t.Errorf("the first listener heard %d messages, want %d, each once", len(heard), 2*n)
	}
	link, err := p.links.LinkByName("second")
	must(t, err)
	if got := link.Attrs().Statistics.TxPackets; got < 2*n {
		t.Errorf("the second listener got %d frames, want %d at least", got, 2*n)
	}
	must(t, p.links.LinkDel(second))
	if got := p.talk(t, n); got != n {
		t.Errorf("after one had gone %d of %d were answered", got, n)
	}
	if heard := hear(); !maps.Equal(heard, messages(n)) {
		t.Errorf("after the second had gone, the first listener heard %d messages, want %d, each once", len(heard), 2*n)
	}
	must(t, p.links.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: p.outer[listener]}}))
	if got := p.talk(t, n); got != n {
		t.Errorf("after all had gone %d of %d were answered", got, n)
	}
}

func TestMirrorRefuses(t *testing.T) {
	p := newPlace(t)
	if err := Port(p.links, p.outer[a], p.outer[a]); !vitrine.IsBadInput(err) {
		t.Errorf("to itself: %v", err)
	}
	if err := Port(p.links, p.outer[a], 999); err == nil {
		t.Error("to an interface that is not there")
	}
	if err := Port(p.links, 999, p.outer[a]); err == nil {
		t.Error("of an interface that is not there")
	}
	qdiscs, err := p.links.QdiscList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: p.outer[a]}})
	must(t, err)
	for _, q := range qdiscs {
		if q.Type() == "clsact" {
			t.Error("what failed left a place for filters")
		}
	}
	p.mirror(t, a, listener)
	if err := Port(p.links, p.outer[listener], p.outer[a]); !vitrine.IsBadInput(err) {
		t.Errorf("round: %v", err)
	}
	if got := p.talk(t, 10); got != 10 {
		t.Errorf("%d of 10 were answered", got)
	}
}
