package ovs

import (
	"context"
	"os"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// userServer is the environment variable with the socket of the user's switch.
const userServer = "OVS_TEST_SERVER"

// cases returns one fabric. It uses the user's switch if the environment names one, and otherwise a
// switch of the run.
func cases() fabrictest.Cases {
	with := func(c Config) fabrictest.Case {
		return fabrictest.Case{
			Make: func(run *runstate.Run) (fabric.Fabric, error) {
				c.Run = run
				f, err := New(context.Background(), c)
				if err != nil {
					return nil, err // not a nil *Fabric in the interface
				}
				return f, nil
			},
			Fabric: segment.Name, MTU: c.MTU,
			Cleaner: func(root string) vitrine.Cleaner { return Cleaner{Root: root} },
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
