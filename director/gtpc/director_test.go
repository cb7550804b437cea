package gtpc_test

import (
	"fmt"
	"net/netip"
	"testing"

	"vitrine"
	director "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
)

// attach creates a session for an IMSI: the peer's TEID is mmeTEID; the
// instance's is what teid says. It returns the instance and its TEID.
func attach(t *testing.T, s *stage, peer *node, imsi string, sequence, mmeTEID uint32, teid func(*node) uint32) (*node, uint32) {
	t.Helper()
	peer.send(createSession(imsi, sequence, peer.address, mmeTEID))
	n, request := s.whoGot(s.types[0])
	given := teid(n)
	n.send(created(request, given, s.address.Addr()))
	response := peer.receive()
	if response.Type != gtpc.CreateSessionResponse || response.Sequence != sequence || response.TEID != mmeTEID {
		t.Fatalf("the peer got %v, sequence %#x, TEID %#x", response.Type, response.Sequence, response.TEID)
	}
	return n, given
}

// How functions give out TEIDs: by their prefix, or as they like.
func ways() map[string]struct {
	option option
	teid   func(imsi string, serial uint32) func(*node) uint32
} {
	return map[string]struct {
		option option
		teid   func(imsi string, serial uint32) func(*node) uint32
	}{
		"prefix": {func(c *stageConfig) { c.options[0].Number = 1 }, func(imsi string, serial uint32) func(*node) uint32 {
			return func(n *node) uint32 { return n.prefix().SessionTEID(director.SessionKey([]byte(imsi)), serial) }
		}},
		"learned": {func(*stageConfig) {}, func(_ string, serial uint32) func(*node) uint32 {
			return func(*node) uint32 { return 0x90000000 + serial*0x10001 }
		}},
	}
}

// A session stays at its instance while others are added, weights change, and
// the instance drains; new sessions do not go to one that drains.
func TestSessionsStay(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"}, way.option)
			peer := s.peer()
			type session struct {
				at   *node
				teid uint32
			}
			var sessions []session
			count := map[*node]int{}
			for i := range uint32(40) {
				imsi := fmt.Sprintf("00101%010d", i)
				at, teid := attach(t, s, peer, imsi, i+1, 1000+i, way.teid(imsi, i))
				sessions = append(sessions, session{at, teid})
				count[at]++
			}
			if len(count) != 2 {
				t.Fatal("all 40 sessions went to one instance")
			}
			drained := s.nodes["gateway-1"]
			check := func(when string, base uint32) {
				t.Helper()
				for i, x := range sessions {
					peer.send(plain(gtpc.ModifyBearerRequest, x.teid, base+uint32(i)))
					m := x.at.receive()
					if m.Type != gtpc.ModifyBearerRequest || m.TEID != x.teid {
						t.Fatalf("%s: session %d: %+v", when, i, m)
					}
					x.at.send(answered(m, 1000+uint32(i)))
					if r := peer.receive(); r.Sequence != base+uint32(i) || r.Type != gtpc.ModifyBearerResponse {
						t.Fatalf("%s: the peer got %+v", when, r)
					}
				}
			}
			check("at first", 1000)
			s.change(func(in *vitrine.Instance) {
				if in.Name == "gateway-2" {
					in.Weight = 50
				}
			})
			check("after a change of weights", 2000)
			s.change(func(in *vitrine.Instance) {
				if in.Name == "gateway-1" {
					in.State = vitrine.Draining
				}
			})
			check("while one drains", 3000)
			for i := range uint32(20) {
				imsi := fmt.Sprintf("00102%010d", i)
				if at, _ := attach(t, s, peer, imsi, 4000+i, 5000+i, way.teid(imsi, 500+i)); at == drained {
					t.Fatal("a new session went to an instance that drains")
				}
			}
			learned := s.director.Totals(s.now()).Sessions
			if name == "prefix" && learned != 0 || name == "learned" && learned != 60 {
				t.Errorf("%d TEIDs were learned", learned)
			}
		})
	}
}

