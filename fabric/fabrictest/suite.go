package fabrictest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"vitrine/fabric"
	"vitrine/internal/netns"
)

func testReach(s *suite) {
	instances := []instance{s.attach("bono-1"), s.attach("sprout-1"), s.attach("generator")}
	for _, transport := range []string{"tcp", "udp"} {
		for _, from := range instances {
			for _, to := range instances {
				s.reaches(from, to, transport)
			}
		}
	}
	for _, in := range instances {
		err := netns.Do(in.port.NetNS, func() error {
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

// testDistinct attaches from many goroutines at once.
func testDistinct(s *suite) {
	const many = 12
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
			instances[i] = instance{Endpoint: end, port: port}
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
	s.reaches(instances[0], instances[many-1], "tcp")
}

func testDetachAndAttach(s *suite) {
	stays := s.attach("bono-1")
	goes := s.attach("sprout-1")
	for range 3 {
		for range 2 { // detaching what is not attached is no error
			if err := s.h.Fabric.Detach(s.ctx, goes.port.Instance); err != nil {
				s.Fatalf("Detach: %v", err)
			}
		}
		again := s.attachTo(goes.port)
		if again.Addr == stays.Addr {
			s.Fatalf("an address that is in use was given out again: %s", again.Addr)
		}
		if again.Addr == goes.Addr {
			s.Errorf("the address %s was given out again while there were others", again.Addr)
		}
		goes = again
		s.reaches(stays, goes, "tcp")
		s.reaches(goes, stays, "udp")
	}
}

// testDetachGone detaches an instance whose place has been removed, as one does
// that was removed first.
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
	s.reaches(stays, s.attach("sprout-2"), "tcp")
}

func testRefusals(s *suite) {
	first := s.attach("bono-1")
	if _, err := s.h.Fabric.Attach(s.ctx, first.port); err == nil {
		s.Error("an instance was attached twice")
	}
	missing := fabric.Port{Instance: "sprout-1", NetNS: netns.Path("vt-no-such-namespace")}
	if _, err := s.h.Fabric.Attach(s.ctx, missing); err == nil {
		s.Error("an instance in no namespace was attached")
	}
	cancelled, cancel := context.WithCancel(s.ctx)
	cancel()
	port := fabric.Port{Instance: "sprout-1", NetNS: s.h.Place(s.T, "sprout-1")}
	if _, err := s.h.Fabric.Attach(cancelled, port); err == nil {
		s.Error("attached with a context that has ended")
	}
	// What failed left nothing that is in the way.
	s.reaches(first, s.attachTo(port), "tcp")
}

func testCloseLeavesNothing(s *suite) {
	first := s.attach("bono-1")
	s.attach("sprout-1")
	s.closed()
	if _, err := s.h.Fabric.Attach(s.ctx, first.port); err == nil {
		s.Error("a closed fabric attached an instance")
	}
	if err := s.h.Fabric.Detach(s.ctx, "bono-1"); err != nil {
		s.Errorf("Detach after Close: %v", err)
	}
}

// testTwoRuns: two runs at once, each with instances of the same names that
// serve on the same port, stay apart.
func testTwoRuns(s *suite) {
	other := begin(s.T, s.open, s.root)
	const port = 5060
	for _, transport := range []string{"tcp", "udp"} {
		for _, run := range []*suite{s, other} {
			name := "sprout-" + transport
			server := run.serve(run.attach(name), transport, run.h.Run.ID, port)
			client := run.attach("bono-" + transport)
			got, err := run.ask(client, transport, server)
			if want := run.h.Run.ID + " " + client.Addr.String(); err != nil || got != want {
				s.Errorf("run %s by %s: %q, %v; want %q", run.h.Run.ID, transport, got, err, want)
			}
		}
	}
}
