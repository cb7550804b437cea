package gtpc_test

import (
	"net/netip"
	"testing"

	director "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
	"vitrine/wire/gtpc/gtpctest"
)

// FuzzHandle gives a worker any input, from a peer and from a possible instance. Nothing
// may panic, memories must stay within their bounds, and each message counts as one
// thing.
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
	b := newBench(f, 1, 64) // it remembers earlier inputs, on purpose
	probe := b.meter.Worker()
	f.Fuzz(func(t *testing.T, first []byte, firstPort uint16, second []byte, secondPort uint16) {
		before := done(b.counters(t))
		at := func(port uint16) netip.AddrPort {
			if int(port) < b.of.Len() { // an instance
				return b.of.Instance(int32(port)).Address
			}
			return netip.AddrPortFrom(peer.Addr(), port)
		}
		for range 2 { // again: retransmissions
			for _, m := range []struct {
				data []byte
				port uint16
			}{{first, firstPort}, {second, secondPort}} {
				if x, err := b.d.Explain(b.now, probe, at(m.port), m.data); err == nil && x.Initial && x.Rule >= 0 && x.Instance == nil {
					t.Fatalf("%x goes nowhere: %+v", m.data, x)
				}
				b.handle(append([]byte(nil), m.data...), at(m.port))
			}
		}
		b.sender.Flush()
		n := b.counters(t)
		if done(n) != before+4 || done(n) != n.Received || n.Sessions > 64 || n.Peers > 64 {
			t.Fatalf("%+v", n)
		}
	})
}

// done returns how many messages were handled.
func done(n director.Counters) uint64 {
	return n.Forwarded + n.Echoes + n.VersionsRefused + n.Malformed + n.Stray + n.Rejected + n.Unruled + n.Unreachable
}
