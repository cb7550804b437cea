package policy_test

import (
	"strings"
	"testing"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/policy"
)

// A world is a set of instances. They start within a second of the Start action and drain at once.
type world struct {
	t      *testing.T
	policy policy.Policy
	view   decide.View
	named  int
}

func newWorld(t *testing.T, name string) *world {
	t.Helper()
	p, err := policy.New(name, func(*decide.Type) int { return 3 })
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, policy: p, view: decide.View{Now: time.Unix(1_800_000_000, 0), Types: []decide.TypeView{{Known: true,
		Type: decide.Type{Name: "a", Min: 1, Max: 20, Flavors: []decide.Flavor{{Name: "s", Capacity: 100, CPUs: 1}}}}}}}
}

// second simulates one second: the policy decides once.
func (w *world) second(rate float64) []decide.Action {
	w.t.Helper()
	v := &w.view
	v.Now, v.Types[0].Rate = v.Now.Add(time.Second), rate
	for i := range v.Instances {
		if in := &v.Instances[i]; in.State == decide.Starting {
			in.State, in.Since = decide.Active, v.Now
			v.Booted = append(v.Booted, decide.Booted{Type: "a", Took: time.Second})
		}
	}
	actions := w.policy(*v, nil)
	v.Booted, v.Died = nil, nil
	for _, a := range actions {
		if a.Kind == decide.Start {
			w.named++
			v.Instances = append(v.Instances, decide.Instance{Name: string(rune('a' + w.named)), Type: "a", Flavor: a.Flavor, Since: v.Now})
			continue
		}
		for i := range v.Instances {
			if v.Instances[i].Name == a.Instance {
				v.Instances = append(v.Instances[:i:i], v.Instances[i+1:]...)
				break
			}
		}
	}
	return actions
}

func (w *world) seconds(n int, rate float64) {
	w.t.Helper()
	for range n {
		w.second(rate)
	}
}

func (w *world) has(n int) {
	w.t.Helper()
	if got := len(w.view.Instances); got != n {
		w.t.Errorf("got %d instances, want %d: %+v", got, n, w.view.Instances)
	}
}

func TestEachPolicyFollowsTheRateByItsTarget(t *testing.T) {
	for name, want := range map[string]int{"fixed": 3, "fixed=5": 5, "hpa": 8, "hpa=0.5": 12, "knative": 9, "knative=1": 6} {
		w := newWorld(t, name)
		w.seconds(400, 600)
		w.has(want)
	}
}

func TestAnUnknownRateChangesNothing(t *testing.T) {
	for _, name := range []string{"hpa", "knative"} {
		w := newWorld(t, name)
		w.seconds(400, 600)
		before := len(w.view.Instances)
		w.view.Types[0].Known = false
		w.seconds(600, 0)
		w.has(before)
	}
}

// TestRulesBeginWithTheInstancesThatRun begins while ten instances run, as after a restart. Nothing changes
// while no rate is known. Then hpa keeps the instances for 300 s, and knative for 60 s.
func TestRulesBeginWithTheInstancesThatRun(t *testing.T) {
	for name, kept := range map[string]int{"hpa": 300, "knative": 60} {
		w := newWorld(t, name)
		for i := range 10 {
			w.view.Instances = append(w.view.Instances, decide.Instance{Name: string(rune('A' + i)), Type: "a", Flavor: "s", State: decide.Active, Since: w.view.Now})
		}
		w.view.Types[0].Known = false
		w.second(0)
		w.has(10)
		w.view.Types[0].Known = true
		w.seconds(kept-15, 100)
		w.has(10)
		w.seconds(30, 100)
		w.has(2)
	}
}

// TestADeadInstanceIsReplaced checks that the first death is replaced at once, and a second one soon
// after it only after the back-off. After ten minutes without a death, the next one is the first.
func TestADeadInstanceIsReplaced(t *testing.T) {
	w := newWorld(t, "hpa")
	w.seconds(400, 600)
	for i, c := range []struct {
		want  decide.Kind
		pause int // seconds until the next death
	}{{decide.Start, 5}, {decide.Hold, 700}, {decide.Start, 5}} {
		w.view.Instances[2].State = decide.Failed
		w.view.Died = []decide.Died{{Type: "a"}}
		if got := w.second(600); len(got) != 2 || got[0].Kind != decide.Stop || got[1].Kind != c.want {
			t.Errorf("death %d: got %+v, want a stop and a %s", i+1, got, c.want)
		}
		w.seconds(c.pause, 600)
		w.has(8)
	}
}