// With prefixes, a director that knows nothing sends a session to its instance.
func TestPrefixNeedsNoMemory(t *testing.T) {
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.options[0].Number = 1; c.each = 5 })
	peer := s.peer()
	for name, n := range s.nodes {
		for i := range uint32(10) {
			peer.send(plain(gtpc.ModifyBearerRequest, n.prefix().SessionTEID(uint16(i*997), i), i+1+uint32(n.target.ID)*100))
			if m := n.receive(); m.Type != gtpc.ModifyBearerRequest {
				t.Fatalf("%s got %v", name, m.Type)
			}
		}
	}
	if got := s.director.Totals(s.now()); got.UnknownTEID != 0 || got.Sessions != 0 {
		t.Errorf("%+v", got)
	}
}

// Messages go by their type first, then by the session's key: the instance of
// another type is the same one for all messages of a session, whichever
// instance its attach was on.
func TestTypesOfTheTable(t *testing.T) {
	types := []string{"ATTACH-DETACH", "HANDOVER-SR", "BEARER-CRT"}
	for _, numbers := range []uint8{1, 0} {
		s := newStage(t, types, func(c *stageConfig) {
			c.rules = director.DefaultRules(types[0], types[1], types[2])
			for i := range c.options {
				c.options[i].Number = numbers * uint8(i+1)
			}
			c.each = 3
		})
		peer := s.peer()
		handovers := map[*node]bool{}
		for i := range uint32(12) {
			imsi := fmt.Sprintf("00101%010d", i*7919)
			_, teid := attach(t, s, peer, imsi, i+1, 1000+i, func(n *node) uint32 {
				if numbers == 0 {
					return 0x80000000 + i
				}
				return n.prefix().SessionTEID(director.SessionKey([]byte(imsi)), i)
			})
			var at *node
			for k, kind := range []gtpc.Type{gtpc.ModifyBearerRequest, gtpc.ReleaseAccessBearersRequest} {
				peer.send(plain(kind, teid, 10_000+i*10+uint32(k)))
				n, m := s.whoGot("HANDOVER-SR")
				if m.Type != kind || at != nil && at != n {
					t.Fatalf("session %d: %v went to %s", i, m.Type, n.target.Name)
				}
				at = n
			}
			handovers[at] = true
			peer.send(plain(gtpc.BearerResourceCommand, teid, 20_000+i|gtpc.CommandSequence))
			if _, m := s.whoGot("BEARER-CRT"); m.Type != gtpc.BearerResourceCommand || !m.IsCommand() {
				t.Fatalf("%+v", m)
			}
			peer.send(plain(gtpc.DeleteSessionRequest, teid, 30_000+i))
			s.whoGot("ATTACH-DETACH")
		}
		if len(handovers) < 2 {
			t.Error("all sessions were handed over on one instance")
		}
		// An attach that brings the P-GW's TEID moves a session here.
		b := gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 99_999)
		b = gtpc.AppendDigits(b, gtpc.IMSI, "001010000000001")
		b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 5, V4: peer.address.Addr()})
		b = gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: 8, V4: peer.address.Addr()})
		peer.send(gtpc.End(b, 0))
		s.whoGot("HANDOVER-SR")
	}
}

