package source

import (
	"net/netip"
	"testing"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8:1:2:3::4": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		if got := Of(netip.MustParseAddr(text)); got != netip.MustParseAddr(want) {
			t.Errorf("the source of %s is %s, want %s", text, got, want)
		}
	}
	if got := Of(netip.Addr{}); got.IsValid() {
		t.Errorf("the source of no address is %s", got)
	}
}

func TestIn(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.3.0.0/16"), netip.MustParsePrefix("2001:db8::/32")}
	for text, want := range map[string]bool{
		"10.3.1.2": true, "::ffff:10.3.1.2": true, "2001:db8:1::4": true, "10.4.0.1": false, "2001:db9::1": false,
	} {
		if got := In(netip.MustParseAddr(text), networks); got != want {
			t.Errorf("%s in %v: got %v, want %v", text, networks, got, want)
		}
	}
	if In(netip.MustParseAddr("10.3.1.2"), nil) {
		t.Error("an address is in one of no networks")
	}
}
