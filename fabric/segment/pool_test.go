package segment

import (
	"net/netip"
	"slices"
	"testing"

	"vitrine"
)

func TestPoolGoesRound(t *testing.T) {
	p := pool{first: netip.MustParsePrefix("198.18.0.10/28"), taken: make(map[netip.Addr]bool)}
	var had []string
	for range 5 {
		addr, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		p.take(addr)
		had = append(had, addr.String())
	}
	if want := []string{"198.18.0.10/28", "198.18.0.11/28", "198.18.0.12/28", "198.18.0.13/28", "198.18.0.14/28"}; !slices.Equal(had, want) {
		t.Errorf("got addresses %q, want %q", had, want)
	}
	if addr, err := p.next(); err == nil {
		t.Errorf("got address %s although no address is free", addr)
	}
	p.give(netip.MustParsePrefix("198.18.0.12/28"))
	p.give(netip.MustParsePrefix("198.18.0.11/28"))
	if addr, err := p.next(); err != nil || addr.String() != "198.18.0.11/28" {
		t.Errorf("after two addresses were released: got %s, error %v", addr, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{First: "198.18.0.0/16"}, {First: "198.18.0.1"}, {First: "198.18.0.1/31"}, {First: "fd00::1/64"}, {MTU: 67}, {MTU: 65536}} {
		s := Segment{Config: Config{Options: o}}
		if err := s.resolve(); !vitrine.IsBadInput(err) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	s := Segment{}
	if err := s.resolve(); err != nil || s.MTU != 1500 || s.pool.first.String() != "198.18.0.1/16" {
		t.Errorf("defaults: got error %v, MTU %d, first address %s", err, s.MTU, s.pool.first)
	}
}
