package macvlan

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runs"
)

func cases() fabrictest.Cases {
	c := make(fabrictest.Cases)
	for _, mode := range []string{"bridge", "vepa"} {
		c[mode] = fabrictest.Case{
			Make:   func(run *runs.Run) (fabric.Fabric, error) { return New(Config{Run: run, Mode: mode}) },
			Fabric: segment.Name,
		}
	}
	return c
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestMacvlanFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }

func TestMacvlanBadInput(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	for _, c := range []Config{{Mode: "source"}, {Mode: "private"}, {Parent: "absent0"}, {Options: segment.Options{MTU: 10}}} {
		c.Run = run
		if _, err := New(c); !vitrine.IsBadInput(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestMacvlanParent: instances on an interface of the host reach each other as the
// mode says, and what the interface leads to.
func TestMacvlanParent(t *testing.T) {
	for mode, together := range map[string]bool{"bridge": true, "vepa": true, "private": false} {
		t.Run(mode, func(t *testing.T) {
			host := fabrictest.NewHost(t)
			run := fabrictest.NewRun(t, t.TempDir()+"/runs")
			var f fabric.Fabric
			host.Do(t, func() (err error) {
				f, err = New(Config{Run: run, Mode: mode, Parent: "eno1"})
				return err
			})
			bench := fabrictest.NewBench(t, f, run)
			bono, sprout := bench.Attach("bono-1"), bench.Attach("sprout-1")
			if err := bench.Reach(bono, sprout); (err == nil) != together {
				t.Errorf("want them to reach each other: %t; %v", together, err)
			}
			for _, in := range []fabrictest.Instance{bono, sprout} {
				if err := bench.Reach(in, host.Uplink()); err != nil {
					t.Error(err)
				}
			}
			if err := f.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if links, err := fabrictest.Interfaces(host.Path); err != nil || !slices.Equal(links, []string{"eno1", "eno2", "lo"}) {
				t.Errorf("the host has %q, %v", links, err)
			}
		})
	}
}

// TestMacvlanParentTwoRuns: two runs at once on one parent do not collide.
func TestMacvlanParentTwoRuns(t *testing.T) {
	fabrictest.Apart(t, fabrictest.NewHost(t), func(run *runs.Run) (fabric.Fabric, error) { return New(Config{Run: run, Parent: "eno1"}) })
}

// TestMacvlanParentRefused: an interface that is down or in use is refused, by name.
func TestMacvlanParentRefused(t *testing.T) {
	host := fabrictest.NewHost(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	refused := func(config Config, words string) {
		t.Helper()
		host.Do(t, func() error {
			config.Run = run
			if _, err := New(config); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), words) {
				t.Errorf("%+v: %v; want a *vitrine.BadInput with %q", config, err, words)
			}
			return nil
		})
	}
	refused(Config{Parent: "eno3"}, `no interface "eno3"`)
	refused(Config{Parent: "eno1", Options: segment.Options{MTU: 9000}}, "at most 1500")
	refused(Config{Parent: "lo"}, "lo")
	host.Do(t, func() error {
		eno1, err := netlink.LinkByName("eno1")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(eno1)
	})
	refused(Config{Parent: "eno1"}, "eno1 is down")
	if err := netns.Do(host.Switch, func() error { // where both are in a bridge
		_, err := New(Config{Run: run, Parent: "eno2"})
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("in a bridge: %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
