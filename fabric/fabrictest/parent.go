package fabrictest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Over creates a fabric whose instances have interfaces on a parent interface, such as macvlan.
// The parent belongs to the calling thread's network namespace. The mode may be empty.
type Over func(run *runstate.Run, mode, parent string, options segment.Options) (*segment.Segment, error)

// RunParent runs the suite on such a fabric, with a parent that the user names. together says for
// each mode whether instances on one parent reach each other.
func RunParent(t *testing.T, together map[string]bool, open Over) {
	t.Helper()
	for mode, reach := range together {
		t.Run(mode, func(t *testing.T) {
			testParent(t, reach, func(run *runstate.Run) (fabric.Fabric, error) { return open(run, mode, "eno1", segment.Options{}) })
		})
	}
	t.Run("TwoRuns", func(t *testing.T) {
		Apart(t, NewHost(t), func(run *runstate.Run) (fabric.Fabric, error) { return open(run, "", "eno1", segment.Options{}) })
	})
	t.Run("Refused", func(t *testing.T) { testParentRefused(t, open) })
}

// testParent checks that instances on a host interface reach the switch, and reach each other only
// if together is true. At the end, the host must have the same interfaces as before.
func testParent(t *testing.T, together bool, open Make) {
	host := NewHost(t)
	run := NewRun(t, t.TempDir()+"/runs")
	f := OnHost(t, host, func() (fabric.Fabric, error) { return open(run) })
	bench := NewBench(t, f, run)
	bono, sprout := bench.Attach("bono-1"), bench.Attach("sprout-1")
	if err := bench.Reach(bono, sprout); (err == nil) != together {
		t.Errorf("want instances to reach each other: %t; %v", together, err)
	}
	for _, in := range []Instance{bono, sprout} {
		if err := bench.Reach(in, host.Uplink()); err != nil {
			t.Error(err)
		}
	}
	NotLent(t, host, run.Root)
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if links, err := Interfaces(host.Path); err != nil || !slices.Equal(links, []string{"eno1", "eno2", "lo"}) {
		t.Errorf("the host has the interfaces %q, %v", links, err)
	}
}

// NotLent checks that the host's eno1 cannot be lent while instances of a run use it as parent.
// The run is registered in root.
func NotLent(t *testing.T, host Host, root string) {
	t.Helper()
	host.Do(t, func() error {
		lender, err := segment.NewLender(NewRun(t, root))
		if err != nil {
			return err
		}
		if _, err := lender.Free("direct", "eno1", true); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "go out by it") {
			t.Errorf("lend eno1: %v; want a *vitrine.BadInput", err)
		}
		return lender.Close()
	})
}

// testParentRefused checks that a fabric refuses a parent that is missing, is down, is in use, has
// too small an MTU or is named by an alternative name. The error must name the parent.
func testParentRefused(t *testing.T, open Over) {
	host := NewHost(t)
	run := NewRun(t, t.TempDir()+"/runs")
	refused := func(on Host, parent string, mtu int, words string) {
		t.Helper()
		on.Do(t, func() error {
			if _, err := open(run, "", parent, segment.Options{MTU: mtu}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s, MTU %d: %v; want a *vitrine.BadInput with %q", parent, mtu, err, words)
			}
			return nil
		})
	}
	refused(host, "eno3", 0, `no interface "eno3"`)
	refused(host, "eno1", 9000, "at most 1500")
	refused(host, "lo", 0, "lo")
	refused(Host{Path: host.Switch}, "eno2", 0, "in use") // both interfaces of the switch are in a bridge
	host.Do(t, func() error {
		eno1, err := netlink.LinkByName("eno1")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkAddAltName(eno1, "enp3s0"), netlink.LinkSetDown(eno1))
	})
	refused(host, "enp3s0", 0, "enp3s0 is another name of the interface eno1")
	refused(host, "eno1", 0, "eno1 is down")
}
