package gtpc_test

import (
	"fmt"
	"testing"

	"vitrine"
	director "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
)

// attach creates a session for an IMSI. mmeTEID is the peer's TEID, and teid chooses the instance's
// TEID. attach returns the instance and that TEID.
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

// ways returns the ways in which functions choose TEIDs: with their prefix, or freely.
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

// TestSessionsStay checks that a session stays at its instance while instances are added,
// weights change and the instance drains. New sessions avoid a draining instance.
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
						t.Fatalf("%s: session %d: got %+v", when, i, m)
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
					t.Fatal("a draining instance got a new session")
				}
			}
			learned := s.counters().Sessions
			if name == "prefix" && learned != 0 || name == "learned" && learned != 60 {
				t.Errorf("learned %d TEIDs", learned)
			}
		})
	}
}

// TestDeletedSessionLeavesTheOthersOfItsUE deletes one of two sessions that share a TEID, as those of
// a UE do (TS 29.274 clause 4.1). The other session must stay at its instance.
func TestDeletedSessionLeavesTheOthersOfItsUE(t *testing.T) {
	way := ways()["learned"]
	s := newStage(t, []string{"gateway"}, way.option)
	peer := s.peer()
	for i := range uint32(16) {
		imsi, sequence := fmt.Sprintf("00101%010d", i), 100*(i+1)
		at, teid := attach(t, s, peer, imsi, sequence, 1000+i, way.teid(imsi, i))
		b := gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, teid, sequence+1)
		b = gtpc.AppendDigits(b, gtpc.IMSI, imsi)
		b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1000 + i, V4: peer.address.Addr()})
		peer.send(gtpc.End(b, 0))
		at.send(created(at.receive(), teid, s.address.Addr()))
		peer.receive()
		for k, kind := range []gtpc.Type{gtpc.DeleteSessionRequest, gtpc.ModifyBearerRequest} {
			peer.send(plain(kind, teid, sequence+2+uint32(k)))
			got, m := s.whoGot("gateway")
			if got != at || m.Type != kind {
				t.Fatalf("UE %d: %s got %v, want %s to get %v", i, got.target.Name, m.Type, at.target.Name, kind)
			}
			at.send(answered(m, 1000+i))
			peer.receive()
		}
	}
	if n := s.counters(); n.UnknownTEID != 0 {
		t.Errorf("%+v", n)
	}
}

// TestDetachedUsersMakeRoom lets more UEs come and go than the tables have room for. A UE that stays must
// still reach its instance, and its instance must still reach it.
func TestDetachedUsersMakeRoom(t *testing.T) {
	const room = 8
	b := newBench(t, 0, room)
	at, known := b.attach(t, "001010000000001", 1, honest, 1, 0x90000001)
	for i := uint32(2); i <= 5*room; i++ {
		other, _ := b.attach(t, fmt.Sprintf("00101%010d", i), 2*i, honest, i, 0x90000000+i)
		sent, ok := b.deliver(t, plain(gtpc.DeleteSessionRequest, 0x90000000+i, 2*i+1), honest)
		if !ok {
			t.Fatalf("UE %d: %+v", i, b.counters(t))
		}
		if _, ok := b.deliver(t, answered(&sent, i), other); !ok {
			t.Fatalf("UE %d: %+v", i, b.counters(t))
		}
	}
	if to := b.goesTo(t, at, known); to != listens(honest.Addr()) {
		t.Errorf("requests of the instance go to %v, want the peer", to)
	}
	if to := b.instanceOf(t, plain(gtpc.ModifyBearerRequest, 0x90000001, 999), honest); to != at {
		t.Errorf("requests of the peer go to %v, want %v", to, at)
	}
	if n := b.counters(t); n.SessionsForgotten+n.PeersForgotten > 0 || n.UnknownTEID > 0 {
		t.Errorf("%+v", n)
	}
}

// TestPrefixNeedsNoMemory checks that prefixes alone lead a session to its instance.
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
	if got := s.counters(); got.UnknownTEID != 0 || got.Sessions != 0 {
		t.Errorf("%+v", got)
	}
}

