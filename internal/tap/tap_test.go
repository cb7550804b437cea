package tap_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
	"vitrine/internal/netns"
	"vitrine/internal/tap"
)

// patience limits every wait. Reaching it is a failure.
const patience = 30 * time.Second

// inside runs a test in a network namespace with three interfaces that are up: lo, and a and b,
// the two ends of a link.
func inside(t *testing.T, f func() error) {
	t.Helper()
	if err := netns.Possible(); vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	err := netns.Try(func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}); err != nil {
			return err
		}
		for _, name := range []string{"lo", "a", "b"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func open(memory int, promiscuous bool, names ...string) (*tap.Tap, error) {
	interfaces, err := tap.Find(names)
	if err != nil {
		return nil, err
	}
	return tap.Open(tap.Config{Interfaces: interfaces, Memory: memory, Promiscuous: promiscuous})
}

// A sender sends frames at an interface.
type sender struct {
	fd    int
	index int
}

func newSender(name string) (*sender, error) {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	return &sender{fd, at.Index}, err
}

// withSender runs a test with a Tap at interfaces and a sender at a.
func withSender(t *testing.T, memory int, promiscuous bool, names []string, f func(heard *tap.Tap, s *sender) error) {
	t.Helper()
	inside(t, func() error {
		heard, err := open(memory, promiscuous, names...)
		if err != nil {
			return err
		}
		defer heard.Close()
		s, err := newSender("a")
		if err != nil {
			return err
		}
		defer unix.Close(s.fd)
		return f(heard, s)
	})
}

// frame returns a frame of a test protocol.
func frame(text string) []byte {
	const experimental = 0x88b5 // IEEE 802 Local Experimental EtherType 1
	b := []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1}
	return append(binary.BigEndian.AppendUint16(b, experimental), text...)
}

func (s *sender) send(b []byte) error {
	return unix.Sendto(s.fd, b, 0, &unix.SockaddrLinklayer{Ifindex: s.index, Protocol: mmsg.NetworkOrder(unix.ETH_P_ALL)})
}

// read returns the next frame of the tests' protocols.
func read(t *tap.Tap) (f tap.Frame, err error) {
	for deadline := time.Now().Add(patience); ; {
		if !t.Next(&f) {
			if time.Now().After(deadline) {
				return f, fmt.Errorf("no frame in %v", patience)
			}
			if err := t.Wait(time.Second); err != nil {
				return f, err
			}
			continue
		}
		if bytes.Contains(f.Bytes, []byte("test ")) {
			f.Bytes = bytes.Clone(f.Bytes)
			return f, nil
		}
	}
}

func TestFramesOfBothDirectionsComeInOrderWithTheirInterface(t *testing.T) {
	withSender(t, 1<<20, false, []string{"b", "a"}, func(heard *tap.Tap, s *sender) error {
		last := int64(0)
		for n := range 3000 { // fills several blocks and wraps around the ring
			sent := frame(fmt.Sprintf("test %d %s", n, strings.Repeat("x", n%1400)))
			if err := s.send(sent); err != nil {
				return err
			}
			if n%50 != 49 {
				continue
			}
			for at := n - 49; at <= n; at++ {
				for _, want := range []int{1, 0} { // the frame leaves a, and arrives at b
					f, err := read(heard)
					if err != nil {
						return err
					}
					text := fmt.Sprintf("test %d ", at)
					if f.Interface != want || !bytes.HasPrefix(f.Bytes[14:], []byte(text)) || f.Length != len(f.Bytes) || f.At < last {
						return fmt.Errorf("frame %d: %+v at %d, want %q at %d", at, f, f.Interface, text, want)
					}
					last = f.At
				}
			}
		}
		if age := time.Since(time.Unix(0, last)); age < 0 || age > patience {
			return fmt.Errorf("the last frame arrived %v late", age)
		}
		if dropped, err := heard.Dropped(); dropped != 0 || err != nil {
			return fmt.Errorf("%d frames were dropped: %w", dropped, err)
		}
		return heard.Check()
	})
}

