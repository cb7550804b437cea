package ipvlan

import (
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

func cases() fabrictest.Cases {
	c := make(fabrictest.Cases)
	for _, mode := range []string{"l2", "l3"} {
		c[mode] = fabrictest.Case{
			Make:   func(run *runstate.Run) (fabric.Fabric, error) { return New(Config{Run: run, Mode: mode}) },
			Fabric: segment.Name, Unicast: mode == "l3",
		}
	}
	return c
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestIpvlanFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }

func TestIpvlanBadInput(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	for _, c := range []Config{{Mode: "l4"}, {Mode: "bridge"}} {
		c.Run = run
		if _, err := New(c); !vitrine.IsBadInput(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestIpvlanLeavesTheModeOfOthers checks that a run does not begin over a parent with interfaces in
// another mode, of a live run or of the host. The kernel would change the mode of these.
func TestIpvlanLeavesTheModeOfOthers(t *testing.T) {
	host := fabrictest.NewHost(t)
	root := t.TempDir() + "/runs"
	run := fabrictest.NewRun(t, root)
	refused := func(who string) {
		t.Helper()
		host.Do(t, func() error {
			if _, err := New(Config{Run: run, Parent: "eno1"}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), who+" over it in mode l3") {
				t.Errorf("got %v, want a *vitrine.BadInput with %q", err, who)
			}
			return nil
		})
	}
	other := fabrictest.NewRun(t, root)
	if err := other.Record("uplink", "eno1", []byte("mode l3 bridge")); err != nil { // as New does where the kernel has ipvlan
		t.Fatal(err)
	}
	refused("run " + other.ID + " has interfaces")
	if err := other.Erase("uplink", "eno1"); err != nil {
		t.Fatal(err)
	}
	var lacks error
	host.Do(t, func() error {
		eno1, err := netlink.LinkByName("eno1")
		if err != nil {
			return err
		}
		lacks = netlink.LinkAdd(&netlink.IPVlan{LinkAttrs: netlink.LinkAttrs{Name: "theirs", TxQLen: -1, ParentIndex: eno1.Attrs().Index}, Mode: netlink.IPVLAN_MODE_L3})
		return nil
	})
	if lacks != nil {
		t.Skip("the second half needs ipvlan: ", lacks)
	}
	refused("theirs is")
}

// TestIpvlanSaysWhatIsMissing checks that New and Check agree, and that the
// error names the kernel option.
func TestIpvlanSaysWhatIsMissing(t *testing.T) {
	check := Check(t.Context())[0]
	f, err := New(Config{Run: fabrictest.NewRun(t, t.TempDir()+"/runs")})
	if err == nil {
		err = f.Close(t.Context())
	}
	if check.OK != (err == nil) {
		t.Errorf("check %+v disagrees with the error %v", check, err)
	}
	if err != nil && (!vitrine.IsUnsupported(err) || netns.Possible() == nil && !strings.Contains(err.Error(), "CONFIG_IPVLAN")) {
		t.Errorf("got %v, want a *vitrine.Unsupported that names CONFIG_IPVLAN", err)
	}
}
