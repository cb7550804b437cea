// Package fabrictest is the conformance suite for fabrics. A fabric's own test passes Run a
// function that opens a Harness.
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

// A Harness is a new fabric to test, with a run of its own.
type Harness struct {
	Fabric fabric.Fabric // the suite closes it
	Run    *runstate.Run // Open's cleanup closes it after the suite

	// Place creates a network namespace for an instance of the run and returns its path. The
	// namespace is removed when the test ends. If instances share the host's network, Place
	// creates nothing and returns "".
	Place func(t *testing.T, instance string) string
	// Left lists the remains of the fabric on this host: objects of the run, and interfaces in the
	// places that the harness created.
	Left func() ([]string, error)
	// Limit is the largest number of instances of the fabric, at least two. 0 means no limit.
	Limit int
	// MTU is the MTU of the instances' interfaces, in bytes. 0 means that the
	// fabric has no segment of its own: the tests MTU and Broadcast are skipped.
	MTU int
	// Unicast is true if the fabric does not deliver broadcasts.
	Unicast bool
	// Host is the path of the network namespace that represents the host, for instances that share
	// the host's network. If empty, it is this process's namespace.
	Host string
}

// Open opens a harness whose run is registered in the folder root. It skips the test when this
// host does not support the fabric (*vitrine.Unsupported).
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

// suite is the state of one test of the suite.
type suite struct {
	*testing.T
	h    Harness
	ctx  context.Context
	open Open
	root string
}

// begin opens a harness. When the test ends, it closes the fabric and checks that the fabric left
// nothing.
func begin(t *testing.T, open Open, root string) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s := &suite{T: t, h: open(t, root), ctx: ctx, open: open, root: root}
	t.Cleanup(s.closeAndCheck)
	return s
}

// closeAndCheck closes the fabric and checks that it left nothing. It closes the fabric twice,
// because Close must be idempotent.
func (s *suite) closeAndCheck() {
	s.Helper()
	for range 2 {
		if err := s.h.Fabric.Close(context.WithoutCancel(s.ctx)); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	s.checkNothingLeft()
}

func (s *suite) checkNothingLeft() {
	s.Helper()
	left, err := s.h.Left()
	if err != nil {
		s.Errorf("list the remains: %v", err)
	}
	if len(left) > 0 {
		s.Errorf("left behind: %q", left)
	}
}

// An instance is an attached instance and its place.
type instance struct {
	fabric.Endpoint
	port  fabric.Port
	place string // its network namespace, or the host's
}

// attach creates a place for an instance and attaches the instance.
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

// serve answers each connection or datagram at the instance's address with words and the peer's
// address. It returns the address on which it listens. Port 0 means any port.
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
		if n > len(answer) { // pad the answer to the length of a long question
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

// ask sends a question from the instance's place and address to a server, and returns the answer.
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

// checkReaches checks that one instance reaches the address of another, and that the server sees
// the client's own address.
func (s *suite) checkReaches(from, to instance, transport string) {
	s.Helper()
	server := s.serve(to, transport, to.port.Instance, 0)
	got, err := s.ask(from, transport, server)
	if want := fmt.Sprintf("%s %s", to.port.Instance, from.Addr); err != nil || got != want {
		s.Errorf("%s asks over %s %s: %q, %v; want %q", from.port.Instance, transport, to.port.Instance, got, err, want)
	}
}

// An Ended is a fabric that claims that one of its processes has ended.
type Ended struct {
	fabric.Fabric
	Err error // what Ended returns
}

// Ended returns the error.
func (e Ended) Ended() error { return e.Err }
