package macvtap

import (
	"os"
	"strings"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

func cases() fabrictest.Cases {
	c := make(fabrictest.Cases)
	for _, mode := range []string{"bridge", "vepa", "passthru"} {
		c[mode] = fabrictest.Case{
			Make:   func(run *runstate.Run) (fabric.Fabric, error) { return New(Config{Run: run, Mode: mode}) },
			Fabric: segment.Name,
		}
	}
	return c
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestMacvtapFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }

func TestMacvtapBadInput(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	for _, c := range []Config{{Mode: "source"}, {Mode: "private"}, {Mode: "passthru", Parent: "absent0"}, {Parent: "absent0"}, {Options: segment.Options{MTU: 10}}} {
		c.Run = run
		if _, err := New(c); !vitrine.IsBadInput(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestMacvtapParent runs the suite over an interface of the host.
func TestMacvtapParent(t *testing.T) {
	fabrictest.RunParent(t, map[string]bool{"bridge": true, "vepa": true}, func(run *runstate.Run, mode, parent string, options segment.Options) (*segment.Segment, error) {
		return New(Config{Run: run, Mode: mode, Parent: parent, Options: options})
	})
}

// TestMacvtapPassthruParent checks that a named parent serves one instance,
// among all runs.
func TestMacvtapPassthruParent(t *testing.T) {
	host := fabrictest.NewHost(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f := fabrictest.OnHost(t, host, func() (*segment.Segment, error) { return New(Config{Run: run, Mode: "passthru", Parent: "eno1"}) })
	bench := fabrictest.NewBench(t, f, run)
	if err := bench.Reach(bench.Attach("bono-1"), host.Uplink()); err != nil {
		t.Error(err)
	}
	if _, err := f.Attach(t.Context(), fabric.Port{Instance: "sprout-1", NetNS: fabrictest.Place(t, run.ID, "sprout-1")}); !vitrine.IsBadInput(err) {
		t.Errorf("attach of a second instance: got %v", err)
	}
	other := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f = fabrictest.OnHost(t, host, func() (*segment.Segment, error) { return New(Config{Run: other, Mode: "passthru", Parent: "eno1"}) })
	defer f.Close(t.Context())
	if _, err := f.Attach(t.Context(), fabric.Port{Instance: "bono-1", NetNS: fabrictest.Place(t, other.ID, "bono-1")}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "eno1 cannot be a parent") {
		t.Errorf("attach of another run's instance: got %v", err)
	}
}