// Peers count as they like: what has the same number is told apart, a
// retransmission is seen as one, and each answer finds its peer.
func TestSequenceNumbersPerPeer(t *testing.T) {
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.each = 1 })
	n := s.nodes["gateway-1"]
	one, two := s.peer(), s.peer()
	one.send(createSession("001010000000001", 7, one.address, 11))
	first := n.receive()
	two.send(createSession("001010000000002", 7, two.address, 12))
	second := n.receive()
	if first.Sequence == second.Sequence || first.IsCommand() || second.IsCommand() {
		t.Fatalf("sequence numbers %#x and %#x", first.Sequence, second.Sequence)
	}
	one.send(createSession("001010000000001", 7, one.address, 11))
	if again := n.receive(); again.Sequence != first.Sequence {
		t.Errorf("a retransmission has the number %#x, not %#x", again.Sequence, first.Sequence)
	}
	n.send(created(second, 22, n.address.Addr()))
	n.send(created(first, 21, n.address.Addr()))
	n.send(created(first, 21, n.address.Addr())) // the answer to the retransmission
	if m := two.receive(); m.Sequence != 7 || m.TEID != 12 {
		t.Errorf("the second peer got %+v", m)
	}
	for range 2 {
		if m := one.receive(); m.Sequence != 7 || m.TEID != 11 {
			t.Errorf("the first peer got %+v", m)
		}
	}
	// An answer from who was not asked goes nowhere.
	stranger := s.peer()
	stranger.send(created(first, 21, n.address.Addr()))
	stranger.quiet()
	one.quiet()
	if got := s.director.Totals(s.now()); got.Retransmitted != 1 || got.Stray != 1 {
		t.Errorf("%+v", got)
	}
	for _, in := range s.meter.Instances() {
		if in.Begun != 2 || in.Ended["succeeded"] != 2 || in.DialogsBegun != 2 || in.DialogsEnded != 0 || in.InFlight != 0 || in.Messages != 3 {
			t.Errorf("metered: %+v", in)
		}
	}
}

// What an instance begins goes to the peer that gave it the TEID.
func TestInstanceBegins(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"}, way.option)
			peers := []*node{s.peer(), s.peer()}
			const mmeTEID = 1000 // both gave the same
			for i, peer := range peers {
				imsi := fmt.Sprintf("00101%010d", i)
				at, _ := attach(t, s, peer, imsi, 1, mmeTEID+uint32(i), way.teid(imsi, uint32(i)))
				sequence := uint32(3)
				if name == "prefix" {
					sequence = at.prefix().Number(3)
				}
				at.send(plain(gtpc.CreateBearerRequest, mmeTEID+uint32(i), sequence))
				m := peer.receive()
				if m.Type != gtpc.CreateBearerRequest || m.TEID != mmeTEID+uint32(i) {
					t.Fatalf("the peer got %+v", m)
				}
				if name == "prefix" && m.Sequence != sequence {
					t.Errorf("its sequence number became %#x", m.Sequence)
				}
				peer.send(answered(m, 0))
				if r := at.receive(); r.Type != gtpc.CreateBearerResponse || r.Sequence != sequence {
					t.Errorf("the instance got %+v", r)
				}
			}
		})
	}
}

// A command, the request that it triggers, and the answer to that have one
// sequence number on each side.
func TestCommands(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"}, way.option)
			peer := s.peer()
			at, teid := attach(t, s, peer, "001010000000001", 1, 1000, way.teid("001010000000001", 1))
			const sequence = 5 | gtpc.CommandSequence
			peer.send(plain(gtpc.ModifyBearerCommand, teid, sequence))
			command := at.receive()
			if command.Type != gtpc.ModifyBearerCommand || !command.IsCommand() {
				t.Fatalf("%+v", command)
			}
			at.send(plain(gtpc.UpdateBearerRequest, 1000, command.Sequence))
			update := peer.receive()
			if update.Type != gtpc.UpdateBearerRequest || update.Sequence != sequence {
				t.Fatalf("%+v", update)
			}
			peer.send(answered(update, teid))
			if m := at.receive(); m.Type != gtpc.UpdateBearerResponse || m.Sequence != command.Sequence {
				t.Fatalf("%+v", m)
			}
			peer.send(plain(gtpc.DeleteBearerCommand, teid, sequence+1))
			command = at.receive()
			at.send(plain(gtpc.DeleteBearerFailure, 1000, command.Sequence))
			if m := peer.receive(); m.Type != gtpc.DeleteBearerFailure || m.Sequence != sequence+1 {
				t.Fatalf("%+v", m)
			}

			// And one that the instance sends.
			own := uint32(6 | gtpc.CommandSequence)
			if name == "prefix" {
				own = at.prefix().Number(6) | gtpc.CommandSequence
			}
			at.send(plain(gtpc.BearerResourceCommand, 1000, own))
			command = peer.receive()
			peer.send(plain(gtpc.UpdateBearerRequest, teid, command.Sequence))
			update = at.receive()
			if update.Type != gtpc.UpdateBearerRequest || update.Sequence != own {
				t.Fatalf("the instance got %+v", update)
			}
			at.send(answered(update, 1000))
			if m := peer.receive(); m.Type != gtpc.UpdateBearerResponse || m.Sequence != command.Sequence {
				t.Fatalf("%+v", m)
			}
		})
	}
}

