package simulate_test

import (
	"testing"

	"vitrine/flex/simulate"
)

// TestSweepHasASeed checks that a seed gives its own loads, and the same ones each time.
func TestSweepHasASeed(t *testing.T) {
	sweep := func(seed uint64) float64 {
		t.Helper()
		c := register(0)
		c.Seed = seed
		all, err := simulate.Sweep(c, 2, 2000, nil)
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Arrived
	}
	if one, other := sweep(0), sweep(1000); one == other || sweep(1000) != other {
		t.Errorf("%v transactions with seed 0, %v and %v with seed 1000", one, other, sweep(1000))
	}
}
