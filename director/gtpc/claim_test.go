package gtpc_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	director "vitrine/director/gtpc"
	"vitrine/director/overload"
	"vitrine/wire/gtpc"
)

// deliver handles a message and returns it as the director sent it. ok is false if the director did
// not send it on.
func (b *bench) deliver(tb testing.TB, data []byte, from netip.AddrPort) (m gtpc.Message, ok bool) {
	tb.Helper()
	before := b.counters(tb).Forwarded
	data = append([]byte(nil), data...)
	b.handle(data, from)
	b.sender.Flush()
	if _, err := m.Parse(data); err != nil {
		return m, false
	}
	return m, b.counters(tb).Forwarded > before
}

// goesTo returns the peer to which an instance's request with the TEID would go.
func (b *bench) goesTo(tb testing.TB, instance netip.AddrPort, teid uint32) netip.AddrPort {
	tb.Helper()
	x, err := b.d.Explain(b.now, b.meter.Probe(), instance, plain(gtpc.CreateBearerRequest, teid, 1))
	if err != nil {
		tb.Fatal(err)
	}
	return x.Peer
}

// instanceOf returns the address of the instance to which a request would go.
func (b *bench) instanceOf(tb testing.TB, request []byte, from netip.AddrPort) netip.AddrPort {
	tb.Helper()
	x, err := b.d.Explain(b.now, b.meter.Probe(), from, request)
	if err != nil || x.Instance == nil {
		tb.Fatalf("%+v, %v", x, err)
	}
	return x.Instance.Address
}

// attach creates a session of a peer. It returns the instance's address, and the peer's TEID as the
// instance knows it.
func (b *bench) attach(tb testing.TB, imsi string, sequence uint32, peer netip.AddrPort, teid, own uint32) (at netip.AddrPort, known uint32) {
	tb.Helper()
	request := createSession(imsi, sequence, peer, teid)
	at = b.instanceOf(tb, request, peer)
	sent, ok := b.deliver(tb, request, peer)
	if !ok {
		tb.Fatalf("the request was not forwarded: %+v", b.counters(tb))
	}
	v, _ := sent.Find(gtpc.FTEID, 0)
	f, _ := gtpc.ParseFTEID(v)
	if m, ok := b.deliver(tb, created(&sent, own, at.Addr()), at); !ok || m.TEID != teid {
		tb.Fatalf("got %v to TEID %#x, want %#x: %+v", m.Type, m.TEID, teid, b.counters(tb))
	}
	return at, f.TEID
}

var (
	honest  = netip.MustParseAddrPort("127.0.0.9:2123")
	another = netip.MustParseAddrPort("127.0.0.10:2123")
)

// listens returns the address to which requests to the peer go. 9 is newBench's PeerPort.
func listens(peer netip.Addr) netip.AddrPort { return netip.AddrPortFrom(peer, 9) }

