package gtpc_test

import (
	"fmt"
	"net/netip"
	"testing"

	director "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
)

// fteid returns the sender's F-TEID in a message.
func fteid(t *testing.T, m *gtpc.Message) gtpc.Endpoint {
	t.Helper()
	v, _ := m.Find(gtpc.FTEID, 0)
	f, ok := gtpc.ParseFTEID(v)
	if !ok {
		t.Fatalf("%v has no F-TEID", m.Type)
	}
	return f
}

// refused returns a response that rejects a request.
func refused(request *gtpc.Message, teid uint32) []byte {
	kind, _ := request.Type.Response()
	return gtpc.End(gtpc.AppendCause(gtpc.AppendHeader(nil, kind, teid, request.Sequence), gtpc.NoResourcesAvailable), 0)
}

// with returns a message with the sender's F-TEID.
func with(kind gtpc.Type, teid, sequence uint32, f gtpc.Endpoint) []byte {
	instance := uint8(0)
	if kind == gtpc.BearerResourceCommand {
		instance = 2 // TS 29.274 table 7.2.5-1
	}
	return gtpc.End(gtpc.AppendFTEID(gtpc.AppendHeader(nil, kind, teid, sequence), instance, f), 0)
}

func (n *node) endpoint(over gtpc.Interface, teid uint32) gtpc.Endpoint {
	return gtpc.Endpoint{Interface: over, TEID: teid, V4: n.address.Addr()}
}

// An attached is a session as the session's instance knows it.
type attached struct {
	at        *node
	own, peer uint32 // TEIDs of the instance, and of the peer as the instance knows it
}

// attachAs creates a session of a peer with the TEID. own is the instance's TEID.
func attachAs(t *testing.T, s *stage, peer *node, imsi string, sequence, teid, own uint32) attached {
	t.Helper()
	peer.send(createSession(imsi, sequence, peer.address, teid))
	at, request := s.whoGot(s.types[0])
	at.send(created(request, own, s.address.Addr()))
	if m := peer.receive(); m.Type != gtpc.CreateSessionResponse || m.TEID != teid || m.Sequence != sequence {
		t.Fatalf("the peer got %v, sequence %d, TEID %#x", m.Type, m.Sequence, m.TEID)
	}
	return attached{at, own, fteid(t, request).TEID}
}

// reaches checks that a request of the session's instance reaches the peer with the peer's own
// TEID, and that the instance gets the answer.
func (a attached) reaches(t *testing.T, peer *node, teid, sequence uint32) {
	t.Helper()
	a.at.send(plain(gtpc.CreateBearerRequest, a.peer, sequence))
	m := peer.receive()
	if m.Type != gtpc.CreateBearerRequest || m.TEID != teid {
		t.Fatalf("the peer got %v to TEID %#x, want %#x", m.Type, m.TEID, teid)
	}
	peer.send(answered(m, a.own))
	if m := a.at.receive(); m.Type != gtpc.CreateBearerResponse || m.Sequence != sequence || m.TEID != a.own {
		t.Fatalf("the instance got %+v", m)
	}
}

// TestPeerIsNotTakenOver checks that a stranger who uses a peer's TEID gets none of the peer's
// messages: neither while the stranger's request is open, nor after it is rejected or accepted.
func TestPeerIsNotTakenOver(t *testing.T) {
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.each = 1 })
	peer, stranger := s.peer(), s.peer()
	session := attachAs(t, s, peer, "001010000000001", 1, 1000, 0x90000001)
	n := session.at

	stranger.send(createSession("001010000000002", 1, stranger.address, 1000))
	request := n.receive()
	session.reaches(t, peer, 1000, 10)
	n.send(refused(request, fteid(t, request).TEID))
	if m := stranger.receive(); m.Type != gtpc.CreateSessionResponse || m.TEID != 1000 {
		t.Fatalf("the unknown peer got %+v", m)
	}
	session.reaches(t, peer, 1000, 11)

	attachAs(t, s, stranger, "001010000000002", 2, 1000, 0x90000002)
	session.reaches(t, peer, 1000, 12)
	stranger.send(with(gtpc.ModifyBearerRequest, 0x90000002, 3, stranger.endpoint(gtpc.S11MME, 1000)))
	request = n.receive()
	n.send(answered(request, fteid(t, request).TEID))
	if m := stranger.receive(); m.Type != gtpc.ModifyBearerResponse || m.TEID != 1000 {
		t.Fatalf("the unknown peer got %+v", m)
	}
	session.reaches(t, peer, 1000, 13)

	stranger.send(plain(gtpc.ModifyBearerRequest, session.own, 4))
	n.send(answered(n.receive(), 1000))
	if m := stranger.receive(); m.Type != gtpc.ModifyBearerResponse || m.Sequence != 4 {
		t.Fatalf("the unknown peer got %+v", m)
	}
	session.reaches(t, peer, 1000, 14)
	stranger.quiet()
}

