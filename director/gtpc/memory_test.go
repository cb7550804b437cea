package gtpc

import (
	"net/netip"
	"testing"
	"time"

	"vitrine/wire/gtpc"
)

var somebody = netip.MustParseAddrPort("127.0.0.9:2123")

// TestLearnedIsBounded checks that idle TEIDs are forgotten. If there are too many, the
// least recently used are forgotten and counted.
func TestLearnedIsBounded(t *testing.T) {
	const limit = 64
	l := newLearned(limit, time.Hour)
	at := instance{1, 7}
	for i := range uint32(10 * limit) {
		l.put(time.Duration(i)*time.Second, directorSpace, i+1, owner{instance: at, key: uint64(i), hasKey: true})
	}
	now := 10 * limit * time.Second
	if n, lost := l.len(now), l.overflow.Load(); n != limit || lost != 9*limit {
		t.Errorf("%d are remembered, %d were forgotten", n, lost)
	}
	if o, ok := l.find(now, directorSpace, 10*limit); !ok || o.instance != at || o.key != 10*limit-1 {
		t.Errorf("the last one: %+v, %v", o, ok)
	}
	if _, ok := l.find(now, directorSpace+1, 10*limit); ok {
		t.Error("it is found in another space")
	}
	if _, ok := l.find(now+2*time.Hour, directorSpace, 10*limit); ok || l.len(now+2*time.Hour) != 0 {
		t.Error("one is found after two hours without use")
	}
	lost := l.overflow.Load()
	for i := range uint32(limit) {
		l.put(now+2*time.Hour, directorSpace, 1_000_000+i, owner{instance: at})
	}
	if full := l.overflow.Load() - lost; full > limit/2 { // chance fills some buckets, never all
		t.Errorf("%d of %d idle places made no room", full, limit)
	}
	l.put(now+2*time.Hour, directorSpace, 5, owner{instance: at})
	l.forget(directorSpace, 5)
	if _, ok := l.find(now+2*time.Hour, directorSpace, 5); ok {
		t.Error("it was to be forgotten")
	}
}

// TestExchangesAreBounded checks that exchanges are forgotten in the order of their
// begin. Exchanges without an answer in time are not found; those that made room are
// counted.
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
			t.Fatalf("the number %d is given", n)
		}
		seen[n] = true
		if i < limit {
			if _, first, ok := x.answer(time.Second, n, somebody); !first || !ok {
				t.Fatal("the first answer is not seen as one")
			}
			if _, first, ok := x.answer(time.Second, n, somebody); first || !ok {
				t.Fatal("the second answer is not seen as one")
			}
		}
	}
	if lost := x.overflow.Load(); lost != 2*limit {
		t.Errorf("%d unanswered ones were forgotten", lost)
	}
	found := 0
	for i := range uint32(4 * limit) {
		e, ok := x.find(time.Second, placeOf(somebody), 0, i, gtpc.ModifyBearerRequest)
		if ok && (i < 3*limit || e.sequence != i) {
			t.Fatalf("number %d finds %+v", i, e)
		}
		if ok {
			found++
		}
	}
	if found < limit*95/100 {
		t.Errorf("%d of the last %d are found", found, limit)
	}
	if _, ok := x.find(2*time.Minute, placeOf(somebody), 0, 4*limit-1, 0); ok {
		t.Error("one is found that is too old")
	}
	n := begin(2*time.Minute, 1)
	if _, _, ok := x.answer(2*time.Minute, n, netip.MustParseAddrPort("127.0.0.9:2124")); ok {
		t.Error("an answer from another port is taken")
	}
	if x.overflow.Load() != 2*limit {
		t.Error("one that was too old is counted as forgotten")
	}
}
