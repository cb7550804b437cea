package gtpc_test

import (
	"fmt"
	"net/netip"
	"testing"

	director "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
)

// TestSequenceNumbersPerPeer checks that equal sequence numbers of different peers do not collide.
// Retransmissions must be recognized, and each answer must reach its peer.
func TestSequenceNumbersPerPeer(t *testing.T) {
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.each = 1 })
	n := s.nodes["gateway-1"]
	one, two := s.peer(), s.peer()
	one.send(createSession("001010000000001", 7, one.address, 11))
	first := n.receive()
	two.send(createSession("001010000000002", 7, two.address, 12))
	second := n.receive()
	if first.Sequence == second.Sequence || first.IsCommand() || second.IsCommand() {
		t.Fatalf("got sequence numbers %#x and %#x, want different ones below the range of commands", first.Sequence, second.Sequence)
	}
	one.send(createSession("001010000000001", 7, one.address, 11))
	if again := n.receive(); again.Sequence != first.Sequence {
		t.Errorf("retransmission: got sequence number %#x, want %#x", again.Sequence, first.Sequence)
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
	// An answer from a node that got no request is dropped.
	stranger := s.peer()
	stranger.send(created(first, 21, n.address.Addr()))
	stranger.quiet()
	one.quiet()
	if got := s.counters(); got.Retransmitted != 1 || got.Stray != 1 {
		t.Errorf("%+v", got)
	}
	for _, in := range s.meter.Instances() {
		if in.Begun != 2 || in.Ended["succeeded"] != 2 || in.DialogsBegun != 2 || in.DialogsEnded != 0 || in.InFlight != 0 || in.Messages != 3 {
			t.Errorf("got the wrong counts %+v", in)
		}
	}
}

// TestInstanceBegins checks that an instance's request goes to the peer that chose the TEID.
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
					t.Errorf("got sequence number %#x, want it unchanged", m.Sequence)
				}
				peer.send(answered(m, 0))
				if r := at.receive(); r.Type != gtpc.CreateBearerResponse || r.Sequence != sequence {
					t.Errorf("the instance got %+v", r)
				}
			}
		})
	}
}

// TestInstanceEndsSession lets an instance end bearers and a session, as a P-GW does. Each request must reach
// the peer and each answer the instance. Only an accepted request for the default bearer ends the session,
// and it ends once: otherwise the instance would never be drained.
func TestInstanceEndsSession(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"}, way.option)
			peer := s.peer()
			at, teid := attach(t, s, peer, "001010000000001", 1, 1000, way.teid("001010000000001", 1))
			dedicated := gtpc.End(gtpc.AppendElement(gtpc.AppendHeader(nil, gtpc.DeleteBearerRequest, 1000, 3), gtpc.EBI, 1, 6), 0)
			for i, c := range []struct {
				what    string
				request []byte
				answer  func(*gtpc.Message, uint32) []byte
				ended   uint64 // sessions, from then on
			}{
				{"a dedicated bearer", dedicated, answered, 0},
				{"the default bearer, refused", plain(gtpc.DeleteBearerRequest, 1000, 4), refused, 0},
				{"the default bearer", plain(gtpc.DeleteBearerRequest, 1000, 5), answered, 1},
				{"a session of the peer", plain(gtpc.DeleteSessionRequest, 1000, 6), answered, 1},
			} {
				at.send(c.request)
				m := peer.receive()
				at.send(c.request) // again
				if again := peer.receive(); again.Sequence != m.Sequence || again.Type != m.Type || m.TEID != 1000 {
					t.Fatalf("%s: the peer got %+v, then %+v", c.what, m, again)
				}
				for range 2 {
					peer.send(c.answer(m, teid))
					want, _ := m.Type.Response()
					if r := at.receive(); r.Type != want || r.Sequence != uint32(3+i) || r.TEID != teid {
						t.Fatalf("%s: the instance got %+v", c.what, r)
					}
				}
				if in := s.meter.Instance("gateway", at.target.Name); in.DialogsBegun != 1 || in.DialogsEnded != c.ended {
					t.Errorf("%s: %d sessions began and %d ended, want 1 and %d", c.what, in.DialogsBegun, in.DialogsEnded, c.ended)
				}
			}
		})
	}
}

// TestCommands checks that a command, the request that it triggers and the answer have
// one sequence number on each side.
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

			// Now a command that the instance sends.
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

// TestPiggybacked checks that piggybacked messages stay together. Each must have its own sequence
// number and get its answer.
func TestPiggybacked(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, []string{"gateway"}, way.option)
			peer := s.peer()
			peer.send(createSession("001010000000001", 1, peer.address, 1000))
			at, request := s.whoGot("gateway")
			teid := way.teid("001010000000001", 1)(at)
			own := uint32(1) // may equal the director's number, on purpose
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

// TestInstancesAmongThemselves steers messages between an S-GW and a P-GW that are both instances.
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

// TestInstanceKnowsBetter checks that an instance's request to an unknown TEID does not
// go to another instance.
func TestInstanceKnowsBetter(t *testing.T) {
	s := newStage(t, []string{"gateway"})
	n := s.nodes["gateway-1"]
	n.send(plain(gtpc.CreateBearerRequest, 0xabcdef01, 1))
	n.quiet()
	s.nodes["gateway-2"].quiet()
	if got := s.counters(); got.Unreachable != 1 || got.Forwarded != 0 {
		t.Errorf("%+v", got)
	}
}

// TestBothFamilies connects peers over IPv4 with instances over IPv6, both ways.
func TestBothFamilies(t *testing.T) {
	s := newStage(t, []string{"gateway"}, func(c *stageConfig) { c.inside = netip.IPv6Loopback() })
	peer := s.peer()
	at, teid := attach(t, s, peer, "001010000000001", 1, 1000, func(*node) uint32 { return 0x80000001 })
	peer.send(plain(gtpc.ModifyBearerRequest, teid, 2))
	m := at.receive()
	at.send(answered(m, 1000))
	peer.receive()
	at.send(plain(gtpc.CreateBearerRequest, 1000, 3))
	m = peer.receive()
	peer.send(answered(m, teid))
	if r := at.receive(); r.Sequence != 3 || r.Type != gtpc.CreateBearerResponse {
		t.Errorf("%+v", r)
	}
}