// TestLearnedWhenAccepted checks which answers of an instance make the director learn a peer's
// TEID.
func TestLearnedWhenAccepted(t *testing.T) {
	f := gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 77, V4: another.Addr()}
	answer := func(kind gtpc.Type, cause gtpc.CauseValue) func(*gtpc.Message) []byte {
		return func(m *gtpc.Message) []byte {
			b := gtpc.AppendHeader(nil, kind, 77, m.Sequence)
			if cause != 0 {
				b = gtpc.AppendCause(b, cause)
			}
			return gtpc.End(b, 0)
		}
	}
	const command = gtpc.CommandSequence
	for _, c := range []struct {
		name     string
		kind     gtpc.Type
		sequence uint32
		answer   func(*gtpc.Message) []byte
		other    bool // another instance answers
		learned  bool
	}{
		{"accepted", gtpc.ModifyBearerRequest, 5, answer(gtpc.ModifyBearerResponse, gtpc.RequestAccepted), false, true},
		{"accepted in part", gtpc.ModifyBearerRequest, 5, answer(gtpc.ModifyBearerResponse, 17), false, true},
		{"rejected", gtpc.ModifyBearerRequest, 5, answer(gtpc.ModifyBearerResponse, gtpc.ContextNotFound), false, false},
		{"without cause", gtpc.ModifyBearerRequest, 5, answer(gtpc.ModifyBearerResponse, 0), false, false},
		{"not answered", gtpc.ModifyBearerRequest, 5, nil, false, false},
		{"answered with another type", gtpc.ModifyBearerRequest, 5, answer(gtpc.CreateSessionResponse, gtpc.RequestAccepted), false, false},
		{"answered from another address", gtpc.ModifyBearerRequest, 5, answer(gtpc.ModifyBearerResponse, gtpc.RequestAccepted), true, false},
		{"a session that ends", gtpc.DeleteSessionRequest, 5, answer(gtpc.DeleteSessionResponse, gtpc.RequestAccepted), false, false},
		{"a command that is done", gtpc.BearerResourceCommand, 5 | command, answer(gtpc.UpdateBearerRequest, 0), false, true},
		{"a command that is refused", gtpc.BearerResourceCommand, 5 | command, answer(gtpc.BearerResourceFailure, gtpc.RequestAccepted), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 1, 1<<10)
			p, _ := director.PrefixOf(1, 2)
			instance, other := b.of.ByID(0, 2).Address, b.of.ByID(0, 3).Address
			sent, ok := b.deliver(t, with(c.kind, p.SessionTEID(1, 1), c.sequence, f), another)
			if !ok {
				t.Fatalf("%+v", b.counters(t))
			}
			if to := b.goesTo(t, instance, 77); to.IsValid() {
				t.Errorf("before the answer, requests go to %v, want nowhere", to)
			}
			if c.answer != nil {
				from := instance
				if c.other {
					from = other
				}
				if _, ok := b.deliver(t, c.answer(&sent), from); ok == c.other {
					t.Fatalf("%+v", b.counters(t))
				}
			}
			want := netip.AddrPort{}
			if c.learned {
				want = listens(another.Addr())
			}
			if to := b.goesTo(t, instance, 77); to != want || b.counters(t).Peers != map[bool]int{true: 1}[c.learned] {
				t.Errorf("requests go to %v, want %v; %+v", to, want, b.counters(t))
			}
		})
	}
}

// TestAnswersTeachNoPeer checks that the director learns nothing from an answer to a request that
// no instance sent, even if the answer has an instance's sequence prefix.
func TestAnswersTeachNoPeer(t *testing.T) {
	b := newBench(t, 1, 1<<10)
	p, _ := director.PrefixOf(1, 2)
	m := gtpc.AppendCause(gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, p.SessionTEID(1, 1), p.Number(1)), gtpc.RequestAccepted)
	m = gtpc.AppendFTEID(m, 0, gtpc.Endpoint{Interface: gtpc.S11SGW, TEID: 77, V4: another.Addr()})
	if _, ok := b.deliver(t, gtpc.End(m, 0), another); !ok {
		t.Fatalf("%+v", b.counters(t))
	}
	if to := b.goesTo(t, b.of.ByID(0, 2).Address, 77); to.IsValid() {
		t.Errorf("requests of another instance go to %v, want nowhere", to)
	}
}

