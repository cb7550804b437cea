package machine

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"vitrine"
)

// TestTakeRefusesIpvlan checks that take changes nothing on an ipvlan and names another fabric. take
// has no handle here, so that it cannot reach this host's interfaces.
func TestTakeRefusesIpvlan(t *testing.T) {
	err := new(Link).take(nil, &netlink.IPVlan{})
	if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "use the fabric macvlan") {
		t.Errorf("got error %v, want Unsupported", err)
	}
}
