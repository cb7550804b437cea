package decide_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"vitrine/flex/decide"
)

// lose lets all directors find instances away from now on. They get nothing.
func (w *world) lose(lost func(in *decide.Instance) bool) {
	since := w.now
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			in := &v.Instances[i]
			if in.Away = 0; in.State >= decide.Active && lost(in) {
				in.Away = min(w.now.Sub(since), w.now.Sub(in.Since))
				in.Rate, in.P99, in.Success, in.Served = 0, 0, 1, false
			}
		}
	}
}

// TestALostInstanceIsReplaced lets one of two instances hang. Its calls are no evidence against the profile.
func TestALostInstanceIsReplaced(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(70), simple(1, 4, 40))
	w.run(100)
	before := len(w.log)
	w.lose(func(in *decide.Instance) bool { return in.Name == "i-1" })
	w.run(9)
	if len(w.log) > before {
		t.Errorf("after 9 s: %+v", w.log[before:])
	}
	w.run(400)
	var got []string
	for _, a := range w.log[before:] {
		got = append(got, fmt.Sprintf("%s: %s %s", a.Kind, a.Cause, a.Instance))
	}
	if want := []string{"start: rate ", "drain: away i-1", "stop: drained i-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if faith := w.memory.Types["register"].Faith; faith != 1 || w.holds[decide.CauseElsewhere] > 0 {
		t.Errorf("got faith %g, and %d s in which the fault was elsewhere", faith, w.holds[decide.CauseElsewhere])
	}
}

// TestTheOnlyInstanceIsReplacedAtLast lets the only instance hang, and the first two that replace it.
func TestTheOnlyInstanceIsReplacedAtLast(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(30), simple(1, 1, 40))
	w.run(100)
	w.lose(func(in *decide.Instance) bool { return in.Name <= "i-3" })
	w.run(600)
	if len(w.instances) != 1 || w.instances[0].Name != "i-4" || w.instances[0].State != decide.Active {
		t.Errorf("got %+v, want the fourth instance alone", w.instances)
	}
}

// TestAllLostInstancesAreReplaced lets both instances hang. The second replacement follows when the first serves.
func TestAllLostInstancesAreReplaced(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(70), simple(1, 4, 40))
	w.run(100)
	w.lose(func(in *decide.Instance) bool { return in.Name == "i-1" || in.Name == "i-2" })
	w.run(13)
	if n := w.started["register"]; n != 3 {
		t.Errorf("got %d starts, want the first two and one on trial", n)
	}
	w.run(120)
	if n := w.count("register", decide.Active); n != 2 || w.started["register"] != 4 || w.drained["register"] != 2 {
		t.Errorf("got %d active instances, %d starts, %d drains, want 2, 4 and 2", n, w.started["register"], w.drained["register"])
	}
}

// TestALostNetworkKeepsTheInstances breaks the network between the directors and the host for an hour, in which
// the orchestrator restarts often. Instances on trial come and go, and the others stay.
func TestALostNetworkKeepsTheInstances(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(60), simple(1, 50, 40))
	w.restart = 7
	w.run(100)
	broken := true
	w.lose(func(*decide.Instance) bool { return broken })
	w.run(3600)
	if n := w.started["register"] - 2; n < 3 || n > 20 || w.holds[decide.CauseAway] < 3500 {
		t.Errorf("got %d starts in vain, %d s of hold, want 3 to 20, and at least 3500", n, w.holds[decide.CauseAway])
	}
	if n := w.count("register", existing...); n > 4 || w.instances[0].Name != "i-1" || w.instances[1].Name != "i-2" {
		t.Errorf("want the first two instances and at most two on trial, got %+v", w.instances)
	}
	broken = false
	w.run(900)
	if n := w.count("register", serving...); n != 2 {
		t.Errorf("got %d instances after the outage, want 2", n)
	}
}
