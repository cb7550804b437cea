// Package fabrictest is what every fabric must pass. A fabric's own test opens
// a Harness and calls Run.
package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"vitrine/fabric"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// A Harness is one fabric to try, fresh, with a run of its own.
type Harness struct {
	Fabric fabric.Fabric // closed by the suite
	Run    *runstate.Run // closed by whoever opened the harness, after the suite

	// Place makes what an instance of the run is attached by, removed with the
	// test: a network namespace's path, or nothing for the host's.
	Place func(t *testing.T, instance string) string
	// Left lists what of the fabric is on this host: of the run, and in the
	// places that the harness made.
	Left func() ([]string, error)
	// Limit is how many instances the fabric takes at once; 0: any number. At
	// least two.
	Limit int
	// MTU is that of the instances' interfaces, in bytes; 0: not tried.
	MTU int
	// Unicast says that broadcasts reach nobody.
	Unicast bool
	// Host is the namespace that stands for the host of instances that share its
	// network; empty: this process's.
	Host string
}

// Open makes a harness whose run is known in the folder root. It skips the
// test when the fabric is a *vitrine.Unsupported here.
type Open func(t *testing.T, root string) Harness

// Run runs the suite.
func Run(t *testing.T, open Open) {
	tests := []struct {
		name string
		test func(*suite)
	}{
		{"Reach", testReach},
		{"Distinct", testDistinct},
		{"DetachAndAttach", testDetachAndAttach},
		{"DetachGone", testDetachGone},
		{"Refusals", testRefusals},
		{"CloseLeavesNothing", testCloseLeavesNothing},
		{"TwoRuns", testTwoRuns},
		{"Broadcast", testBroadcast},
		{"MTU", testMTU},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir() + "/runs"
			tt.test(begin(t, open, root))
		})
	}
}

// suite is what one test of the suite needs.
type suite struct {
	*testing.T
	h    Harness
	ctx  context.Context
	open Open
	root string
}

// begin opens a harness. At the end of the test the fabric is closed, twice,
// and nothing may be left of it.
func begin(t *testing.T, open Open, root string) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s := &suite{T: t, h: open(t, root), ctx: ctx, open: open, root: root}
	t.Cleanup(s.closed)
	return s
}

// closed closes the fabric and sees that nothing is left.
func (s *suite) closed() {
	s.Helper()
	for range 2 {
		if err := s.h.Fabric.Close(context.WithoutCancel(s.ctx)); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	s.nothingLeft()
}

func (s *suite) nothingLeft() {
	s.Helper()
	left, err := s.h.Left()
	if err != nil {
		s.Errorf("looking for what is left: %v", err)
	}
	if len(left) > 0 {
		s.Errorf("left behind: %q", left)
	}
}

// An instance is one that was attached.
type instance struct {
	fabric.Endpoint
	port  fabric.Port
	place string // its network namespace, or what stands for the host's
}

// attach makes a place and attaches it.
func (s *suite) attach(name string) instance {
	s.Helper()
	return s.attachTo(fabric.Port{Instance: name, NetNS: s.h.Place(s.T, name)})
}

func (s *suite) attachTo(port fabric.Port) instance {
	s.Helper()
	end, err := s.h.Fabric.Attach(s.ctx, port)
	if err != nil {
		s.Fatalf("Attach: %v", err)
	}
	return s.attached(port, end)
}

func (s *suite) attached(port fabric.Port, end fabric.Endpoint) instance {
	in := instance{Endpoint: end, port: port, place: port.NetNS}
	if in.place == "" {
		in.place = s.h.Host
	}
	return in
}

// serve answers, in the instance's place and on its address, every connection
// or datagram with the instance's words and the address that it came from.
// Port 0 is any.
func (s *suite) serve(in instance, transport, words string, port uint16) netip.AddrPort {
	s.Helper()
	var at netip.AddrPort
	err := netns.Do(in.place, func() error {
		on := netip.AddrPortFrom(in.Addr, port)
		if transport == "udp" {
			conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(on))
			if err != nil {
				return err
			}
			s.Cleanup(func() { _ = conn.Close() })
			at = conn.LocalAddr().(*net.UDPAddr).AddrPort()
			go answerDatagrams(conn, words)
			return nil
		}
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(on))
		if err != nil {
			return err
		}
		s.Cleanup(func() { _ = listener.Close() })
		at = listener.Addr().(*net.TCPAddr).AddrPort()
		go answerConnections(listener, words)
		return nil
	})
	if err != nil {
		s.Fatalf("serving %s in %s: %v", transport, in.port.Instance, err)
	}
	return at
}

func answerDatagrams(conn *net.UDPConn, words string) {
	b := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		answer := []byte(words + " " + from.Addr().String())
		if n > len(answer) { // what is long is answered at the same length
			answer = append(answer, make([]byte, n-len(answer))...)
		}
		_, _ = conn.WriteToUDPAddrPort(answer, from)
	}
}

func answerConnections(listener *net.TCPListener, words string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		_, _ = io.WriteString(conn, words+" "+from.Addr().String())
		_ = conn.Close()
	}
}

// ask asks a server from the instance's place and address.
func (s *suite) ask(in instance, transport string, server netip.AddrPort) (answer string, err error) {
	err = netns.Do(in.place, func() error {
		var local net.Addr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(in.Addr, 0))
		if transport == "udp" {
			local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(in.Addr, 0))
		}
		dialer := net.Dialer{LocalAddr: local, Timeout: 5 * time.Second}
		conn, err := dialer.DialContext(s.ctx, transport, server.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if transport == "udp" {
			if _, err := conn.Write([]byte("?")); err != nil {
				return err
			}
		}
		b := make([]byte, 100)
		n, err := conn.Read(b)
		answer = string(b[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return answer, err
}

// reaches sees that one instance reaches another by its address, and is seen
// by its own.
func (s *suite) reaches(from, to instance, transport string) {
	s.Helper()
	server := s.serve(to, transport, to.port.Instance, 0)
	got, err := s.ask(from, transport, server)
	if want := fmt.Sprintf("%s %s", to.port.Instance, from.Addr); err != nil || got != want {
		s.Errorf("%s by %s to %s: %q, %v; want %q", from.port.Instance, transport, to.port.Instance, got, err, want)
	}
}