// TestPeerKnownByAnAnswer checks that an instance's answer to a request without F-TEID makes the
// director learn a TEID that it does not know, as after a crash. The request must name a session, and
// the TEID must not be another's.
func TestPeerKnownByAnAnswer(t *testing.T) {
	own, _ := director.PrefixOf(1, 2)
	session := own.SessionTEID(1, 1)
	other, _ := director.PrefixOf(1, 3)
	claimed := with(gtpc.ModifyBearerRequest, own.SessionTEID(2, 2), 9, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 77, V4: honest.Addr()})
	for _, c := range []struct {
		name   string
		to     uint32 // the TEID in the request
		teid   uint32 // in the answer
		before []byte // a request of another peer
		answer func(*gtpc.Message, uint32) []byte
		want   netip.AddrPort
	}{
		{"accepted", session, 77, nil, answered, listens(another.Addr())},
		{"refused", session, 77, nil, refused, netip.AddrPort{}},
		{"a request about no session", 0, 77, nil, answered, netip.AddrPort{}},
		{"an answer without TEID", session, 0, nil, answered, netip.AddrPort{}},
		{"another peer claims it", session, 77, claimed, answered, netip.AddrPort{}},
		{"another instance has it", session, other.SessionTEID(1, 1), nil, answered, netip.AddrPort{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 1, 1<<10)
			request := plain(gtpc.ModifyBearerRequest, c.to, 5)
			instance := b.instanceOf(t, request, another)
			if c.before != nil {
				b.deliver(t, c.before, honest)
			}
			sent, ok := b.deliver(t, request, another)
			if !ok {
				t.Fatalf("the request was not forwarded: %+v", b.counters(t))
			}
			if m, ok := b.deliver(t, c.answer(&sent, c.teid), instance); !ok || m.TEID != c.teid || m.Sequence != 5 {
				t.Fatalf("got %+v: %+v", m, b.counters(t))
			}
			if to := b.goesTo(t, instance, c.teid); to != c.want {
				t.Errorf("requests go to %v, want %v", to, c.want)
			}
		})
	}
}

// TestEqualTEIDs checks that two MMEs that both count their TEIDs from 1 get their own messages.
// This holds across a hand-over, for instances that share sessions, and with or without prefixes.
func TestEqualTEIDs(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway", "bearer"}, way.option, func(c *stageConfig) {
				c.rules = []director.Rule{{Message: "bearer-resource-command", Type: "bearer"}, {Type: "gateway"}}
			})
			peers := []*node{s.peer(), s.peer()}
			const each = 6
			var sessions [2 * each]attached
			for i := range sessions {
				imsi := fmt.Sprintf("00101%010d", i)
				peer, teid := peers[i%2], uint32(i/2+1)
				peer.send(createSession(imsi, uint32(i+1), peer.address, teid))
				at, request := s.whoGot("gateway")
				known := fteid(t, request)
				if known.V4 != peer.address.Addr() {
					t.Errorf("address in the F-TEID: got %v, want the peer's", known.V4)
				}
				peer.send(createSession(imsi, uint32(i+1), peer.address, teid)) // a retransmission
				if again := at.receive(); fteid(t, again) != known || again.Sequence != request.Sequence {
					t.Errorf("the retransmission has F-TEID %+v, want %+v", fteid(t, again), known)
				}
				sessions[i] = attached{at, way.teid(imsi, uint32(i))(at), known.TEID}
				at.send(created(request, sessions[i].own, s.address.Addr()))
				if m := peer.receive(); m.TEID != teid || m.Sequence != uint32(i+1) {
					t.Fatalf("the peer got %+v", m)
				}
			}
			check := func(base uint32) {
				t.Helper()
				for i, x := range sessions {
					peer, teid := peers[i%2], uint32(i/2+1)
					x.reaches(t, peer, teid, base+uint32(i))
					peer.send(plain(gtpc.ModifyBearerRequest, x.own, base+uint32(i)))
					x.at.send(answered(x.at.receive(), x.peer))
					if m := peer.receive(); m.Type != gtpc.ModifyBearerResponse || m.TEID != teid {
						t.Fatalf("the peer got %v to TEID %#x, want %#x", m.Type, m.TEID, teid)
					}
					// Another instance has read the session from a store.
					peer.send(plain(gtpc.BearerResourceCommand, x.own, base+uint32(i)|gtpc.CommandSequence))
					at, command := s.whoGot("bearer")
					at.send(plain(gtpc.UpdateBearerRequest, x.peer, command.Sequence))
					if m := peer.receive(); m.Type != gtpc.UpdateBearerRequest || m.TEID != teid {
						t.Fatalf("the peer got %v to TEID %#x, want %#x", m.Type, m.TEID, teid)
					}
					attached{at, x.own, x.peer}.reaches(t, peer, teid, base+1000+uint32(i))
				}
			}
			check(100)
			if n := s.counters(); n.Aliased != each || n.Peers != 2*each || n.PeersForgotten != 0 {
				t.Errorf("%+v", n)
			}
			s.restart(true)
			check(200)
		})
	}
}

