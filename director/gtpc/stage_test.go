package gtpc_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/directortest"
	director "vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A stage is a director that listens on loopback, with sockets for its instances and
// peers.
type stage struct {
	t         *testing.T
	types     []string
	numbers   map[string]uint8 // of the types
	epochs    *table.Epochs
	meter     *meter.Meter
	director  *director.Server
	config    director.Config
	stop      func()
	address   netip.AddrPort
	instances []vitrine.Instance
	nodes     map[string]*node // of the instances
	epoch     uint64
	start     time.Time
	peerPort  uint16
	peerCount byte
}

// A node is one UDP socket.
type node struct {
	t       *testing.T
	conn    *net.UDPConn
	address netip.AddrPort
	stage   *stage
	target  *table.Target // of an instance
}

type option func(*stageConfig)

type stageConfig struct {
	options []director.TypeOption
	rules   []director.Rule
	config  director.Config
	each    int
	firstID uint16
	weight  float64
	inside  netip.Addr // of the instances
}

// newStage starts a director with instances of each type. Their IDs count from 1.
func newStage(t *testing.T, types []string, options ...option) *stage {
	t.Helper()
	c := stageConfig{each: 2, weight: 1, firstID: 1, inside: netip.AddrFrom4([4]byte{127, 0, 0, 1}), config: director.Config{Workers: 2, Log: slog.New(slog.DiscardHandler), Counter: 9, Exchanges: 1024, Sessions: 1024, Keys: 1024}}
	for _, ty := range types {
		c.options = append(c.options, director.TypeOption{Type: ty, Sessions: true})
	}
	c.rules = []director.Rule{{Type: types[0]}}
	for _, o := range options {
		o(&c)
	}
	s := &stage{t: t, types: types, numbers: map[string]uint8{}, nodes: map[string]*node{}, start: time.Now()}
	for _, o := range c.options {
		s.numbers[o.Type] = o.Number
	}
	for _, name := range types {
		for i := range c.each {
			n := s.listen(netip.AddrPortFrom(c.inside, 0))
			in := vitrine.Instance{Name: fmt.Sprintf("%s-%d", name, i+1), Type: name, Address: n.address, Weight: c.weight, ID: c.firstID + uint16(i)}
			s.instances, s.nodes[in.Name] = append(s.instances, in), n
		}
	}
	first, err := table.New(1, types, s.instances)
	if err != nil {
		t.Fatal(err)
	}
	s.epoch = 1
	s.meter = meter.New(1024, 15*time.Second)
	s.epochs = table.NewEpochs(10*time.Second, 0, first, nil)
	s.start = s.start.Add(-time.Minute) // so that a table may be published at once
	s.register(first)

	probe := s.listen(netip.AddrPort{})
	s.peerPort = probe.address.Port()
	policy, err := director.NewPolicy(types, c.options, c.rules)
	if err != nil {
		t.Fatal(err)
	}
	c.config.Addresses = []netip.AddrPort{free(t, "127.0.0.1:0"), free(t, "[::1]:0")}
	c.config.Epochs, c.config.Meter, c.config.Policy, c.config.PeerPort, c.config.Now = s.epochs, s.meter, policy, s.peerPort, s.now
	if s.director, err = director.Listen(c.config); err != nil {
		t.Fatal(err)
	}
	s.address = s.director.Addresses()[0]
	s.config = c.config
	s.stop = directortest.Serve(t, s.director.Run, s.director.Close)
	return s
}

// restart replaces the director by a new one with the same sockets. With carry, the new director
// takes over the old one's memory.
func (s *stage) restart(carry bool) {
	s.t.Helper()
	files, err := s.director.Files()
	if err != nil {
		s.t.Fatal(err)
	}
	s.stop()
	old := s.director
	s.config.First += 1 << 20
	s.config.Inherited = files
	s.director, err = director.Listen(s.config)
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if carry {
		var memory bytes.Buffer
		if err := old.Carry(&memory); err != nil {
			s.t.Fatal(err)
		}
		if n, err := s.director.TakeOver(&memory, nil); err != nil || n == 0 || memory.Len() != 0 {
			s.t.Fatalf("took over %d entries, %d octets are left: %v", n, memory.Len(), err)
		}
	}
	s.stop = directortest.Serve(s.t, s.director.Run, s.director.Close)
}

func (s *stage) counters() director.Counters {
	s.t.Helper()
	got, err := s.director.Counters()
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func (s *stage) now() time.Duration { return time.Since(s.start) }

func (s *stage) register(of *table.Table) {
	s.t.Helper()
	if err := s.meter.Register(of); err != nil {
		s.t.Fatal(err)
	}
	for name, n := range s.nodes {
		if target := of.ByName(name); target != nil {
			n.target = target
		}
	}
}

// change changes the instances and publishes another epoch.
func (s *stage) change(change func(*vitrine.Instance)) {
	s.t.Helper()
	for i := range s.instances {
		change(&s.instances[i])
	}
	s.epoch++
	next, err := table.New(s.epoch, s.types, s.instances)
	if err != nil {
		s.t.Fatal(err)
	}
	s.register(next)
	for wait := s.epochs.Publish(s.now(), next, nil); wait > 0; wait = s.epochs.Publish(s.now(), next, nil) {
		<-time.After(wait)
	}
}

func (s *stage) listen(at netip.AddrPort) *node {
	s.t.Helper()
	if !at.IsValid() {
		at = netip.MustParseAddrPort("127.0.0.1:0")
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return &node{t: s.t, conn: conn, address: conn.LocalAddr().(*net.UDPAddr).AddrPort(), stage: s}
}

// peer adds a peer with its own address and the common port of peers.
func (s *stage) peer() *node {
	s.t.Helper()
	s.peerCount++
	return s.listen(netip.AddrPortFrom(loopback(200+s.peerCount), s.peerPort))
}

// loopback returns an address in this process's own part of loopback.
func loopback(host byte) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(100 + pid%100), byte(1 + pid/100%250), host})
}

