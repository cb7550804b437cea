package flex

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/policy"
)

// TestAnotherPolicyDecides runs instances by the rules of other autoscalers and their own targets,
// at 50/s with 20/s per instance. The tolerance of hpa accepts three instances at 16/s each.
func TestAnotherPolicyDecides(t *testing.T) {
	for name, want := range map[string]int{"fixed=2": 2, "hpa": 3, "hpa=0.6": 4, "knative=0.9": 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "")
			var err error
			if r.Policy, err = policy.New(name, nil); err != nil {
				t.Fatal(err)
			}
			r.PolicyName = name
			r.director.rate = 50
			r.run(2 * time.Minute)
			if n := r.inState(decide.Active); n != want {
				t.Errorf("%s: got %d active instances, want %d: %+v", name, n, want, r.Events())
			}
			if s := r.Status(); s.Policy != name {
				t.Errorf("policy in the status: got %q", s.Policy)
			}
			if !r.has(EventStart, name+": ") {
				t.Errorf("%s: no start event gives its reason: %+v", name, r.Events())
			}
		})
	}
}

// TestRestartUnderAPolicyDrainsNothing restarts the orchestrator. The rules of other autoscalers then keep
// what runs, although no rate is known in the first second.
func TestRestartUnderAPolicyDrainsNothing(t *testing.T) {
	for name, want := range map[string]int{"hpa": 3, "knative": 4} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "")
			take := func(d time.Duration) {
				var err error
				if r.Policy, err = policy.New(name, nil); err != nil {
					t.Fatal(err)
				}
				r.run(d)
			}
			r.director.rate = 50
			take(2 * time.Minute)
			r.restart()
			take(5 * time.Second)
			if n := r.inState(decide.Active); n != want || r.has(EventDrain, "") {
				t.Errorf("%s: got %d active instances, want %d: %+v", name, n, want, r.Events())
			}
		})
	}
}

// TestAPolicyStopsWhatHasNotStarted checks that instances that are not ready are removed at once.
func TestAPolicyStopsWhatHasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.runner.boot = time.Hour
		take := func(name string) {
			var err error
			if r.Policy, err = policy.New(name, nil); err != nil {
				t.Fatal(err)
			}
			r.run(10 * time.Second)
		}
		take("fixed=4")
		if n := r.inState(decide.Starting); n != 4 {
			t.Fatalf("got %d starting instances, want 4", n)
		}
		take("fixed=1")
		if n := r.inState(decide.Starting); n != 1 || len(r.runner.units) != 1 {
			t.Errorf("got %d starting instances and %d units, want 1", n, len(r.runner.units))
		}
		if why := strings.Join(r.Status().Types[0].Why, " "); strings.Contains(why, "hold") {
			t.Errorf("the type reports a hold: %s", why)
		}
	})
}
