package gtpc_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	director "vitrine/director/gtpc"
	"vitrine/wire/gtpc"
)

// elsewhere returns an IMSI whose sessions go to another instance than that one, and its instance.
func (b *bench) elsewhere(tb testing.TB, than netip.AddrPort) (imsi string, at netip.AddrPort) {
	tb.Helper()
	for i := 2; ; i++ {
		imsi = fmt.Sprintf("00101%010d", i)
		if at = b.instanceOf(tb, createSession(imsi, 1, honest, 1001), honest); at != than {
			return imsi, at
		}
	}
}

// TestTEIDOfTwoInstances checks that the director counts a TEID that two instances give to sessions
// that live, and logs the first one. The TEID of a session that has ended does not count.
func TestTEIDOfTwoInstances(t *testing.T) {
	const own = 1
	b := newBench(t, 0, 1<<10)
	name := map[netip.AddrPort]string{}
	for i := range int32(b.of.Len()) {
		name[b.of.Instance(i).Address] = b.of.Instance(i).Name
	}
	first, _ := b.attach(t, "001010000000001", 1, honest, 1000, own)
	imsi, second := b.elsewhere(t, first)
	attach := func(imsi string, sequence, teid uint32, want uint64) {
		t.Helper()
		b.attach(t, imsi, sequence, honest, teid, own)
		if n := b.counters(t).SessionsCollided; n != want {
			t.Errorf("counted %d TEIDs of two instances, want %d", n, want)
		}
	}
	attach("001010000000001", 2, 1000, 0) // again, at the same instance
	attach(imsi, 3, 1001, 1)
	sent, ok := b.deliver(t, plain(gtpc.DeleteSessionRequest, own, 4), honest)
	if !ok {
		t.Fatalf("the request was not forwarded: %+v", b.counters(t))
	}
	b.deliver(t, answered(&sent, 1001), second)
	attach("001010000000001", 5, 1000, 1)
	attach(imsi, 6, 1001, 2)
	if line := "earlier=" + name[first] + " later=" + name[second]; b.log.Count(line) != 1 || b.log.Count("WARN") != 1 {
		t.Errorf("got log %s, want one line with %q", b.log.String(), line)
	}
}

// TestTEIDOfBothGateways checks that the director counts a TEID that an S-GW and a P-GW give to the
// same session.
func TestTEIDOfBothGateways(t *testing.T) {
	s := newStage(t, []string{"sgw", "pgw"}, func(c *stageConfig) {
		c.each = 1
		c.rules = []director.Rule{{Interface: "s5", Type: "pgw"}, {Type: "sgw"}}
	})
	sgw, pgw := s.nodes["sgw-1"], s.nodes["pgw-1"]
	for i, c := range []struct {
		sgw, pgw uint32
		collided uint64
	}{{1, 2, 0}, {3, 3, 1}} {
		b := gtpc.AppendDigits(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, uint32(i+1)), gtpc.IMSI, "001010000000001")
		sgw.send(gtpc.End(gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S5SGW, TEID: c.sgw, V4: s.address.Addr()}), 0))
		request := pgw.receive()
		b = gtpc.AppendCause(gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, c.sgw, request.Sequence), gtpc.RequestAccepted)
		pgw.send(gtpc.End(gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: c.pgw, V4: s.address.Addr()}), 0))
		if m := sgw.receive(); m.Type != gtpc.CreateSessionResponse {
			t.Fatalf("the S-GW got %+v", m)
		}
		if n := s.counters().SessionsCollided; n != c.collided {
			t.Errorf("TEIDs %d and %d: counted %d of two instances, want %d", c.sgw, c.pgw, n, c.collided)
		}
	}
}

// TestLearningAllocatesNothing checks that no step allocates: a TEID that two instances choose, and an
// answer that shows a peer's TEID.
func TestLearningAllocatesNothing(t *testing.T) {
	const own = 1
	b := newBench(t, 0, 1<<12)
	room := make([]byte, 0, 512)
	var request, answer gtpc.Message
	exchange := func(asked, said []byte, teid uint32, at netip.AddrPort) {
		sent := append(room[:0], asked...)
		b.handle(sent, honest)
		if _, err := request.Parse(sent); err != nil {
			t.Fatal(err)
		}
		reply := append(room[:0], said...)
		if _, err := answer.Parse(reply); err != nil {
			t.Fatal(err)
		}
		answer.SetSequence(request.Sequence)
		answer.SetTEID(teid)
		b.handle(reply, at)
		b.sender.Flush()
	}
	one := createSession("001010000000001", 1, honest, 1000)
	first := b.instanceOf(t, one, honest)
	imsi, second := b.elsewhere(t, first)
	other := createSession(imsi, 2, honest, 1001)
	sent, _ := b.deliver(t, one, honest)
	accepts := created(&sent, own, first.Addr())
	modify := plain(gtpc.ModifyBearerRequest, own, 3)
	modified := answered(&gtpc.Message{Type: gtpc.ModifyBearerRequest}, 0)
	teid := uint32(5000)
	if n := testing.AllocsPerRun(1000, func() {
		b.now += time.Minute // no request is a retransmission
		exchange(one, accepts, 1000, first)
		exchange(other, accepts, 1001, second)
		teid++
		exchange(modify, modified, teid, second)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := b.counters(t); n.SessionsCollided < 2000 || n.Peers < 900 || n.Stray != 0 {
		t.Errorf("%+v", n)
	}
}
