package direct

import (
	"os"
	"testing"

	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/runs"
)

func cases() fabrictest.Cases {
	return fabrictest.Cases{"cable": {
		Make:   func(run *runs.Run) (fabric.Fabric, error) { return New(Config{Run: run}) },
		Fabric: segment.Name, Limit: 2,
	}}
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestDirectFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }
