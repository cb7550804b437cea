package gtpc_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine"
	director "vitrine/director/gtpc"
	"vitrine/director/overload"
	"vitrine/wire/gtpc"
)

func TestAnswersItself(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	peer := s.peer()
	peer.send(gtpc.AppendEchoRequest(nil, 0x123456, 1))
	m := peer.receive()
	if v, _ := m.Find(gtpc.Recovery, 0); m.Type != gtpc.EchoResponse || m.Sequence != 0x123456 || len(v) != 1 || v[0] != 9 {
		t.Errorf("%+v, %v", m, v)
	}
	peer.send([]byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0})
	if m := peer.receive(); m.Type != gtpc.VersionNotSupported || m.Sequence != 0x1234 || m.HasTEID {
		t.Errorf("%+v", m)
	}
	// The director drops these messages.
	for _, b := range [][]byte{
		{}, {0x48}, {0x48, 32, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0},
		{0x2e, 1, 0, 0, 0x12, 0x34, 0, 0},                                      // GTP'
		{0x32, 3, 0, 0, 0, 0, 0, 0},                                            // GTPv1's Version Not Supported
		gtpc.AppendVersionNotSupported(nil, 1),                                 //
		gtpc.AppendEchoResponse(nil, 1, 1),                                     //
		plain(gtpc.CreateSessionResponse, 1, 1),                                // to no request
		{0x58, 33, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0},                               // carries nothing
		append(createSession("1", 1, peer.address, 1)[:20:20], 1, 255, 255, 0), // an element too long
	} {
		peer.send(b)
	}
	peer.quiet()
	got := s.counters()
	if got.Echoes != 2 || got.VersionsRefused != 1 || got.Malformed+got.Stray != 10 || got.Forwarded != 0 {
		t.Errorf("%+v", got)
	}
}

// TestOneRestartCounter checks that peers and instances see the same restart counter.
func TestOneRestartCounter(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	peer := s.peer()
	peer.send(createSession("001010000000001", 1, peer.address, 1000))
	at, request := s.whoGot("gateway")
	if v, _ := request.Find(gtpc.Recovery, 0); v[0] != 9 {
		t.Errorf("the instance received restart counter %d, want 9", v[0])
	}
	at.send(created(request, 5, s.address.Addr()))
	if v, _ := peer.receive().Find(gtpc.Recovery, 0); v[0] != 9 {
		t.Errorf("the peer received restart counter %d, want 9", v[0])
	}
}

// TestNobodyThere checks that the director itself answers, to the sender's TEID, if no instance is
// available.
func TestNobodyThere(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	peer := s.peer()
	s.change(func(in *vitrine.Instance) { in.State = vitrine.Down })
	peer.send(createSession("001010000000001", 5, peer.address, 1000))
	m := peer.receive()
	v, _ := m.Find(gtpc.Cause, 0)
	if cause, _ := gtpc.ParseCause(v); m.Type != gtpc.CreateSessionResponse || m.Sequence != 5 || m.TEID != 1000 || cause != gtpc.PeerNotResponding {
		t.Errorf("got %+v with cause %d", m, cause)
	}
	peer.send(plain(gtpc.ModifyBearerCommand, 7, 5|gtpc.CommandSequence)) // a command has no such response
	peer.quiet()
	if got := s.counters(); got.Rejected != 2 {
		t.Errorf("%+v", got)
	}
}

func TestPolicyErrors(t *testing.T) {
	types := []string{"a", "b"}
	for name, c := range map[string]struct {
		options []director.TypeOption
		rules   []director.Rule
	}{
		"no such type":         {nil, []director.Rule{{Type: "c"}}},
		"no such message":      {nil, []director.Rule{{Message: "create", Type: "a"}}},
		"no such interface":    {nil, []director.Rule{{Interface: "s1", Type: "a"}}},
		"relocation of others": {nil, []director.Rule{{Message: "modify-bearer", Relocation: true, Type: "a"}}},
		"option of no type":    {[]director.TypeOption{{Type: "c"}}, nil},
		"number too high":      {[]director.TypeOption{{Type: "a", Number: 8}}, nil},
		"number twice":         {[]director.TypeOption{{Type: "a", Number: 1}, {Type: "b", Number: 1}}, nil},
	} {
		if _, err := director.NewPolicy(types, c.options, c.rules); err == nil {
			t.Errorf("%s: NewPolicy accepted the configuration", name)
		}
	}
	if _, ok := director.PrefixOf(1, director.MaxID+1); ok {
		t.Error("PrefixOf accepted an ID above the maximum")
	}
	p, _ := director.PrefixOf(director.MaxNumber, director.MaxID)
	if teid := p.SessionTEID(0xffff, 0xffffffff); teid != 0xffffffff {
		t.Errorf("got TEID %#x, want 0xffffffff", teid)
	}
	if n := p.Number(0xffffffff); n != gtpc.CommandSequence-1 {
		t.Errorf("got sequence number %#x, want the last one below the range of commands", n)
	}
}

// TestExplainClosedGate explains a request that the gate of its type refuses.
func TestExplainClosedGate(t *testing.T) {
	gate := overload.New(overload.Config{Target: time.Second, Initial: 0.01, Min: 0.01, Burst: 1}, 0)
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.options[0].Gate = gate })
	peer := s.peer()
	request := createSession("001010000000001", 1, peer.address, 50)
	for _, want := range []string{"", "the gate of type gateway refuses it now"} {
		x, err := s.director.Explain(s.now(), s.meter.Worker(), peer.address, request)
		if err != nil || x.Refused != want || gate.Read().Refused != 0 {
			t.Errorf("got %+v, %v, want that it is refused because %q", x, err, want)
		}
		gate.Admit(s.now(), overload.Begins)
	}
}

