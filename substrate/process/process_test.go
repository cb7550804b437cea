package process

import (
	"os"
	"testing"

	"vitrine/fabric/fabrictest"
	"vitrine/substrate/substratetest"
)

func TestProcessSubstrate(t *testing.T) { substratetest.Run(t, open) }

func open(t *testing.T, root string) substratetest.Harness {
	t.Helper()
	run := fabrictest.NewRun(t, root)
	s, err := New(Config{Run: run, Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	return substratetest.Harness{Substrate: s, Run: run, BySession: s.groups == nil}
}

// TestProcessSubstrateUnprivileged runs TestProcessSubstrate as an ordinary user.
func TestProcessSubstrateUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user is not root: see TestProcessSubstrate")
	}
	substratetest.Unprivileged(t, "TestProcessSubstrate", nil,
		"StartStopStart", "StopEndsFamily", "StopEndsLeft", "Affinity", "Spent", "Vantage", "Readiness", "Peers", "KilledRun", "Remove")
}
