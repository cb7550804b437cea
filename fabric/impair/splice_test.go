package impair

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
)

// TestImpairCanCut checks that links are refused that would carry no packets after they were cut.
func TestImpairCanCut(t *testing.T) {
	for _, c := range []struct {
		link   netlink.Link
		refuse bool
	}{
		{&netlink.Veth{}, false},
		{&netlink.Macvlan{}, false},
		{&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, true},
		{&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{RawFlags: unix.IFF_NOARP}}, true},
	} {
		if err := canCut(c.link); vitrine.IsUnsupported(err) != c.refuse {
			t.Errorf("%s: got %v, want it refused: %t", c.link.Type(), err, c.refuse)
		}
	}
}