func TestOtherInterfacesAreNotHeard(t *testing.T) {
	inside(t, func() error {
		heard, err := open(1<<20, false, "b")
		if err != nil {
			return err
		}
		defer heard.Close()
		for _, name := range []string{"lo", "a", "b"} {
			s, err := newSender(name)
			if err != nil {
				return err
			}
			defer unix.Close(s.fd)
			if err := s.send(frame("test from " + name)); err != nil {
				return err
			}
		}
		for _, want := range []string{"a", "b"} {
			if f, err := read(heard); err != nil || string(f.Bytes[14:]) != "test from "+want {
				return fmt.Errorf("%q, want a frame from %s: %w", f.Bytes, want, err)
			}
		}
		return nil
	})
}

func TestLoopbackGivesAFrameOnce(t *testing.T) {
	inside(t, func() error {
		heard, err := open(1<<20, false, "lo")
		if err != nil {
			return err
		}
		defer heard.Close()
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		defer c.Close()
		for n := range 100 {
			if _, err := c.WriteTo(fmt.Appendf(nil, "test %d", n), c.LocalAddr()); err != nil {
				return err
			}
		}
		for n := range 100 {
			f, err := read(heard)
			if want := fmt.Appendf(nil, "test %d", n); err != nil || !bytes.HasSuffix(f.Bytes, want) {
				return fmt.Errorf("%q, want %q: %w", f.Bytes, want, err)
			}
		}
		return nil
	})
}

func TestVLANTagsAreKept(t *testing.T) {
	withSender(t, 1<<20, true, []string{"b"}, func(heard *tap.Tap, s *sender) error {
		plain := frame("test of a tag")
		sent := append(append(bytes.Clone(plain[:12]), 0x81, 0, 0x60, 42), plain[12:]...)
		if err := s.send(sent); err != nil {
			return err
		}
		f, err := read(heard)
		if err != nil {
			return err
		}
		if !bytes.Equal(f.Bytes, sent) || f.Length != len(sent) {
			return fmt.Errorf("% x of %d bytes, want % x", f.Bytes, f.Length, sent)
		}
		return nil
	})
}

// TestDropsAreCounted checks that every frame is either received or counted as dropped.
func TestDropsAreCounted(t *testing.T) {
	withSender(t, 0, false, []string{"b"}, func(heard *tap.Tap, s *sender) error {
		const sent = 1000 // 1.4 MB; 256 KiB fit
		for n := range sent {
			if err := s.send(frame(fmt.Sprintf("test %d %s", n, strings.Repeat("x", 1400)))); err != nil {
				return err
			}
		}
		var got, dropped uint64
		for deadline := time.Now().Add(patience); got+dropped < sent && time.Now().Before(deadline); {
			for f := (tap.Frame{}); heard.Next(&f); {
				if bytes.Contains(f.Bytes, []byte("test ")) {
					got++
				}
			}
			lost, err := heard.Dropped()
			if err != nil {
				return err
			}
			dropped += lost
		}
		// The kernel's own frames, such as router solicitations, may be dropped too.
		if got == 0 || dropped < sent/2 || got+dropped < sent || got+dropped > sent+20 {
			return fmt.Errorf("%d frames received, %d dropped, want %d together", got, dropped, sent)
		}
		return nil
	})
}

