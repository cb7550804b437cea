package ovs

import (
	"context"
	"os"
	"testing"

	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/runs"
	"vitrine/spec"
)

// cases are the ways to have the fabric that every kernel of today allows.
func cases() fabrictest.Cases {
	with := func(c Config) fabrictest.Case {
		return fabrictest.Case{
			Make: func(run *runs.Run) (fabric.Fabric, error) {
				c.Run = run
				f, err := New(context.Background(), c)
				if err != nil {
					return nil, err // not a *Fabric that is nil
				}
				return f, nil
			},
			Fabric: segment.Name, MTU: c.MTU,
		}
	}
	return fabrictest.Cases{
		"default": with(Config{}),
		"flows":   with(Config{Rules: RulesFlows, Datapath: DatapathNetdev, CPUs: spec.CPUs{0}, Options: segment.Options{MTU: 9000}}),
	}
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestOVSFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }
