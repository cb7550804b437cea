package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/fabric"
	"vitrine/internal/netns"
)

func testReach(s *suite) {
	var instances []instance
	for _, name := range []string{"bono-1", "sprout-1", "generator"}[:s.atMost(3)] {
		instances = append(instances, s.attach(name))
	}
	for _, transport := range []string{"tcp", "udp"} {
		for _, from := range instances {
			for _, to := range instances {
				s.checkReaches(from, to, transport)
			}
		}
	}
	for _, in := range instances {
		err := netns.Do(in.place, func() error {
			link, err := net.InterfaceByName(in.Interface)
			if err != nil {
				return err
			}
			if link.Flags&net.FlagUp == 0 {
				return fmt.Errorf("%s is down", in.Interface)
			}
			return nil
		})
		if err != nil {
			s.Errorf("the interface of %s: %v", in.port.Instance, err)
		}
	}
}

// atMost returns n, or the fabric's limit if the limit is smaller.
func (s *suite) atMost(n int) int {
	if s.h.Limit > 0 {
		return min(n, s.h.Limit)
	}
	return n
}

// testDistinct attaches instances from many goroutines at once and checks that their addresses
// differ.
func testDistinct(s *suite) {
	many := s.atMost(12)
	ports := make([]fabric.Port, many)
	for i := range ports {
		name := fmt.Sprintf("sprout-%d", i+1)
		ports[i] = fabric.Port{Instance: name, NetNS: s.h.Place(s.T, name)}
	}
	instances := make([]instance, many)
	var wg sync.WaitGroup
	for i, port := range ports {
		wg.Go(func() {
			end, err := s.h.Fabric.Attach(s.ctx, port)
			if err != nil {
				s.Errorf("Attach: %v", err)
			}
			instances[i] = s.attached(port, end)
		})
	}
	wg.Wait()
	had := make(map[netip.Addr]string)
	for _, in := range instances {
		if other, has := had[in.Addr]; has {
			s.Errorf("%s and %s have the address %s", in.port.Instance, other, in.Addr)
		}
		had[in.Addr] = in.port.Instance
	}
	s.checkReaches(instances[0], instances[many-1], "tcp")
}

func testDetachAndAttach(s *suite) {
	stays := s.attach("bono-1")
	goes := s.attach("sprout-1")
	for range 3 {
		for range 2 { // Detach is idempotent
			if err := s.h.Fabric.Detach(s.ctx, goes.port.Instance); err != nil {
				s.Fatalf("Detach: %v", err)
			}
		}
		again := s.attachTo(goes.port)
		if again.Addr == stays.Addr {
			s.Fatalf("allocated the address %s, which is in use", again.Addr)
		}
		if again.Addr == goes.Addr {
			s.Errorf("allocated the address %s again although others are free", again.Addr)
		}
		goes = again
		s.checkReaches(stays, goes, "tcp")
		s.checkReaches(goes, stays, "udp")
	}
}

// testDetachGone detaches an instance whose namespace no longer exists.
func testDetachGone(s *suite) {
	stays := s.attach("bono-1")
	goes := s.attach("sprout-1")
	if goes.port.NetNS != "" {
		if err := netns.Delete(goes.port.NetNS[len(netns.Dir)+1:]); err != nil {
			s.Fatal(err)
		}
	}
	if err := s.h.Fabric.Detach(s.ctx, "sprout-1"); err != nil {
		s.Errorf("Detach: %v", err)
	}
	s.checkReaches(stays, s.attach("sprout-2"), "tcp")
}

func testRefusals(s *suite) {
	first := s.attach("bono-1")
	if _, err := s.h.Fabric.Attach(s.ctx, first.port); err == nil {
		s.Error("attached an instance twice")
	}
	missing := fabric.Port{Instance: "sprout-1", NetNS: netns.Path("vt-no-such-namespace")}
	if _, err := s.h.Fabric.Attach(s.ctx, missing); err == nil {
		s.Error("attached an instance without a namespace")
	}
	cancelled, cancel := context.WithCancel(s.ctx)
	cancel()
	port := fabric.Port{Instance: "sprout-1", NetNS: s.h.Place(s.T, "sprout-1")}
	if _, err := s.h.Fabric.Attach(cancelled, port); err == nil {
		s.Error("attached with a context that has ended")
	}
	// This call succeeds only if the failed calls left nothing behind.
	s.checkReaches(first, s.attachTo(port), "tcp")
}

