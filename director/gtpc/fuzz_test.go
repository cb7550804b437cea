package gtpc_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	director "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
	"vitrine/wire/gtpc/gtpctest"
)

// FuzzHandle gives a worker any input, from a peer or from an instance. The worker must not panic,
// memories must keep their bounds, and each message must count once, also a piggybacked one. No
// message may redirect the TEID of another peer.
func FuzzHandle(f *testing.F) {
	mix := gtpctest.NewMix(gtpctest.Config{Sessions: 64})
	for i := range 64 * gtpctest.Kinds {
		if b := mix.Append(nil); i%64 == 0 {
			f.Add(b, uint16(2123), []byte(nil), uint16(1))
		}
	}
	peer := netip.MustParseAddrPort("127.0.0.9:2123")
	piggyback := gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, 1, 2)
	piggyback = gtpc.End(gtpc.AppendCause(piggyback, gtpc.RequestAccepted), 0)
	gtpc.SetPiggyback(piggyback, 0)
	piggyback = append(piggyback, plain(gtpc.CreateBearerRequest, 1, 2)...)
	f.Add(createSession("001010000000001", 1, peer, 5), uint16(2123), piggyback, uint16(0))
	f.Add(plain(gtpc.ModifyBearerCommand, 5, 6|gtpc.CommandSequence), uint16(1), plain(gtpc.UpdateBearerRequest, 7, 6|gtpc.CommandSequence), uint16(0))
	f.Add([]byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0}, uint16(9), gtpc.AppendEchoRequest(nil, 1, 1), uint16(9))
	for teid := range uint32(3) { // includes the attached peer's TEID
		e := gtpc.Endpoint{Interface: gtpc.S11MME, TEID: victim - 1 + teid, V4: another.Addr()}
		f.Add(with(gtpc.ModifyBearerRequest, 0x20400001, 3, e), uint16(2123), answered(&gtpc.Message{Type: gtpc.ModifyBearerRequest}, e.TEID), uint16(0))
		f.Add(with(gtpc.BearerResourceCommand, 0x20400001, 3|gtpc.CommandSequence, e), uint16(2123), plain(gtpc.UpdateBearerRequest, e.TEID, 2|gtpc.CommandSequence), uint16(0))
	}
	f.Add(badPiggyback(), uint16(2123), []byte(nil), uint16(0))
	b := newBench(f, 1, 64) // shared, so that it remembers earlier inputs
	probe := b.meter.Worker()
	attaches := uint32(0)
	f.Fuzz(func(t *testing.T, first []byte, firstPort uint16, second []byte, secondPort uint16) {
		attaches++
		b.now += time.Second // so that this attach is the most recent use
		instance, known := b.attach(t, "001010000000001", attaches&0xffff, victimAddress, victim, 0x20400001)
		attached := b.counters(t)
		before := done(attached)
		if before != attached.Received {
			t.Fatalf("after the attach: %+v", attached)
		}
		at := func(port uint16) netip.AddrPort {
			if int(port) < b.of.Len() { // an instance
				return b.of.Instance(int32(port)).Address
			}
			return netip.AddrPortFrom(peer.Addr(), port)
		}
		for round := range 2 { // the second round has retransmissions
			var sent gtpc.Message // the first message, as the director sent it
			for i, m := range []struct {
				data []byte
				port uint16
			}{{bytes.Clone(first), firstPort}, {bytes.Clone(second), secondPort}} {
				var answer gtpc.Message
				if _, err := answer.Parse(m.data); err == nil && i == 1 && round == 1 && sent.Type > 0 {
					answer.SetSequence(sent.Sequence) // makes the second message an answer to the first
				}
				if x, err := b.d.Explain(b.now, probe, at(m.port), m.data); err == nil && x.Initial && x.Rule >= 0 && x.Instance == nil {
					t.Fatalf("message %x has no destination: %+v", m.data, x)
				}
				b.handle(m.data, at(m.port))
				if i == 0 {
					_, _ = sent.Parse(m.data)
				}
			}
		}
		b.sender.Flush()
		n := b.counters(t)
		if done(n) < before+4 || done(n) > before+8 || done(n) != n.Received || n.Sessions > 64 || n.Peers > 64 {
			t.Fatalf("%+v", n)
		}
		// For lack of room, the director may have forgotten the peer.
		if to := b.goesTo(t, instance, known); to.IsValid() && to != listens(victimAddress.Addr()) {
			t.Fatalf("requests to the peer go to %v", to)
		}
	})
}

// The peer that attaches before each input, and its TEID.
const victim = 0x5eed

var victimAddress = netip.MustParseAddrPort("127.0.0.77:2123")

// done returns the number of handled messages.
func done(n director.Counters) uint64 {
	return n.Strangers + n.OverQuota + n.Forwarded + n.Echoes + n.VersionsRefused + n.Malformed + n.Stray + n.Rejected + n.Unruled + n.Unreachable
}