// TestFTEIDAddresses checks that requests go to the address in the F-TEID, IPv4 or IPv6, whatever
// address the F-TEID came from. Peers at several addresses may use the same TEID.
func TestFTEIDAddresses(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	b := newBench(t, 0, 1<<10)
	seen := map[uint32]netip.AddrPort{}
	for i, c := range []struct {
		f    gtpc.Endpoint
		want netip.Addr
	}{
		{gtpc.Endpoint{V4: v4}, v4},
		{gtpc.Endpoint{V6: v6}, v6},
		{gtpc.Endpoint{V4: v4.Next(), V6: v6.Next()}, v4.Next()},
		{gtpc.Endpoint{V4: v4, V6: v6.Next()}, v4},                  // the first peer, now with both addresses
		{gtpc.Endpoint{V6: netip.AddrFrom16(v4.As16())}, v4},        // the first peer, as an IPv4-mapped address
		{gtpc.Endpoint{V4: honest.Addr()}, honest.Addr()},           //
		{gtpc.Endpoint{V6: v6.Next().Next()}, v6.Next().Next()},     //
		{gtpc.Endpoint{V4: v4.Next().Next()}, v4.Next().Next()},     //
		{gtpc.Endpoint{V4: another.Addr(), V6: v6}, another.Addr()}, //
		{gtpc.Endpoint{V6: v6, Interface: gtpc.S5SGW}, v6},          // the second peer
		{gtpc.Endpoint{V4: v4.Next(), Interface: 30}, v4.Next()},    // the third peer, as an ePDG
		{gtpc.Endpoint{V4: netip.MustParseAddr("192.0.2.99")}, netip.MustParseAddr("192.0.2.99")},
	} {
		c.f.TEID = 1
		sent, ok := b.deliver(t, with(gtpc.ModifyBearerRequest, 0x80000001, uint32(i+1), c.f), honest)
		if !ok {
			t.Fatalf("%+v", b.counters(t))
		}
		v, _ := sent.Find(gtpc.FTEID, 0)
		f, _ := gtpc.ParseFTEID(v)
		if f.V4 != c.f.V4 || f.V6 != c.f.V6 || f.Interface != c.f.Interface {
			t.Errorf("F-TEID %+v became %+v", c.f, f)
		}
		instance := b.instanceOf(t, plain(gtpc.ModifyBearerRequest, 0x80000001, 999), honest)
		if _, ok := b.deliver(t, answered(&sent, f.TEID), instance); !ok {
			t.Fatalf("%+v", b.counters(t))
		}
		if was, ok := seen[f.TEID]; ok && was != listens(c.want) {
			t.Errorf("%v and %v have the TEID %#x", was, c.want, f.TEID)
		}
		seen[f.TEID] = listens(c.want)
		for teid, want := range seen {
			if to := b.goesTo(t, instance, teid); to != want {
				t.Errorf("after %+v, requests to %#x go to %v, want %v", c.f, teid, to, want)
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("got %d peers, want 8: %v", len(seen), seen)
	}
}

// TestFTEIDOfBothFamilies checks that of the two addresses in an F-TEID the director uses one that it
// can send to and that the operator has listed.
func TestFTEIDOfBothFamilies(t *testing.T) {
	both := gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1000, V4: another.Addr(), V6: netip.MustParseAddr("2001:db8::1")}
	for _, c := range []struct {
		name      string
		listeners []string
		peers     []netip.Prefix
		want      netip.Addr
	}{
		{"both can be reached", []string{"127.0.0.1:0", "[::1]:0"}, nil, both.V4},
		{"an IPv6 listener", []string{"[::1]:0"}, nil, both.V6},
		{"an IPv6 network", []string{"127.0.0.1:0", "[::1]:0"}, []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}, both.V6},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 1, 1<<10, c.listeners...)
			policy, err := director.NewPolicy([]string{"gateway"}, []director.TypeOption{{Type: "gateway", Number: 1}}, []director.Rule{{Type: "gateway"}})
			if err != nil {
				t.Fatal(err)
			}
			policy.Peers = c.peers
			b.d.SetPolicy(policy)
			p, _ := director.PrefixOf(1, 2)
			instance := b.of.ByID(0, 2).Address
			sent, ok := b.deliver(t, with(gtpc.ModifyBearerRequest, p.SessionTEID(1, 1), 5, both), netip.AddrPortFrom(both.V6, 2123))
			if !ok {
				t.Fatalf("the request was not forwarded: %+v", b.counters(t))
			}
			b.deliver(t, answered(&sent, 1000), instance)
			if to := b.goesTo(t, instance, 1000); to != listens(c.want) {
				t.Errorf("requests go to %v, want %v", to, listens(c.want))
			}
			if _, ok := b.deliver(t, plain(gtpc.CreateBearerRequest, 1000, 3), instance); !ok {
				t.Errorf("the instance's request was not forwarded: %+v", b.counters(t))
			}
		})
	}
}

// TestSequenceNumberOfAnotherRequest checks that a request with the sequence number of an earlier
// request but another F-TEID does not count as a retransmission. Otherwise the F-TEID would reach
// the instance without a claim.
func TestSequenceNumberOfAnotherRequest(t *testing.T) {
	b := newBench(t, 0, 1<<10)
	instance, _ := b.attach(t, "001010000000001", 1, honest, 1000, 0x80000001)
	none := plain(gtpc.ModifyBearerRequest, 0x80000001, 5)
	mine := with(gtpc.ModifyBearerRequest, 0x80000001, 5, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1, V4: another.Addr()})
	theirs := with(gtpc.ModifyBearerRequest, 0x80000001, 5, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1000, V4: another.Addr()})
	numbers := map[uint32]bool{}
	for _, m := range [][]byte{none, mine, theirs} {
		first, _ := b.deliver(t, m, another)
		again, ok := b.deliver(t, m, another)
		v, _ := again.Find(gtpc.FTEID, 0)
		if f, _ := gtpc.ParseFTEID(v); !ok || first.Sequence != again.Sequence || f.TEID == 1000 {
			t.Errorf("got %+v, then %+v with TEID %#x", first, again, f.TEID)
		}
		numbers[first.Sequence] = true
	}
	if len(numbers) != 3 {
		t.Errorf("got sequence numbers %v, want 3 different ones", numbers)
	}
	if to := b.goesTo(t, instance, 1000); to != listens(honest.Addr()) {
		t.Errorf("requests go to %v, want the first peer", to)
	}
}