// TestMMERelocation moves a session to another MME by a tracking area update or handover without a
// change of the S-GW (TS 29.274 clause 7.2.7). The old MME must get the instance's requests until
// the S-GW accepts the new MME.
func TestMMERelocation(t *testing.T) {
	for name, next := range map[string]uint32{"another TEID": 77, "an equal TEID": 1000} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"})
			source, target := s.peer(), s.peer()
			session := attachAs(t, s, source, "001010000000001", 1, 1000, 0x90000001)
			move := func(sequence uint32) (*gtpc.Message, attached) {
				t.Helper()
				target.send(with(gtpc.ModifyBearerRequest, session.own, sequence, target.endpoint(gtpc.S11MME, next)))
				m := session.at.receive()
				moved := session
				moved.peer = fteid(t, m).TEID
				return m, moved
			}
			request, moved := move(5)
			session.reaches(t, source, 1000, 10)
			session.at.send(plain(gtpc.CreateBearerRequest, moved.peer, 11)) // before it has accepted
			session.at.quiet()
			session.at.send(refused(request, moved.peer))
			if m := target.receive(); m.TEID != next || m.Sequence != 5 {
				t.Fatalf("the new MME got %+v", m)
			}
			session.at.send(plain(gtpc.CreateBearerRequest, moved.peer, 12))
			session.at.quiet()
			target.quiet()
			session.reaches(t, source, 1000, 13)

			request, moved = move(6)
			session.at.send(answered(request, moved.peer))
			if m := target.receive(); m.TEID != next || m.Sequence != 6 {
				t.Fatalf("the new MME got %+v", m)
			}
			moved.reaches(t, target, next, 14)
			source.quiet()
			target.send(plain(gtpc.DeleteSessionRequest, session.own, 7))
			session.at.send(answered(session.at.receive(), moved.peer))
			if m := target.receive(); m.Type != gtpc.DeleteSessionResponse || m.TEID != next {
				t.Fatalf("the new MME got %+v", m)
			}
			if n := s.counters(); n.Unreachable != 2 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// TestSGWRelocation moves a session at a P-GW to another S-GW. First, the new S-GW sends
// a Modify Bearer Request from an address that differs from its F-TEID. Then, on S11, a
// Create Session Request with the P-GW's TEID moves the session to a new S-GW.
func TestSGWRelocation(t *testing.T) {
	s := newStage(t, []string{"pgw"})
	source, target := s.peer(), s.peer()
	b := gtpc.AppendDigits(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 1), gtpc.IMSI, "001010000000001")
	source.send(gtpc.End(gtpc.AppendFTEID(b, 0, source.endpoint(gtpc.S5SGW, 1)), 0))
	at, request := s.whoGot("pgw")
	session := attached{at, 0x90000001, fteid(t, request).TEID}
	b = gtpc.AppendCause(gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, session.peer, request.Sequence), gtpc.RequestAccepted)
	at.send(gtpc.End(gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: session.own, V4: s.address.Addr()}), 0))
	source.receive()
	session.reaches(t, source, 1, 10)

	sender := s.listen(netip.AddrPortFrom(loopback(99), 0))
	sender.send(with(gtpc.ModifyBearerRequest, session.own, 1, target.endpoint(gtpc.S5SGW, 1)))
	request = at.receive()
	session.peer = fteid(t, request).TEID
	at.send(answered(request, session.peer))
	if m := sender.receive(); m.Type != gtpc.ModifyBearerResponse || m.TEID != 1 {
		t.Fatalf("the new S-GW got %+v", m)
	}
	session.reaches(t, target, 1, 11)
	source.quiet()
	sender.quiet()

	mme := s.peer()
	b = gtpc.AppendDigits(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 1), gtpc.IMSI, "001010000000001")
	b = gtpc.AppendFTEID(b, 0, mme.endpoint(gtpc.S11MME, 1))
	b = gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: session.own, V4: s.address.Addr()})
	mme.send(gtpc.End(b, 0))
	sgw, request := s.whoGot("pgw")
	if v, _ := request.Find(gtpc.FTEID, 1); len(v) < 5 || v[1] != 0x90 {
		t.Errorf("F-TEID of the P-GW: got %x", v)
	}
	moved := attached{sgw, 0x90000002, fteid(t, request).TEID}
	sgw.send(created(request, moved.own, s.address.Addr()))
	mme.receive()
	moved.reaches(t, mme, 1, 12)
	session.reaches(t, target, 1, 13)
}

// TestAttachAgainThroughAnotherMME checks that a subscriber that attaches again through another MME
// is reached at that MME. The first MME must keep its TEID.
func TestAttachAgainThroughAnotherMME(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	one, two := s.peer(), s.peer()
	first := attachAs(t, s, one, "001010000000001", 1, 5, 0x90000001)
	second := attachAs(t, s, two, "001010000000001", 1, 5, 0x90000002)
	if first.at != second.at {
		t.Fatal("the subscriber attached at a second instance")
	}
	second.reaches(t, two, 5, 10)
	first.reaches(t, one, 5, 11) // the S-GW deletes the first session there
	third := attachAs(t, s, one, "001010000000001", 2, 5, 0x90000003)
	if third.peer != first.peer {
		t.Errorf("TEID of the first MME: got %#x", third.peer)
	}
	third.reaches(t, one, 5, 12)
}
