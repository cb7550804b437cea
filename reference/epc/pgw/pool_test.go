package pgw

import (
	"net/netip"
	"testing"
)

func TestPool(t *testing.T) {
	p, err := newPool(netip.MustParsePrefix("10.45.0.9/29"))
	if err != nil {
		t.Fatal(err)
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