// TestUserPlaneIsNoClaim checks that an F-TEID of the user plane in a Bearer Resource Command claims
// no TEID and reaches the instance unchanged, although a peer has the same TEID.
func TestUserPlaneIsNoClaim(t *testing.T) {
	b := newBench(t, 0, 1<<10)
	b.attach(t, "001010000000001", 1, honest, 1000, 0x80000001)
	plane := gtpc.Endpoint{Interface: 15, TEID: 1000, V4: another.Addr()} // S4-U, at an SGSN
	command := gtpc.AppendHeader(nil, gtpc.BearerResourceCommand, 0x80000001, 5|gtpc.CommandSequence)
	sent, ok := b.deliver(t, gtpc.End(gtpc.AppendFTEID(command, 0, plane), 0), another)
	v, _ := sent.Find(gtpc.FTEID, 0)
	if f, _ := gtpc.ParseFTEID(v); !ok || f.TEID != 1000 || b.counters(t).Aliased != 0 {
		t.Errorf("forwarded %v with F-TEID %+v; %+v", ok, f, b.counters(t))
	}
}

// TestBadFTEIDs checks that a request does not reach an instance if functions may read its F-TEID
// in different ways.
func TestBadFTEIDs(t *testing.T) {
	b := newBench(t, 0, 1<<10)
	good := gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1, V4: another.Addr()}
	two := gtpc.AppendFTEID(gtpc.AppendFTEID(gtpc.AppendHeader(nil, gtpc.ModifyBearerRequest, 5, 1), 0, good), 0, good)
	short := gtpc.AppendElement(gtpc.AppendHeader(nil, gtpc.ModifyBearerRequest, 5, 2), gtpc.FTEID, 0, 0x8a, 0, 0, 0, 1)
	nowhere := with(gtpc.ModifyBearerRequest, 5, 3, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1})
	command := with(gtpc.ModifyBearerCommand, 5, 3|gtpc.CommandSequence, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1})
	for i, m := range [][]byte{gtpc.End(two, 0), gtpc.End(short, 0), nowhere, command} {
		if sent, ok := b.deliver(t, m, another); ok {
			t.Errorf("a malformed message was forwarded: %x", sent.Octets)
		}
		if n := b.counters(t); n.Malformed != uint64(i+1) {
			t.Errorf("%+v", n)
		}
	}
	if _, ok := b.deliver(t, nowhere, b.of.Instance(0).Address); ok { // unreachable, not malformed
		t.Error("a request to an unknown TEID was forwarded")
	}
	if n := b.counters(t); n.Malformed != 4 || n.Unreachable != 1 {
		t.Errorf("%+v", n)
	}
}

// TestInstancesKeepTheirTEIDs checks that no peer can take an instance's own TEID, to which other
// instances send.
func TestInstancesKeepTheirTEIDs(t *testing.T) {
	for _, number := range []uint8{0, 1} {
		b := newBench(t, number, 1<<10)
		own := uint32(0x90000001)
		if number > 0 {
			p, _ := director.PrefixOf(number, 2)
			own = p.SessionTEID(5, 5)
		}
		instance, _ := b.attach(t, "001010000000001", 1, honest, 1000, own)
		var other netip.AddrPort
		for i := uint32(2); !other.IsValid(); i++ { // until another peer has a session at another instance
			request := createSession(fmt.Sprintf("0010100000%05d", i), i, another, own)
			if x := b.instanceOf(t, request, another); number > 0 && x != b.of.ByID(0, 2).Address || number == 0 && x != instance {
				_, known := b.attach(t, fmt.Sprintf("0010100000%05d", i), i, another, own, own+i)
				if other = x; known == own {
					t.Errorf("number %d: a peer has TEID %#x of an instance", number, own)
				}
				if to := b.goesTo(t, x, known); to != listens(another.Addr()) {
					t.Errorf("number %d: requests go to %v, want the peer", number, to)
				}
			}
		}
		if to := b.goesTo(t, other, own); to.IsValid() {
			t.Errorf("number %d: requests from one instance to another go to %v, want nowhere", number, to)
		}
	}
}