func testCloseLeavesNothing(s *suite) {
	first := s.attach("bono-1")
	s.attach("sprout-1")
	s.closeAndCheck()
	if _, err := s.h.Fabric.Attach(s.ctx, first.port); err == nil {
		s.Error("a closed fabric attached an instance")
	}
	if err := s.h.Fabric.Detach(s.ctx, "bono-1"); err != nil {
		s.Errorf("Detach after Close: %v", err)
	}
}

// testTwoRuns checks that two runs do not affect each other, although their instances have the
// same names and serve on the same port at once.
func testTwoRuns(s *suite) {
	other := begin(s.T, s.open, s.root)
	const port = 5060
	all := []*suite{s, other}
	var servers, clients []instance
	for _, run := range all {
		servers, clients = append(servers, run.attach("sprout-1")), append(clients, run.attach("bono-1"))
	}
	for _, transport := range []string{"tcp", "udp"} {
		for i, run := range all {
			server := run.serve(servers[i], transport, run.h.Run.ID, port)
			got, err := run.ask(clients[i], transport, server)
			if want := run.h.Run.ID + " " + clients[i].Addr.String(); err != nil || got != want {
				s.Errorf("run %s by %s: %q, %v; want %q", run.h.Run.ID, transport, got, err, want)
			}
		}
	}
}

// testBroadcast checks that no run receives the broadcasts of another run.
func testBroadcast(s *suite) {
	if s.h.MTU == 0 || s.h.Unicast {
		s.Skip("it has no segment of its own, or one without broadcasts")
	}
	other := begin(s.T, s.open, s.root)
	all := []*suite{s, other}
	var heard []*net.UDPConn
	var speakers []instance
	for _, run := range all {
		listener := run.attach("sprout-1")
		conn, err := dialIn(listener, func() (net.Conn, error) { return net.ListenUDP("udp4", &net.UDPAddr{Port: 5060}) })
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = conn.Close() })
		heard = append(heard, conn.(*net.UDPConn))
		speakers = append(speakers, run.attach("bono-1"))
	}
	for i := range all { // a broadcast that leaks from run 0 arrives at run 1 before run 1's own
		words := "from " + all[i].h.Run.ID
		if err := broadcast(speakers[i], words); err != nil {
			s.Fatal(err)
		}
		b := make([]byte, 100)
		_ = heard[i].SetReadDeadline(time.Now().Add(5 * time.Second))
		n, _, err := heard[i].ReadFromUDPAddrPort(b)
		if got := string(b[:n]); err != nil || got != words {
			s.Errorf("run %s heard first %q, %v; want %q", all[i].h.Run.ID, got, err, words)
		}
	}
}

func dialIn(in instance, dial func() (net.Conn, error)) (conn net.Conn, err error) {
	err = netns.Do(in.place, func() error {
		conn, err = dial()
		return err
	})
	return conn, err
}

// broadcast sends words to all instances of the segment.
func broadcast(from instance, words string) error {
	conn, err := dialIn(from, func() (net.Conn, error) {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: from.Addr.AsSlice()}, Control: func(_, _ string, c syscall.RawConn) error {
			return option(c, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
		}}
		return dialer.Dial("udp4", "198.18.255.255:5060")
	})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(words))
	return errors.Join(err, conn.Close())
}

func option(c syscall.RawConn, level, name, value int) (err error) {
	controlled := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, value) })
	return errors.Join(err, controlled)
}

// headers is the size of the IPv4 and UDP headers, in bytes.
const headers = 20 + 8

// testMTU checks that a packet of the MTU passes whole in both directions, and
// that one byte more is refused.
func testMTU(s *suite) {
	if s.h.MTU == 0 {
		s.Skip("it has no MTU of its own")
	}
	from, to := s.attach("bono-1"), s.attach("sprout-1")
	server := s.serve(to, "udp", "sprout-1", 0)
	conn, err := dialIn(from, func() (net.Conn, error) {
		dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			return option(c, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO) // never fragment
		}}
		return dialer.Dial("udp4", server.String())
	})
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	largest := make([]byte, s.h.MTU-headers)
	if _, err := conn.Write(largest); err != nil {
		s.Fatalf("sending a packet of %d bytes: %v", s.h.MTU, err)
	}
	if n, err := conn.Read(make([]byte, s.h.MTU)); err != nil || n != len(largest) {
		s.Errorf("a packet of %d bytes returned with %d of %d bytes: %v", s.h.MTU, n, len(largest), err)
	}
	if _, err := conn.Write(append(largest, 0)); !errors.Is(err, unix.EMSGSIZE) {
		s.Errorf("sending a packet of %d bytes: %v; want it refused", s.h.MTU+1, err)
	}
}
