package gtpc

import (
	"net/netip"
	"testing"
	"time"

	"vitrine/wire/gtpc"
)

var somebody = netip.MustParseAddrPort("127.0.0.9:2123")

// TestLearnedIsBounded checks that idle TEIDs are forgotten. If there are too many TEIDs, the least
// recently used ones are forgotten and counted.
func TestLearnedIsBounded(t *testing.T) {
	const limit = 64
	l := newLearned(limit, time.Hour)
	at := instance{1, 7}
	for i := range uint32(10 * limit) {
		l.put(time.Duration(i)*time.Second, i+1, owner{instance: at, key: uint64(i), hasKey: true})
	}
	now := 10 * limit * time.Second
	if n, lost := l.len(now), l.overflow.Load(); n != limit || lost != 9*limit {
		t.Errorf("memory has %d entries, want the limit; %d were forgotten", n, lost)
	}
	if o, ok := l.find(now, 10*limit); !ok || o.instance != at || o.key != 10*limit-1 {
		t.Errorf("last entry: got %+v, found %v", o, ok)
	}
	if _, ok := l.find(now+2*time.Hour, 10*limit); ok || l.len(now+2*time.Hour) != 0 {
		t.Error("an entry was found after two hours without use")
	}
	lost := l.overflow.Load()
	for i := range uint32(limit) {
		l.put(now+2*time.Hour, 1_000_000+i, owner{instance: at})
	}
	if full := l.overflow.Load() - lost; full > limit/2 { // chance fills some buckets, never all
		t.Errorf("%d of %d idle places were not reused", full, limit)
	}
}

// TestEndedSessionsMakeRoom checks that the TEIDs of ended sessions are forgotten before older TEIDs of
// sessions that live, and are not counted. A TEID that was used again lives, and so does one whose
// session has moved to another instance.
func TestEndedSessionsMakeRoom(t *testing.T) {
	l := newLearned(ways, time.Hour) // one bucket
	at, now := instance{1, 7}, ways*time.Second
	for i := range uint32(ways) {
		l.put(time.Duration(i)*time.Second, i+1, owner{instance: at})
	}
	l.end(now, 4, instance{1, 8})
	for teid := uint32(5); teid <= 8; teid++ {
		l.end(now, teid, at)
	}
	l.find(now, 8)
	for i := range uint32(3) {
		l.put(now, 100+i, owner{instance: at})
	}
	for teid := uint32(1); teid <= 8; teid++ {
		if _, ok := l.find(now, teid); ok != (teid <= 4 || teid == 8) {
			t.Errorf("TEID %d: found %v", teid, ok)
		}
	}
	if n := l.overflow.Load(); n != 0 {
		t.Errorf("counted %d forgotten TEIDs, want 0", n)
	}
	if l.put(now, 200, owner{instance: at}); l.overflow.Load() != 1 {
		t.Error("a TEID of a live session was forgotten, but not counted")
	}
}

// TestExchangesAreBounded checks that the oldest exchanges are forgotten first. An exchange that
// got no answer in time is not found. An unanswered exchange that made room is counted.
func TestExchangesAreBounded(t *testing.T) {
	const limit = 256
	x := newExchanges(limit, time.Minute, numbers-100) // numbers wrap around
	begin := func(now time.Duration, sequence uint32) uint32 {
		return x.add(now, exchange{from: placeOf(somebody), to: placeOf(somebody), sequence: sequence, kind: gtpc.ModifyBearerRequest})
	}
	seen := map[uint32]bool{}
	for i := range uint32(4 * limit) {
		n := begin(time.Second, i)
		if n == 0 || n >= numbers || seen[n] {
			t.Fatalf("got sequence number %d, which is invalid or in use", n)
		}
		seen[n] = true
		if i < limit {
			if _, first, ok := x.answer(time.Second, n, somebody); !first || !ok {
				t.Fatal("the first answer is not reported as first")
			}
			if _, first, ok := x.answer(time.Second, n, somebody); first || !ok {
				t.Fatal("the second answer is reported as first")
			}
		}
	}
	if lost := x.overflow.Load(); lost != 2*limit {
		t.Errorf("%d unanswered requests were forgotten, want twice the limit", lost)
	}
	found := 0
	for i := range uint32(4 * limit) {
		e, ok := x.find(time.Second, placeOf(somebody), 0, i, gtpc.ModifyBearerRequest)
		if ok && (i < 3*limit || e.sequence != i) {
			t.Fatalf("sequence number %d finds the wrong request %+v", i, e)
		}
		if ok {
			found++
		}
	}
	if found < limit*95/100 {
		t.Errorf("found %d of the last %d requests", found, limit)
	}
	if _, ok := x.find(2*time.Minute, placeOf(somebody), 0, 4*limit-1, 0); ok {
		t.Error("an expired request was found")
	}
	n := begin(2*time.Minute, 1)
	if _, _, ok := x.answer(2*time.Minute, n, netip.MustParseAddrPort("127.0.0.9:2124")); ok {
		t.Error("an answer from another port was accepted")
	}
	if x.overflow.Load() != 2*limit {
		t.Error("an expired request was counted as forgotten")
	}
}