// Piggybacked messages stay together, each with its own sequence number, and
// are answered each for itself.
func TestPiggybacked(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"}, way.option)
			peer := s.peer()
			peer.send(createSession("001010000000001", 1, peer.address, 1000))
			at, request := s.whoGot("gateway")
			teid := way.teid("001010000000001", 1)(at)
			own := uint32(1) // the same as the director's may be, on purpose
			if name == "prefix" {
				own = at.prefix().Number(1)
			}
			both := created(request, teid, s.address.Addr())
			gtpc.SetPiggyback(both, 0)
			at.send(append(both, plain(gtpc.CreateBearerRequest, 1000, own)...))
			first, rest := peer.receiveBoth()
			var second gtpc.Message
			if _, err := second.Parse(rest); err != nil || first.Type != gtpc.CreateSessionResponse || first.Sequence != 1 || second.Type != gtpc.CreateBearerRequest {
				t.Fatalf("%+v, %+v, %v", first, second, err)
			}
			both = answered(&second, teid)
			gtpc.SetPiggyback(both, 0)
			peer.send(append(both, plain(gtpc.ModifyBearerRequest, teid, 2)...))
			first, rest = at.receiveBoth()
			if first.Type != gtpc.CreateBearerResponse || first.Sequence != own {
				t.Fatalf("the instance got %+v", first)
			}
			if _, err := second.Parse(rest); err != nil || second.Type != gtpc.ModifyBearerRequest {
				t.Fatalf("%+v, %v", second, err)
			}
			at.send(answered(&second, 1000))
			if m := peer.receive(); m.Type != gtpc.ModifyBearerResponse || m.Sequence != 2 {
				t.Fatalf("%+v", m)
			}
		})
	}
}

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
	// None of these is answered, nor passed on.
	for _, b := range [][]byte{
		{}, {0x48}, {0x48, 32, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0},
		{0x2e, 1, 0, 0, 0x12, 0x34, 0, 0},                                      // GTP'
		{0x32, 3, 0, 0, 0, 0, 0, 0},                                            // GTPv1's Version Not Supported
		gtpc.AppendVersionNotSupported(nil, 1),                                 //
		gtpc.AppendEchoResponse(nil, 1, 1),                                     //
		plain(gtpc.CreateSessionResponse, 1, 1),                                // of nothing
		{0x58, 33, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0},                               // carries nothing
		append(createSession("1", 1, peer.address, 1)[:20:20], 1, 255, 255, 0), // an element too long
	} {
		peer.send(b)
	}
	peer.quiet()
	got := s.director.Totals(s.now())
	if got.Echoes != 2 || got.VersionsRefused != 1 || got.Malformed+got.Stray != 10 || got.Forwarded != 0 {
		t.Errorf("%+v", got)
	}
}

// Behind the director and before it, one restart counter is seen.
func TestOneRestartCounter(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	peer := s.peer()
	peer.send(createSession("001010000000001", 1, peer.address, 1000))
	at, request := s.whoGot("gateway")
	if v, _ := request.Find(gtpc.Recovery, 0); v[0] != 9 {
		t.Errorf("the instance is told %d", v[0])
	}
	at.send(created(request, 5, s.address.Addr()))
	if v, _ := peer.receive().Find(gtpc.Recovery, 0); v[0] != 9 {
		t.Errorf("the peer is told %d", v[0])
	}
}

