package pgw

import (
	"io"
	"net/netip"
	"testing"

	"vitrine/reference/ims"
)

func TestPool(t *testing.T) {
	p, ok := newPool(netip.MustParsePrefix("10.45.0.9/29"))
	if !ok {
		t.Fatal("the prefix was refused")
	}
	var taken []netip.Addr
	for {
		a, ok := p.take()
		if !ok {
			break
		}
		taken = append(taken, a)
	}
	if len(taken) != 6 || taken[0].String() != "10.45.0.9" || taken[5].String() != "10.45.0.14" {
		t.Errorf("%v", taken)
	}
	// Addresses that were given back first are given out first.
	for _, i := range []int{3, 1} {
		p.give(taken[i])
	}
	for _, i := range []int{3, 1} {
		if a, ok := p.take(); !ok || a != taken[i] {
			t.Errorf("got %v, %v, want %v", a, ok, taken[i])
		}
	}
	if a, ok := p.take(); ok {
		t.Errorf("the pool returned %v twice", a)
	}
}

// TestDefaultPoolHasAnAddressForEachSession compares the defaults of --pool and --sessions.
func TestDefaultPoolHasAnAddressForEachSession(t *testing.T) {
	var k Config
	c := ims.NewCommand("pgw", "", io.Discard, io.Discard)
	k.Node.Flags(c)
	k.Flags(c)
	p, ok := newPool(netip.MustParsePrefix(k.pool))
	if !ok {
		t.Fatalf("the pool %s was refused", k.pool)
	}
	for n := range k.Node.Sessions {
		if _, ok := p.take(); !ok {
			t.Fatalf("the pool %s ended after %d of %d sessions", k.pool, n, k.Node.Sessions)
		}
	}
}
