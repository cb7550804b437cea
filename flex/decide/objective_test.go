package decide_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vitrine/flex/decide"
)

// TestOneBadSecondStartsNothing breaks the objective for as long as one bad second shows in the figures.
func TestOneBadSecondStartsNothing(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(300), simple(1, 50, 100))
	w.alter = func(v *decide.View) {
		if w.second < 200 || w.second >= 200+int(decide.Window.Seconds()) {
			return
		}
		for i := range v.Instances {
			v.Instances[i].P99 = time.Second
		}
	}
	w.run(199)
	before := len(w.log)
	w.run(60)
	if n := len(w.log) - before; n > 0 {
		t.Errorf("got %d actions after a bad second, the first is %+v", n, w.log[before])
	}
}

// TestChanceIsNoEvidence breaks the objective of all instances a little. The profile is wrong only if chance
// does not explain that.
func TestChanceIsNoEvidence(t *testing.T) {
	for chance, want := range map[bool]int{true: 3, false: 4} {
		w := newWorld(t, 10*time.Second, constant(300), simple(1, 50, 100))
		w.alter = func(v *decide.View) {
			v.Types[0].Chance = chance
			for i := range v.Instances {
				v.Instances[i].Success = 0.98
			}
		}
		w.run(35)
		if n := w.count("register", serving...); n != want {
			t.Errorf("explained by chance %t: got %d instances, want %d", chance, n, want)
		}
	}
}

// TestASlowInstanceByChanceKeepsNoOthers lets one instance be slow by so few transactions that chance explains
// them. The others must be drained when the load falls.
func TestASlowInstanceByChanceKeepsNoOthers(t *testing.T) {
	w := newWorld(t, time.Second, burst(500, 50, 50), simple(1, 50, 100))
	w.alter = func(v *decide.View) {
		v.Types[0].Chance = true
		if len(v.Instances) > 0 {
			v.Instances[0].P99 = time.Second
		}
	}
	w.run(600)
	if n := w.count("register", serving...); n != 1 {
		t.Errorf("got %d instances for 50/s of 100/s each, want 1", n)
	}
}

// TestNoiseHidesNoWrongProfile has many small instances, which leave just the headroom free. The rate of some
// seconds is above the rest, but not above what the instances carry by the profile.
func TestNoiseHidesNoWrongProfile(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, 10*time.Second, constant(1000), simple(1, 300, 10))
		w.types[0].Headroom = 0.1
		w.noise, w.truth = rand.New(rand.NewPCG(seed, 9)), 0.8
		w.run(100)
		if !slices.ContainsFunc(w.log, func(a decide.Action) bool { return a.Kind == decide.Start && a.Cause == decide.CauseProfile }) {
			t.Errorf("seed %d: the wrong profile was not found in 100 s, with %d instances", seed, w.count("register", serving...))
		}
	}
}

// TestALeaseIsNoEvidence lets redline overload an instance for half a minute.
func TestALeaseIsNoEvidence(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(150), simple(1, 50, 100))
	w.run(100)
	before := len(w.log)
	w.types[0].Leased = true
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			in := &v.Instances[i]
			if in.Rate = 52; in.Name == "i-1" {
				in.Rate, in.P99 = 98, time.Second
			}
		}
	}
	w.run(30)
	w.types[0].Leased, w.alter = false, nil
	w.run(30)
	if faith := w.memory.Types["register"].Faith; faith != 1 || len(w.log) > before {
		t.Errorf("got faith %g and %d actions after a lease, want 1 and 0", faith, len(w.log)-before)
	}
}

// TestASlowStoreIsNoEvidence lets all instances wait for a store. That the store is past its threshold is known
// some seconds later. Until then one start may follow, and none after that.
func TestASlowStoreIsNoEvidence(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(400), simple(1, 50, 100))
	w.types[0].Headroom = 0.1
	w.run(100)
	before := len(w.log)
	w.alter = func(v *decide.View) {
		v.StoreSlow = w.second > 112
		for i := range v.Instances {
			v.Instances[i].P99 = time.Second
		}
	}
	w.run(300)
	if faith, n := w.memory.Types["register"].Faith, len(w.log)-before; faith < 0.8 || n > 1 || w.holds[decide.CauseStore] == 0 {
		t.Errorf("got faith %g, %d actions, %d s of hold, want at least 0.8, at most 1 and at least 1", faith, n, w.holds[decide.CauseStore])
	}
	w.load = constant(800)
	w.run(30)
	if len(w.log) < before+4 {
		t.Errorf("got %d actions although the rate has doubled", len(w.log)-before)
	}
}

// TestASickInstanceIsNoEvidence lets one of nine instances fail all its transactions. The others meet the objective.
func TestASickInstanceIsNoEvidence(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(800), simple(1, 50, 100))
	w.types[0].Headroom = 0.1
	w.run(100)
	before := len(w.log)
	w.alter = func(v *decide.View) { v.Instances[0].Success, v.Instances[0].Failing = 0, true }
	w.run(300)
	if faith, n := w.memory.Types["register"].Faith, len(w.log)-before; faith != 1 || n > 0 || w.holds[decide.CauseElsewhere] != 300 {
		t.Errorf("got faith %g, %d actions, %d s of hold, want 1, 0 and 300", faith, n, w.holds[decide.CauseElsewhere])
	}
}
