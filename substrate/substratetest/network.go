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

// attach creates instances on one network. It also returns a network namespace for clients on that
// network. client is empty if instances share the host's network.
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

// ask connects from the client's namespace and returns the line that the server sends.
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

// testReadiness checks that a server becomes ready by its port, its health endpoint, a check
// command and its log, and that a stopped server is not ready. The substrate itself must not
// answer for the server.
func testReadiness(s *suite) {
	client, all := s.attach("sprout-1")
	in := all[0]
	command := s.command("late", gatePort, servePort)
	command.Env = append(command.Env, "ADDRESS="+in.address)
	if _, err := in.Start(s.ctx, command); err != nil {
		s.Fatal(err)
	}
	s.logged(in.log, "running")
	// expect checks the server's answers. An empty want means that nothing listens at its port.
	expect := func(want string) {
		s.Helper()
		if got, err := s.ask(client, in.address, servePort); got != want || (err != nil) != (want == "") {
			s.Errorf("the port answers %q, %v; want %q", got, err, want)
		}
		if !s.single() {
			check := s.command("probe", net.JoinHostPort(in.address, servePort))
			if err := in.Run(s.ctx, check); (err == nil) != (want == "ready") {
				s.Errorf("the check command on a server in state %q: %v", want, err)
			}
		}
		if text, err := os.ReadFile(in.log); err != nil || want != "ready" && strings.Contains(string(text), "ready") {
			s.Errorf("the log of a server in state %q: %q, %v", want, text, err)
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
		s.Errorf("a stopped server answers %q", got)
	}
}

// testPeers checks that every instance knows all addresses, reaches its peers at them, and keeps
// its address after a restart.
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
	s.logged(again.log, "reached another at ") // peer asks in order, so it has reached the other instance, too
	if got, err := s.ask(client, again.address, servePort); err != nil || got != "another" {
		s.Errorf("a restarted instance answers %q, %v at its address", got, err)
	}
}