// free returns an address with an unused port. It does not bind with SO_REUSEPORT: the kernel could
// then choose a port that other sockets of this user share.
func free(tb testing.TB, at string) netip.AddrPort {
	tb.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// director returns the director's address of the node's family.
func (n *node) director() netip.AddrPort {
	if n.address.Addr().Is6() {
		return n.stage.config.Addresses[1]
	}
	return n.stage.address
}

func (n *node) send(b []byte) {
	n.t.Helper()
	if _, err := n.conn.WriteToUDPAddrPort(b, n.director()); err != nil {
		n.t.Fatal(err)
	}
}

// receive reads one datagram, which must come from the director.
func (n *node) receive() *gtpc.Message {
	n.t.Helper()
	m, rest := n.receiveBoth()
	if len(rest) > 0 {
		n.t.Fatalf("%d octets follow the message %v", len(rest), m.Type)
	}
	return m
}

func (n *node) receiveBoth() (*gtpc.Message, []byte) {
	n.t.Helper()
	b := make([]byte, 4096)
	if err := n.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		n.t.Fatal(err)
	}
	k, from, err := n.conn.ReadFromUDPAddrPort(b)
	if err != nil {
		n.t.Fatalf("%v; %+v", err, n.stage.counters())
	}
	if from != n.director() {
		n.t.Fatalf("got a message from %v, want the director", from)
	}
	m := new(gtpc.Message)
	size, err := m.Parse(b[:k])
	if err != nil {
		n.t.Fatalf("%x: %v", b[:k], err)
	}
	return m, b[size:k]
}

// quiet fails the test if a message is waiting. It sends an echo first, so all messages sent
// earlier on the same path have arrived.
func (n *node) quiet() {
	n.t.Helper()
	n.send(gtpc.AppendEchoRequest(nil, 77, 1))
	if m := n.receive(); m.Type != gtpc.EchoResponse {
		n.t.Fatalf("got an unexpected %v", m.Type)
	}
}

func (n *node) prefix() director.Prefix {
	n.t.Helper()
	p, ok := director.PrefixOf(n.stage.numbers[n.target.TypeName()], n.target.ID)
	if !ok {
		n.t.Fatalf("%s has no prefix", n.target.Name)
	}
	return p
}

// whoGot returns the instance that received the next message, and that message.
func (s *stage) whoGot(typeName string) (*node, *gtpc.Message) {
	s.t.Helper()
	type got struct {
		n *node
		m *gtpc.Message
	}
	found := make(chan got, len(s.nodes))
	readers := 0
	stop := time.Now().Add(10 * time.Second)
	for _, n := range s.nodes { // for all nodes first, because the node that finds the message ends the others' waiting
		_ = n.conn.SetReadDeadline(stop)
	}
	for _, n := range s.nodes {
		if n.target.TypeName() != typeName {
			continue
		}
		readers++
		go func() {
			b := make([]byte, 4096)
			k, _, err := n.conn.ReadFromUDPAddrPort(b)
			if err != nil {
				found <- got{}
				return
			}
			m := new(gtpc.Message)
			if _, err := m.Parse(b[:k]); err != nil {
				found <- got{}
				return
			}
			for _, other := range s.nodes {
				if other != n && other.target.TypeName() == typeName {
					_ = other.conn.SetReadDeadline(time.Unix(1, 0))
				}
			}
			found <- got{n, m}
		}()
	}
	var one got
	for range readers {
		if g := <-found; g.n != nil {
			if one.n != nil {
				s.t.Fatalf("%s and %s both got the message", one.n.target.Name, g.n.target.Name)
			}
			one = g
		}
	}
	if one.n == nil {
		s.t.Fatalf("no instance of type %s got the message; %+v", typeName, s.counters())
	}
	return one.n, one.m
}

func createSession(imsi string, sequence uint32, sender netip.AddrPort, teid uint32) []byte {
	b := gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, sequence)
	b = gtpc.AppendDigits(b, gtpc.IMSI, imsi)
	b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: teid, V4: sender.Addr()})
	b = gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, V4: netip.AddrFrom4([4]byte{127, 0, 78, 1})})
	return gtpc.End(gtpc.AppendRecovery(b, 200), 0)
}

// created returns a Create Session Response with a TEID.
func created(request *gtpc.Message, teid uint32, address netip.Addr) []byte {
	v, _ := request.Find(gtpc.FTEID, 0)
	to, _ := gtpc.ParseFTEID(v)
	b := gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, to.TEID, request.Sequence)
	b = gtpc.AppendCause(b, gtpc.RequestAccepted)
	b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11SGW, TEID: teid, V4: address})
	return gtpc.End(gtpc.AppendRecovery(b, 201), 0)
}

func plain(kind gtpc.Type, teid, sequence uint32) []byte {
	return gtpc.End(gtpc.AppendElement(gtpc.AppendHeader(nil, kind, teid, sequence), gtpc.EBI, 0, 5), 0)
}

// answered returns a response that accepts a request.
func answered(request *gtpc.Message, teid uint32) []byte {
	kind, ok := request.Type.Response()
	if !ok {
		panic(request.Type.String() + " has no response")
	}
	return gtpc.End(gtpc.AppendCause(gtpc.AppendHeader(nil, kind, teid, request.Sequence), gtpc.RequestAccepted), 0)
}