// TestPeerNetworks checks that peers outside the listed networks get no answer, and that no F-TEID
// leads outside them. Instances need not be listed.
func TestPeerNetworks(t *testing.T) {
	b := newBench(t, 0, 1<<10)
	policy, err := director.NewPolicy([]string{"gateway"}, []director.TypeOption{{Type: "gateway"}}, []director.Rule{{Type: "gateway"}})
	if err != nil {
		t.Fatal(err)
	}
	policy.Peers = []netip.Prefix{netip.PrefixFrom(honest.Addr(), 32), netip.MustParsePrefix("2001:db8::/32")}
	b.d.SetPolicy(policy)
	for i, m := range [][]byte{
		createSession("001010000000001", 1, another, 5), createSession("001010000000001", 1, honest, 5),
		gtpc.AppendEchoRequest(nil, 1, 1), {0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0}, {1},
	} {
		b.deliver(t, m, another)
		if n := b.counters(t); n.Strangers != uint64(i+1) || n.Echoes+n.VersionsRefused+n.Forwarded+n.Malformed != 0 {
			t.Errorf("%x: %+v", m, n)
		}
	}
	if x, err := b.d.Explain(b.now, b.meter.Probe(), another, gtpc.AppendEchoRequest(nil, 1, 1)); err != nil || !x.Stranger {
		t.Errorf("%+v, %v", x, err)
	}
	instance, _ := b.attach(t, "001010000000001", 1, honest, 1000, 0x80000001)
	for i, f := range []gtpc.Endpoint{{TEID: 7, V4: another.Addr()}, {TEID: 7, V6: netip.MustParseAddr("2001:db9::1")}} {
		if _, ok := b.deliver(t, with(gtpc.ModifyBearerRequest, 0x80000001, uint32(10+i), f), honest); ok {
			t.Errorf("a request with F-TEID %+v was forwarded", f)
		}
	}
	sent, ok := b.deliver(t, with(gtpc.ModifyBearerRequest, 0x80000001, 20, gtpc.Endpoint{TEID: 7, V6: netip.MustParseAddr("2001:db8::1")}), honest)
	if !ok {
		t.Fatalf("%+v", b.counters(t))
	}
	b.deliver(t, answered(&sent, 7), instance)
	if to := b.goesTo(t, instance, 7); to != listens(netip.MustParseAddr("2001:db8::1")) {
		t.Errorf("requests go to %v, want the IPv6 peer", to)
	}
	if n := b.counters(t); n.Strangers != 7 || b.meter.Drops("gtpc")["stranger"] != 7 {
		t.Errorf("%+v", n)
	}
}

