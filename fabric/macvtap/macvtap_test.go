package macvtap

import (
	"os"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/runs"
)

func cases() fabrictest.Cases {
	c := make(fabrictest.Cases)
	for _, mode := range []string{"bridge", "vepa", "passthru"} {
		c[mode] = fabrictest.Case{
			Make:   func(run *runs.Run) (fabric.Fabric, error) { return New(Config{Run: run, Mode: mode}) },
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