// TestClaimsAreBounded checks that claims of TEIDs displace only other claims. A claim must last as
// long as the instance may still answer.
func TestClaimsAreBounded(t *testing.T) {
	const limit = 512
	peer, stranger := placeOf(somebody), placeOf(netip.MustParseAddrPort("192.0.2.66:2123"))
	at := instance{1, 7}
	l := newLearned(limit, time.Hour)
	l.wait = 16
	now := time.Second
	for i := range uint32(limit / 2) {
		l.accept(now, claim{peer, i + 1, i + 1}, at)
	}
	kept := l.len(now)
	for i := range uint32(100 * limit) { // a flood
		if c := (claim{stranger, 5, 1000 + i}); !l.claim(now, c, at) {
			t.Fatalf("TEID %d is already claimed", c.alias)
		}
	}
	if n := l.len(now); n != kept || kept < limit/3 {
		t.Errorf("%d of %d learned TEIDs are left after a flood of claims", n, kept)
	}
	for i := range uint32(limit / 2) {
		if o, ok := l.find(now, i+1); ok && (o.address != peer || o.instance != at) {
			t.Errorf("TEID %d belongs to %+v", i+1, o)
		}
	}
	overflow := l.overflow.Load()
	for i := range uint32(limit / 4) { // accepted TEIDs displace claims
		l.accept(now, claim{peer, 5000 + i, 5000 + i}, at)
	}
	if n := l.len(now); n-kept+int(l.overflow.Load()-overflow) != limit/4 || n < kept+limit/8 {
		t.Errorf("%d TEIDs are learned, %d were learned before", n, kept)
	}
	l = newLearned(limit, time.Hour)
	l.wait = 16
	one := claim{peer, 1 << 30, 1 << 30}
	other := claim{stranger, 1 << 30, 1 << 30}
	if l.claim(now, one, at); l.claim(now+16*time.Second, other, at) {
		t.Error("a claim expired before its answer could arrive")
	}
	if !l.claim(now+17*time.Second, other, at) {
		t.Error("a claim without answer did not expire")
	}
	if l.accept(now+17*time.Second, other, at); l.claim(now+30*time.Minute, one, at) {
		t.Error("another peer claimed a learned TEID")
	}
	if !l.claim(now+40*time.Minute, other, at) || l.claim(now+90*time.Minute, one, at) {
		t.Error("a claim by the owner of a TEID does not count as use")
	}
	if !l.claim(now+3*time.Hour, one, at) {
		t.Error("an unused learned TEID did not expire")
	}
}

// TestFirstToBeAcceptedStays lets two peers claim one TEID while there is no room for claims. The
// peer that is accepted first must keep the TEID.
func TestFirstToBeAcceptedStays(t *testing.T) {
	l := newLearned(ways, time.Hour)
	for i := range uint32(ways) {
		l.accept(time.Second, claim{placeOf(somebody), i + 1, i + 1}, instance{1, 7})
	}
	one, other := claim{placeOf(somebody), 99, 99}, claim{placeOf(netip.MustParseAddrPort("192.0.2.66:2123")), 99, 99}
	if !l.claim(time.Second, one, instance{1, 7}) || !l.claim(time.Second, other, instance{1, 7}) {
		t.Error("claiming a free TEID was refused")
	}
	l.accept(time.Second, one, instance{1, 7})
	l.accept(time.Second, other, instance{1, 7})
	if o, ok := l.find(time.Second, 99); !ok || o.address != one.address {
		t.Errorf("%+v, %v", o, ok)
	}
	if n := l.overflow.Load(); n != 2 { // one TEID made room, and the second peer's is not learned
		t.Errorf("counted %d forgotten TEIDs, want 2", n)
	}
}

// TestNobodyChoosesBuckets learns a TEID, and then TEIDs that share its bucket in another director. The
// first TEID must stay. So must a request, after requests that share its bucket in another director.
func TestNobodyChoosesBuckets(t *testing.T) {
	honest, attacker, at := placeOf(somebody), placeOf(netip.MustParseAddrPort("192.0.2.66:2123")), instance{1, 7}
	elsewhere, l := newLearned(1<<16, time.Hour), newLearned(1<<16, time.Hour)
	l.accept(time.Second, claim{honest, 1, 1}, at)
	bucket, _ := elsewhere.bucket(1)
	for teid, n := uint32(2), 0; n < ways; teid++ {
		if b, _ := elsewhere.bucket(teid); b == bucket {
			l.accept(2*time.Second, claim{attacker, teid, teid}, at)
			n++
		}
	}
	if o, ok := l.find(2*time.Second, 1); !ok || o.address != honest {
		t.Errorf("learned TEID: got %+v, found %v", o, ok)
	}

	other, x := newExchanges(1<<12, time.Minute, 1), newExchanges(1<<12, time.Minute, 1)
	begin := func(from place, sequence uint32) {
		x.add(time.Second, exchange{from: from, to: honest, sequence: sequence, kind: gtpc.ModifyBearerRequest})
	}
	index := func(from place, sequence uint32) uint64 {
		return other.hash(&from, 0, sequence) & uint64(len(other.index)-1)
	}
	begin(honest, 1)
	for sequence, n := uint32(1), 0; n < indexWays; sequence++ {
		if index(attacker, sequence) == index(honest, 1) {
			begin(attacker, sequence)
			n++
		}
	}
	if _, ok := x.find(time.Second, honest, 0, 1, gtpc.ModifyBearerRequest); !ok {
		t.Error("the request was not found")
	}
}