// TestQuotaOfClaims checks that a peer over its quota cannot claim TEIDs, not even with a request
// that is piggybacked on an answer. Answers have no quota.
func TestQuotaOfClaims(t *testing.T) {
	b := newBench(t, 1, 1<<10)
	policy, err := director.NewPolicy([]string{"gateway"}, []director.TypeOption{{Type: "gateway", Number: 1}}, []director.Rule{{Type: "gateway"}})
	if err != nil {
		t.Fatal(err)
	}
	policy.Quota = overload.NewQuota(overload.QuotaConfig{Rate: 1. / 3600, Burst: 2, Sources: 64})
	b.d.SetPolicy(policy)
	p, _ := director.PrefixOf(1, 2)
	instance, own := b.of.ByID(0, 2).Address, p.SessionTEID(1, 1)
	carried := func(sequence, teid uint32) []byte {
		m := plain(gtpc.CreateBearerResponse, own, p.Number(sequence))
		gtpc.SetPiggyback(m, 0)
		return append(m, with(gtpc.ModifyBearerRequest, own, sequence, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: teid, V4: another.Addr()})...)
	}
	for i := range uint32(2) { // the burst
		data := carried(i+1, 77+i)
		b.handle(data, another)
		var first, second gtpc.Message
		n, err := first.Parse(data)
		if err != nil || !first.Piggyback {
			t.Fatalf("%+v, %v", first, err)
		}
		if _, err := second.Parse(data[n:]); err != nil || second.Type != gtpc.ModifyBearerRequest {
			t.Fatalf("%+v, %v", second, err)
		}
		b.handle(answered(&second, 77+i), instance)
		if to := b.goesTo(t, instance, 77+i); to != listens(another.Addr()) {
			t.Errorf("requests to TEID %d go to %v, want the other peer", 77+i, to)
		}
	}
	first, ok := b.deliver(t, carried(3, 79), another)
	if n := b.counters(t); !ok || first.Piggyback || n.OverQuota != 1 || n.Piggybacked != 2 {
		t.Errorf("%+v, %+v", first, n)
	}
	for i := range uint32(100) {
		b.deliver(t, createSession("001010000000001", 10+i, another, 100+i), another)
	}
	if n := b.counters(t); n.OverQuota != 101 || n.Forwarded != 7 {
		t.Errorf("%+v", n)
	}
	// Another peer is not affected.
	if _, known := b.attach(t, "001010000000002", 1, honest, 79, own+1); known != 79 {
		t.Errorf("got TEID %#x, want 79", known)
	}
}

// TestBadPiggyback checks that a refused piggybacked request does not stop the message that carries
// it. The message goes on without the request, and each counts once.
func TestBadPiggyback(t *testing.T) {
	b := newBench(t, 1, 1<<10)
	first, ok := b.deliver(t, badPiggyback(), another)
	if n := b.counters(t); !ok || first.Piggyback || n.Received != 2 || n.Forwarded != 1 || n.Malformed != 1 {
		t.Errorf("%+v, %+v", first, n)
	}
}

// badPiggyback returns a response that carries a request whose F-TEID has no address.
func badPiggyback() []byte {
	p, _ := director.PrefixOf(1, 2)
	m := plain(gtpc.CreateBearerResponse, p.SessionTEID(1, 1), p.Number(1))
	gtpc.SetPiggyback(m, 0)
	return append(m, with(gtpc.ModifyBearerRequest, p.SessionTEID(1, 1), 1, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 7})...)
}

// TestClaimsAllocateNothing checks that no step allocates: a claim, an alias, a retransmission, an
// answer, an instance's request and a refused request.
func TestClaimsAllocateNothing(t *testing.T) {
	b := newBench(t, 0, 1<<12)
	instance, known := b.attach(t, "001010000000001", 1, honest, 1000, 0x80000001)
	_, alias := b.attach(t, "001010000000001", 1, another, 1000, 0x80000001)
	if alias == known {
		t.Fatal("two peers have the same TEID")
	}
	room := make([]byte, 0, 512)
	modify := with(gtpc.ModifyBearerRequest, 0x80000001, 5, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1000, V4: another.Addr()})
	bad := with(gtpc.ModifyBearerRequest, 0x80000001, 6, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1000})
	requests := [][]byte{plain(gtpc.CreateBearerRequest, known, 7), plain(gtpc.CreateBearerRequest, alias, 8), plain(gtpc.CreateBearerRequest, 99, 9)}
	response := answered(&gtpc.Message{Type: gtpc.ModifyBearerRequest}, alias)
	var first, answer gtpc.Message
	if n := testing.AllocsPerRun(1000, func() {
		for range 2 {
			sent := append(room[:0], modify...)
			b.handle(sent, another)
			if _, err := first.Parse(sent); err != nil {
				t.Fatal(err)
			}
		}
		sequence := first.Sequence
		reply := append(room[:0], response...)
		if _, err := answer.Parse(reply); err != nil {
			t.Fatal(err)
		}
		answer.SetSequence(sequence)
		b.handle(reply, instance)
		b.handle(append(room[:0], bad...), another)
		for _, m := range requests {
			b.handle(append(room[:0], m...), instance)
		}
		b.sender.Flush()
		b.now += time.Minute // the next request is no retransmission
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := b.counters(t); n.Aliased < 1000 || n.Stray != 0 || n.Malformed < 1000 || n.Unreachable < 1000 {
		t.Errorf("%+v", n)
	}
}
