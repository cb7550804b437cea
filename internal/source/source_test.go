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
