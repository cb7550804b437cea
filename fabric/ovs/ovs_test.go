package ovs

import (
	"context"
	"os"
	"testing"

	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// userServer is the environment's name for the socket of a switch that is to
// be used.
const userServer = "OVS_TEST_SERVER"

// cases are one fabric: with the run's own switch, or with the user's where
// the environment has one.
func cases() fabrictest.Cases {
	with := func(c Config) fabrictest.Case {
		return fabrictest.Case{
			Make: func(run *runstate.Run) (fabric.Fabric, error) {
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
	if socket := os.Getenv(userServer); socket != "" {
		return fabrictest.Cases{"user": with(Config{Server: socket, Rules: RulesFlows, Options: segment.Options{MTU: 9000}})}
	}
	return fabrictest.Cases{"default": with(Config{})}
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestOVSFabric(t *testing.T) {
	t.Parallel()
	fabrictest.RunAll(t, cases())
}