// TestPromiscuityEndsWithTheTap checks that an interface is promiscuous only if the Tap asks for
// it, and only while the Tap is open.
func TestPromiscuityEndsWithTheTap(t *testing.T) {
	inside(t, func() error {
		check := func(when string, want int) error {
			link, err := netlink.LinkByName("b")
			if err == nil && link.Attrs().Promisc != want {
				err = fmt.Errorf("%s: promiscuity %d, want %d", when, link.Attrs().Promisc, want)
			}
			return err
		}
		for _, promiscuous := range []bool{false, true} {
			heard, err := open(0, promiscuous, "b")
			if err != nil {
				return err
			}
			want := 0
			if promiscuous {
				want = 1
			}
			if err := check("open", want); err != nil {
				return err
			}
			if err := heard.Close(); err != nil {
				return err
			}
			if err := check("closed", 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestWrongInterfacesAreRefused(t *testing.T) {
	inside(t, func() error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		for given, want := range map[string]string{
			"eth9": "eth9: no such interface: there are lo, ",
			"a,a":  "a: named twice",
			"lo":   "lo: the interface is down: set it up: ip link set lo up",
		} {
			_, err := tap.Find(strings.Split(given, ","))
			if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%s: %w, want %q", given, err, want)
			}
		}
		found, err := tap.Find([]string{tap.Any})
		if err != nil || len(found) != 2 || found[0].Name+found[1].Name != "ab" && found[0].Name+found[1].Name != "ba" {
			return fmt.Errorf("any: %v, want a and b: %w", found, err)
		}
		return nil
	})
}

func TestRemovedInterfaceIsNoticed(t *testing.T) {
	inside(t, func() error {
		heard, err := open(0, false, "b", "lo")
		if err != nil {
			return err
		}
		defer heard.Close()
		if err := heard.Check(); err != nil {
			return err
		}
		link, err := netlink.LinkByName("a")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil { // this also removes b
			return err
		}
		if err := heard.Check(); err == nil || err.Error() != "interface b no longer exists" {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// TestAnyGoesOnWithoutAnInterface removes interfaces that nobody has named, as the end of a container does.
func TestAnyGoesOnWithoutAnInterface(t *testing.T) {
	inside(t, func() error {
		heard, err := open(0, false, tap.Any)
		if err != nil {
			return err
		}
		defer heard.Close()
		link, err := netlink.LinkByName("a")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil { // this also removes b
			return err
		}
		if err := heard.Check(); err != nil {
			return err
		}
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.WriteTo([]byte("test of lo"), c.LocalAddr()); err != nil {
			return err
		}
		f, err := read(heard)
		if err != nil || !bytes.HasSuffix(f.Bytes, []byte("test of lo")) {
			return fmt.Errorf("%q: %w", f.Bytes, err)
		}
		return heard.Check()
	})
}

// TestAnyLeavesOutLaterInterfaces makes a link during the capture. The filter lets its frames pass.
func TestAnyLeavesOutLaterInterfaces(t *testing.T) {
	inside(t, func() error {
		heard, err := open(1<<20, false, tap.Any)
		if err != nil {
			return err
		}
		defer heard.Close()
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "c"}, PeerName: "d"}); err != nil {
			return err
		}
		for _, name := range []string{"d", "c"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		for _, name := range []string{"c", "a"} {
			s, err := newSender(name)
			if err != nil {
				return err
			}
			defer unix.Close(s.fd)
			if err := s.send(frame("test from " + name)); err != nil {
				return err
			}
		}
		for range 2 { // the frame leaves a, and arrives at b
			if f, err := read(heard); err != nil || string(f.Bytes[14:]) != "test from a" {
				return fmt.Errorf("%q, want the frame from a: %w", f.Bytes, err)
			}
		}
		return nil
	})
}

func TestErrorWithoutPrivilegeHasAdvice(t *testing.T) {
	inside(t, func() error { // on a separate thread
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var own [2]unix.CapUserData
		if err := unix.Capget(&header, &own[0]); err != nil {
			return err
		}
		without := own
		without[0].Effective &^= 1 << unix.CAP_NET_RAW
		if err := unix.Capset(&header, &without[0]); err != nil {
			return err
		}
		_, err := open(0, false, "b")
		if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "setcap cap_net_raw+ep") {
			return fmt.Errorf("got %w", err)
		}
		return unix.Capset(&header, &own[0])
	})
}