// tableOne returns the rules of Table 1 of the Contain-ed paper for three aggregate
// types: attach and detach, handover and service request, and setup of bearers. Other
// messages go to the first type.
func tableOne(attachDetach, handoverSR, bearerCRT string) []director.Rule {
	rules := []director.Rule{{Message: "create-session", Relocation: true, Type: handoverSR}}
	for _, name := range []string{
		"modify-bearer", "modify-access-bearers", "release-access-bearers", "downlink-data-notification",
		"downlink-data-notification-failure", "stop-paging-indication", "context", "forward-relocation",
		"forward-relocation-complete", "forward-access-context", "relocation-cancel", "create-forwarding-tunnel",
		"create-indirect-data-forwarding-tunnel", "delete-indirect-data-forwarding-tunnel",
	} {
		rules = append(rules, director.Rule{Message: name, Type: handoverSR})
	}
	for _, name := range []string{
		"create-bearer", "update-bearer", "delete-bearer", "modify-bearer-command", "delete-bearer-command",
		"bearer-resource-command",
	} {
		rules = append(rules, director.Rule{Message: name, Type: bearerCRT})
	}
	return append(rules, director.Rule{Type: attachDetach})
}

// TestTypesOfTheTable checks that messages go by their type first, and then by the session's key.
// All messages of a session for one type must go to one instance of that type, whichever instance
// the session was created at.
func TestTypesOfTheTable(t *testing.T) {
	types := []string{"ATTACH-DETACH", "HANDOVER-SR", "BEARER-CRT"}
	for _, numbers := range []uint8{1, 0} {
		s := newStage(t, types, func(c *stageConfig) {
			c.rules = tableOne(types[0], types[1], types[2])
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
			t.Error("only one instance performed handovers")
		}
		// A Create Session Request with the P-GW's TEID moves a session here.
		b := gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 99_999)
		b = gtpc.AppendDigits(b, gtpc.IMSI, "001010000000001")
		b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 5, V4: peer.address.Addr()})
		b = gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: 8, V4: peer.address.Addr()})
		peer.send(gtpc.End(b, 0))
		s.whoGot("HANDOVER-SR")
	}
}

// TestInstanceGone checks that a session continues at another instance if its own is down.
// Retransmissions must go there, too.
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
				t.Fatal("an unhealthy instance got a message")
			}
			other.send(answered(m, 1000))
			if m := peer.receive(); m.Sequence != 2 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestRestart checks that a restart with a hand-over loses nothing. A restart without one may lose
// only learned TEIDs and open answers. After an accepted request, the instance must reach the peer.
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
				if !carry {
					at.quiet() // discarded by now
				} else if m := peer.receive(); m.Sequence != 2 || m.Type != gtpc.ModifyBearerResponse {
					t.Fatalf("answer: got %+v", m)
				}
				peer.send(plain(gtpc.ModifyBearerRequest, teid, 2)) // the peer retransmits
				got, again := s.whoGot("gateway")
				if carry && again.Sequence != request.Sequence || !carry && again.Sequence == request.Sequence {
					t.Errorf("retransmission: got sequence number %#x, the request had %#x", again.Sequence, request.Sequence)
				}
				known := carry || name == "prefix"
				if known && got != at {
					t.Errorf("the session at %s continued at %s", at.target.Name, got.target.Name)
				}
				got.send(answered(again, 1000))
				if m := peer.receive(); m.Sequence != 2 {
					t.Fatalf("%+v", m)
				}
				got.send(plain(gtpc.DownlinkData, 1000, 3))
				if m := peer.receive(); m.Type != gtpc.DownlinkData || m.TEID != 1000 {
					t.Fatalf("%+v", m)
				}
				if n := s.counters(); (n.UnknownTEID == 0) != known || n.Stray != map[bool]uint64{true: 0, false: 1}[carry] {
					t.Errorf("%+v", n)
				}
			})
		}
	}
}
