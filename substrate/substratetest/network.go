package substratetest

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/loopback"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/substrate"
)

// Ports of the servers that the tests start.
const (
	gatePort  = "7001"
	servePort = "7002"
)

// A node is an instance on a network.
type node struct {
	substrate.Instance
	name    string
	address string
	log     string
}

// attach makes instances on one network, and returns a network namespace on it for clients.
// client is empty where instances share the host's network.
func (s *suite) attach(names ...string) (client string, all []node) {
	s.Helper()
	var on fabric.Fabric
	for _, name := range names {
		spec := s.spec(name)
		in := s.create(spec)
		if on == nil {
			on, client = s.network(in.NetNS() != "")
		}
		end, err := on.Attach(s.ctx, fabric.Port{Instance: name, NetNS: in.NetNS()})
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, node{in, name, end.Addr.String(), filepath.Join(spec.Dir, "log")})
	}
	return client, all
}

func (s *suite) network(namespaces bool) (on fabric.Fabric, client string) {
	s.Helper()
	if namespaces {
		made, err := bridge.New(bridge.Config{Run: s.h.Run})
		hosttest.Need(s, err)
		on, client = made, fabrictest.Place(s.T, s.h.Run.ID, "client-1")
	} else {
		on = loopback.New(loopback.Config{Run: s.h.Run})
	}
	hosttest.AtEnd(s, func() error { return on.Close(context.WithoutCancel(s.ctx)) })
	if _, err := on.Attach(s.ctx, fabric.Port{Instance: "client-1", NetNS: client}); err != nil {
		s.Fatal(err)
	}
	return on, client
}

// ask connects from the client and returns the line that the server sends.
func (s *suite) ask(client, address, port string) (string, error) {
	var conn net.Conn
	err := netns.Do(client, func() (err error) {
		conn, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(s.ctx, "tcp4", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// testReadiness: a running server is not ready until its port, its health, a check beside
// it and its log say so, and a stopped server is not ready. Nothing in the substrate
// answers in its place.
func testReadiness(s *suite) {
	client, all := s.attach("sprout-1")
	in := all[0]
	command := s.command("late", gatePort, servePort)
	command.Env = append(command.Env, "ADDRESS="+in.address)
	if _, err := in.Start(s.ctx, command); err != nil {
		s.Fatal(err)
	}
	s.logged(in.log, "running")
	// expect checks the server's visible state; empty: nothing listens at its port.
	expect := func(want string) {
		s.Helper()
		if got, err := s.ask(client, in.address, servePort); got != want || (err != nil) != (want == "") {
			s.Errorf("at the port: %q, %v; want %q", got, err, want)
		}
		if !s.single() {
			check := s.command("probe", net.JoinHostPort(in.address, servePort))
			if err := in.Run(s.ctx, check); (err == nil) != (want == "ready") {
				s.Errorf("the check beside a server that is %q: %v", want, err)
			}
		}
		if text, err := os.ReadFile(in.log); err != nil || want != "ready" && strings.Contains(string(text), "ready") {
			s.Errorf("the log of a server that is %q: %q, %v", want, text, err)
		}
	}
	expect("")
	for _, next := range []string{"busy", "ready"} {
		if _, err := s.ask(client, in.address, gatePort); err != nil {
			s.Fatalf("making it %s: %v", next, err)
		}
		expect(next)
	}
	s.logged(in.log, "ready")
	if err := in.Stop(s.ctx, 20*time.Second); err != nil {
		s.Fatal(err)
	}
	if got, err := s.ask(client, in.address, servePort); err == nil {
		s.Errorf("a stopped server says %q", got)
	}
}

// testPeers: every instance gets the addresses of all, reaches the others by them, and
// keeps its address when it starts again.
func testPeers(s *suite) {
	client, all := s.attach("sprout-1", "sprout-2")
	var addresses []string
	for _, in := range all {
		addresses = append(addresses, net.JoinHostPort(in.address, servePort))
	}
	start := func(in node, name string) {
		s.Helper()
		command := s.command("peer", name, servePort)
		command.Env = append(command.Env, "ADDRESS="+in.address, "PEERS="+strings.Join(addresses, ","))
		if _, err := in.Start(s.ctx, command); err != nil {
			s.Fatal(err)
		}
	}
	for _, in := range all {
		start(in, in.name)
	}
	for _, in := range all {
		for _, peer := range all {
			s.logged(in.log, "reached "+peer.name+" at "+net.JoinHostPort(peer.address, servePort)+"\n")
		}
	}
	again := all[1]
	if err := again.Stop(s.ctx, 20*time.Second); err != nil {
		s.Fatal(err)
	}
	start(again, "another")
	s.logged(again.log, "reached another at ") // and the other instance before it, because peer asks in turn
	if got, err := s.ask(client, again.address, servePort); err != nil || got != "another" {
		s.Errorf("at the address of one that was started again: %q, %v", got, err)
	}
}
