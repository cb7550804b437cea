package macvlan

import (
	"os"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

func cases() fabrictest.Cases {
	c := make(fabrictest.Cases)
	for _, mode := range []string{"bridge", "vepa"} {
		c[mode] = fabrictest.Case{
			Make:   func(run *runstate.Run) (fabric.Fabric, error) { return New(Config{Run: run, Mode: mode}) },
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

// TestMacvlanParent runs the suite over an interface of the host.
func TestMacvlanParent(t *testing.T) {
	fabrictest.RunParent(t, map[string]bool{"bridge": true, "vepa": true, "private": false}, func(run *runstate.Run, mode, parent string, options segment.Options) (*segment.Segment, error) {
		return New(Config{Run: run, Mode: mode, Parent: parent, Options: options})
	})
}