// With no instance the director says so itself, to the TEID of who asks.
func TestNobodyThere(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	peer := s.peer()
	s.change(func(in *vitrine.Instance) { in.State = vitrine.Down })
	peer.send(createSession("001010000000001", 5, peer.address, 1000))
	m := peer.receive()
	v, _ := m.Find(gtpc.Cause, 0)
	if cause, _ := gtpc.ParseCause(v); m.Type != gtpc.CreateSessionResponse || m.Sequence != 5 || m.TEID != 1000 || cause != gtpc.NoResourcesAvailable {
		t.Errorf("%+v, cause %d", m, cause)
	}
	peer.send(plain(gtpc.ModifyBearerCommand, 7, 5|gtpc.CommandSequence)) // a command has no such answer
	peer.quiet()
	if got := s.director.Totals(s.now()); got.Rejected != 2 {
		t.Errorf("%+v", got)
	}
}

// A session whose instance is down goes on at another, and its retransmissions
// too.
func TestInstanceGone(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"}, way.option)
			peer := s.peer()
			at, teid := attach(t, s, peer, "001010000000001", 1, 1000, way.teid("001010000000001", 1))
			peer.send(plain(gtpc.ModifyBearerRequest, teid, 2))
			at.receive()
			s.change(func(in *vitrine.Instance) {
				if in.Name == at.target.Name {
					in.State = vitrine.Down
				}
			})
			peer.send(plain(gtpc.ModifyBearerRequest, teid, 2))
			other, m := s.whoGot("gateway")
			if other == at {
				t.Fatal("a message went to an instance that is down")
			}
			other.send(answered(m, 1000))
			if m := peer.receive(); m.Sequence != 2 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// An S-GW that is an instance speaks with a P-GW that is one, by interface.
func TestInstancesAmongThemselves(t *testing.T) {
	s := newStage(t, []string{"sgw", "pgw"}, func(c *stageConfig) {
		c.each = 1
		c.rules = []director.Rule{{Interface: "s5", Type: "pgw"}, {Type: "sgw"}}
	})
	sgw, pgw, mme := s.nodes["sgw-1"], s.nodes["pgw-1"], s.peer()
	mme.send(createSession("001010000000001", 1, mme.address, 1000))
	asked := sgw.receive()

	b := gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 70)
	b = gtpc.AppendDigits(b, gtpc.IMSI, "001010000000001")
	b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S5SGW, TEID: 2000, V4: s.address.Addr()})
	sgw.send(gtpc.End(b, 0))
	request := pgw.receive()
	if request.Type != gtpc.CreateSessionRequest {
		t.Fatalf("%+v", request)
	}
	b = gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, 2000, request.Sequence)
	b = gtpc.AppendFTEID(gtpc.AppendCause(b, gtpc.RequestAccepted), 1, gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: 3000, V4: s.address.Addr()})
	pgw.send(gtpc.End(b, 0))
	if m := sgw.receive(); m.Type != gtpc.CreateSessionResponse || m.Sequence != 70 {
		t.Fatalf("%+v", m)
	}
	sgw.send(created(asked, 1500, s.address.Addr()))
	mme.receive()

	sgw.send(plain(gtpc.DeleteSessionRequest, 3000, 71)) // to the P-GW, by its TEID
	if m := pgw.receive(); m.Type != gtpc.DeleteSessionRequest {
		t.Fatalf("%+v", m)
	}
	pgw.send(plain(gtpc.DeleteBearerRequest, 2000, 8)) // to the S-GW
	m := sgw.receive()
	if m.Type != gtpc.DeleteBearerRequest || m.TEID != 2000 {
		t.Fatalf("%+v", m)
	}
	sgw.send(plain(gtpc.DeleteBearerRequest, 1000, 72)) // and on to the MME
	m = mme.receive()
	mme.send(answered(m, 1500))
	if m := sgw.receive(); m.Type != gtpc.DeleteBearerResponse || m.Sequence != 72 {
		t.Fatalf("%+v", m)
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
			t.Errorf("%s: no error", name)
		}
	}
	if _, ok := director.PrefixOf(1, director.MaxID+1); ok {
		t.Error("an ID that is too high has a prefix")
	}
	p, _ := director.PrefixOf(director.MaxNumber, director.MaxID)
	if teid := p.SessionTEID(0xffff, 0xffffffff); teid != 0xffffffff {
		t.Errorf("TEID %#x", teid)
	}
	if n := p.Number(0xffffffff); n != gtpc.CommandSequence-1 {
		t.Errorf("sequence number %#x", n)
	}
}