// TestExplain checks that messages go to the destination that Explain returns.
func TestExplain(t *testing.T) {
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.each = 4; c.options[0].Number = 1 })
	peer := s.peer()
	explain := func(from netip.AddrPort, b []byte) director.Explanation {
		t.Helper()
		x, err := s.director.Explain(s.now(), s.meter.Worker(), from, b)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for i := range uint32(8) {
		b := createSession(fmt.Sprintf("00101%010d", i), i+1, peer.address, 50+i)
		x := explain(peer.address, b)
		if !x.Initial || x.Again || x.Rule != 0 || !x.Session || x.Instance == nil {
			t.Fatalf("%+v", x)
		}
		peer.send(b)
		n, request := s.whoGot("gateway")
		if x.Instance.Name != n.target.Name {
			t.Errorf("explained as %+v, but it went to %s", x, n.target.Name)
		}
		if x := explain(peer.address, b); !x.Again || x.Instance.Name != n.target.Name {
			t.Errorf("explained retransmission: got %+v", x)
		}
		teid := n.prefix().SessionTEID(uint16(i), i)
		answer := created(request, teid, s.address.Addr())
		if x := explain(n.address, answer); x.Initial || x.Instance != nil {
			t.Errorf("explained answer: got %+v", x)
		}
		n.send(answer)
		peer.receive()
		if x := explain(peer.address, plain(gtpc.ModifyBearerRequest, teid, 99)); x.Owner != n.target.ID || x.Instance.Name != n.target.Name || x.Key != uint64(i) {
			t.Errorf("explained later request: got %+v", x)
		}
		if x := explain(n.address, plain(gtpc.CreateBearerRequest, 50+i, 99)); x.Peer != peer.address {
			t.Errorf("explained request of the instance: got %+v", x)
		}
	}
	twice := gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 99)
	for range 2 {
		twice = gtpc.AppendFTEID(twice, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 99, V4: peer.address.Addr()})
	}
	if x := explain(peer.address, gtpc.End(twice, 0)); !strings.Contains(x.Refused, "not the only one") {
		t.Errorf("explained request with two F-TEIDs of its sender: got %+v", x)
	}
	if _, err := s.director.Explain(s.now(), s.meter.Worker(), peer.address, []byte("INVITE")); err == nil {
		t.Error("Explain accepted data that is not GTPv2-C")
	}
	if n := len(s.director.Steerings()); n != 2 {
		t.Errorf("got %d steerings for 2 workers, want 2", n)
	}
}

// TestOverloaded checks that a request that the gate refuses is answered. A retransmission of an
// admitted request must not need the gate again.
func TestOverloaded(t *testing.T) {
	gate := overload.New(overload.Config{Target: time.Second, Initial: 1e-3, Burst: 1}, 0)
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.options[0].Gate = gate })
	peer := s.peer()
	first := createSession("001010000000001", 1, peer.address, 1000)
	peer.send(first)
	s.whoGot("gateway")
	peer.send(createSession("001010000000002", 2, peer.address, 1001))
	m := peer.receive()
	v, _ := m.Find(gtpc.Cause, 0)
	if cause, _ := gtpc.ParseCause(v); m.Type != gtpc.CreateSessionResponse || m.TEID != 1001 || cause != gtpc.EntityCongestion {
		t.Errorf("got %+v with cause %d", m, cause)
	}
	peer.send(first)
	s.whoGot("gateway")
}

// TestCommandBitDoesNotPassTheGate checks that the command bit alone does not bypass the gate. A
// request must also have a type that commands trigger, and an earlier command.
func TestCommandBitDoesNotPassTheGate(t *testing.T) {
	gate := overload.New(overload.Config{Target: time.Second, Initial: 1e-3, Burst: 1}, 0)
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.options[0].Gate, c.options[0].Number = gate, 1 })
	peer := s.peer()
	const first = 1 | gtpc.CommandSequence
	peer.send(createSession("001010000000001", first, peer.address, 1000))
	at, m := s.whoGot("gateway")
	at.send(created(m, at.prefix().TEID|1, at.address.Addr()))
	if m := peer.receive(); m.Type != gtpc.CreateSessionResponse || m.Sequence != first {
		t.Errorf("the peer got %+v", m)
	}
	for i := range uint32(50) {
		peer.send(createSession("001010000000001", first+1+i, peer.address, 1001))
		m := peer.receive()
		v, _ := m.Find(gtpc.Cause, 0)
		if cause, _ := gtpc.ParseCause(v); m.Type != gtpc.CreateSessionResponse || cause != gtpc.EntityCongestion {
			t.Fatalf("got %+v with cause %d", m, cause)
		}
	}
	peer.send(plain(gtpc.CreateBearerRequest, at.prefix().TEID|1, first+100))
	m = peer.receive()
	v, _ := m.Find(gtpc.Cause, 0)
	if cause, _ := gtpc.ParseCause(v); m.Type != gtpc.CreateBearerResponse || cause != gtpc.EntityCongestion {
		t.Errorf("got %+v with cause %d", m, cause)
	}
}