// TestDeathsInARowBackOff checks the pauses of instances that die again and again: 0, 10, 20, 40, 80
// and 160 s, whether the instances become active or not.
func TestDeathsInARowBackOff(t *testing.T) {
	for _, lives := range []time.Duration{0, 5 * time.Second} {
		w := newWorld(t, "fixed=1")
		starts := 0
		for range 300 {
			for _, a := range w.second(1) {
				if a.Kind == decide.Start {
					starts++
				}
			}
			for i := range w.view.Instances {
				if in := &w.view.Instances[i]; in.State <= decide.Active && w.view.Now.Sub(in.Since) >= lives {
					in.State, w.view.Died = decide.Failed, []decide.Died{{Type: "a", Lived: lives}}
				}
			}
		}
		if starts != 6 {
			t.Errorf("got %d starts in 300 s of instances that die after %s, want 6", starts, lives)
		}
	}
}

// TestABurstInABackOffStartsInstances checks that the back-off holds the replacement of a dead instance, and not
// the instances for a higher rate.
func TestABurstInABackOffStartsInstances(t *testing.T) {
	w := newWorld(t, "hpa")
	w.seconds(400, 600)
	for range 4 { // the last death is followed by a back-off of 40 s
		w.view.Instances[2].State, w.view.Died = decide.Failed, []decide.Died{{Type: "a"}}
		w.second(600)
	}
	w.has(5)
	w.seconds(30, 1200)
	w.has(12)
	w.seconds(30, 1200)
	w.has(15)
}

// TestDeathsInOneSecondAreReplacedAtOnce checks that a common cause makes no row of deaths.
func TestDeathsInOneSecondAreReplacedAtOnce(t *testing.T) {
	w := newWorld(t, "fixed=3")
	w.seconds(10, 1)
	for i := range w.view.Instances {
		w.view.Instances[i].State = decide.Failed
		w.view.Died = append(w.view.Died, decide.Died{Type: "a"})
	}
	w.seconds(2, 1)
	w.has(3)
}

func TestLimitsOfTheHostHold(t *testing.T) {
	w := newWorld(t, "fixed=9")
	w.view.Limits.CPUs = 4
	got := w.second(0)
	w.has(4)
	if last := got[len(got)-1]; last.Kind != decide.Hold || last.Cause != decide.CauseTotal {
		t.Errorf("%+v", last)
	}
	w.view.Limits = decide.Limits{Starting: 2}
	w.second(0)
	w.has(6)
}

func TestALeasedTypeStaysAsItIs(t *testing.T) {
	w := newWorld(t, "fixed=4")
	w.second(0)
	w.view.Types[0].Leased, w.view.Instances = true, w.view.Instances[1:]
	if got := w.second(0); len(got) != 1 || got[0].Cause != decide.CauseLease {
		t.Errorf("%+v", got)
	}
}

// TestTheNewestGoFirst checks the order of scale-in, which is that of a Kubernetes Deployment:
// first pods that are not ready, and then the newest.
func TestTheNewestGoFirst(t *testing.T) {
	w := newWorld(t, "fixed=1")
	now := w.view.Now
	w.view.Instances = []decide.Instance{
		{Name: "new", Type: "a", Flavor: "s", State: decide.Active, Since: now},
		{Name: "old", Type: "a", Flavor: "s", State: decide.Active, Since: now.Add(-time.Hour)},
		{Name: "warm", Type: "a", Flavor: "s", State: decide.Warming, Since: now},
	}
	got := w.second(0)
	if len(got) != 2 || got[0].Kind != decide.Stop || got[0].Instance != "warm" || got[1].Kind != decide.Drain || got[1].Instance != "new" {
		t.Errorf("%+v", got)
	}
}

func TestAJumpOfTheClockDoesNotStopDecisions(t *testing.T) {
	for _, name := range []string{"hpa", "knative"} {
		w := newWorld(t, name)
		w.seconds(60, 100)
		w.view.Now = w.view.Now.Add(-time.Hour)
		w.seconds(40, 600)
		if n := len(w.view.Instances); n < 8 {
			t.Errorf("%s: got %d instances for 600/s after the clock went back an hour, want at least 8", name, n)
		}
	}
}

func TestNamesAreChecked(t *testing.T) {
	for _, name := range []string{"", "hpa=x", "hpa=1.5", "fixed=-1", "fixed=1.5", "fixed=", "flex=1", "other"} {
		if _, err := policy.New(name, nil); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