// Explain says where a message goes, and it goes there.
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
			t.Errorf("%+v; it went to %s", x, n.target.Name)
		}
		if x := explain(peer.address, b); !x.Again || x.Instance.Name != n.target.Name {
			t.Errorf("a retransmission: %+v", x)
		}
		teid := n.prefix().SessionTEID(uint16(i), i)
		answer := created(request, teid, s.address.Addr())
		if x := explain(n.address, answer); x.Initial || x.Instance != nil {
			t.Errorf("the answer: %+v", x)
		}
		n.send(answer)
		peer.receive()
		if x := explain(peer.address, plain(gtpc.ModifyBearerRequest, teid, 99)); x.Owner != n.target.ID || x.Instance.Name != n.target.Name || x.Key != uint64(i) {
			t.Errorf("a later request: %+v", x)
		}
		if x := explain(n.address, plain(gtpc.CreateBearerRequest, 50+i, 99)); x.Peer != peer.address {
			t.Errorf("a request of the instance: %+v", x)
		}
	}
	if _, err := s.director.Explain(s.now(), s.meter.Worker(), peer.address, []byte("INVITE")); err == nil {
		t.Error("what is no GTPv2-C is explained")
	}
	if n := len(s.director.Memories()); n != 2 {
		t.Errorf("%d memories of 2 workers", n)
	}
}

// A restart that hands over loses nothing: neither learned TEIDs nor answers on
// their way. One that does not loses those, and only those.
func TestRestart(t *testing.T) {
	for name, way := range ways() {
		for _, carry := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, carried %v", name, carry), func(t *testing.T) {
				s := newStage(t, []string{"gateway"}, way.option)
				peer := s.peer()
				at, teid := attach(t, s, peer, "001010000000001", 1, 1000, way.teid("001010000000001", 1))
				peer.send(plain(gtpc.ModifyBearerRequest, teid, 2))
				request := at.receive()
				s.restart(carry)
				at.send(answered(request, 1000))
				if carry {
					if m := peer.receive(); m.Sequence != 2 || m.Type != gtpc.ModifyBearerResponse {
						t.Fatalf("the answer: %+v", m)
					}
				}
				peer.send(plain(gtpc.ModifyBearerRequest, teid, 2)) // the peer sends it again
				got, again := s.whoGot("gateway")
				if carry && again.Sequence != request.Sequence || !carry && again.Sequence == request.Sequence {
					t.Errorf("a retransmission has the number %#x, and had %#x", again.Sequence, request.Sequence)
				}
				known := carry || name == "prefix"
				if known && got != at {
					t.Errorf("the session of %s went on at %s", at.target.Name, got.target.Name)
				}
				got.send(answered(again, 1000))
				if m := peer.receive(); m.Sequence != 2 {
					t.Fatalf("%+v", m)
				}
				if n := s.director.Totals(s.now()); (n.UnknownTEID == 0) != known || n.Stray != map[bool]uint64{true: 0, false: 1}[carry] {
					t.Errorf("%+v", n)
				}
			})
		}
	}
}

// What an instance sends to a TEID that no peer gave it is not given to another
// instance.
func TestInstanceKnowsBetter(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	n := s.nodes["gateway-1"]
	n.send(plain(gtpc.CreateBearerRequest, 0xabcdef01, 1))
	n.quiet()
	s.nodes["gateway-2"].quiet()
	if got := s.director.Totals(s.now()); got.Unreachable != 1 || got.Forwarded != 0 {
		t.Errorf("%+v", got)
	}
}
