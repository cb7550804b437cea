package flex

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/flex/decide"
	"vitrine/flex/unit"
)

// startOnce returns a policy that starts n instances in its first decision.
func startOnce(n int) func(decide.View, *decide.Memory) []decide.Action {
	return func(decide.View, *decide.Memory) []decide.Action {
		start := decide.Action{Kind: decide.Start, Type: "registration", Flavor: "bn1s-sp1s-hs1s-hm1s", Cause: decide.CauseRate, Reason: "a burst"}
		all := slices.Repeat([]decide.Action{start}, n)
		n = 0
		return all
	}
}

// TestOrdersHaveTheStartDeadline checks that the runner gets the start_deadline of the file. The runner fails a
// unit that is not ready by then.
func TestOrdersHaveTheStartDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    start_deadline: 7s\n")
		r.run(5 * time.Second)
		if o, ordered := r.runner.orders["registration-1"]; !ordered || o.Deadline != 7*time.Second {
			t.Errorf("ordered %t, with a deadline of %s, want 7s", ordered, o.Deadline)
		}
	})
}

// TestLowNumbersAreLeftToTypesThatNeedThem starts 200 instances while the director accepts any ID, as for
// SIP, and then 130 while it accepts IDs up to 127, as for GTP-C. Instances without an ID that the director
// accepts must not start, because they would count as capacity.
func TestLowNumbersAreLeftToTypesThatNeedThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		for _, c := range []struct {
			highest     uint16
			starts      int
			first, last uint16 // numbers of the orders
		}{
			{65535, 200, 256, 455},
			{127, 130, 1, 127},
		} {
			r.director.highest, r.Policy = c.highest, startOnce(c.starts)
			before := len(r.runner.starts)
			r.run(5 * time.Second)
			var got, want []uint16
			for _, name := range r.runner.starts[before:] {
				got = append(got, r.runner.orders[name].Number)
			}
			for n := c.first; n <= c.last; n++ {
				want = append(want, n)
			}
			if !slices.Equal(got, want) {
				t.Errorf("with IDs up to %d: got %v, want %d to %d", c.highest, got, c.first, c.last)
			}
		}
		var holds []string
		for _, e := range r.Events() {
			if e.Kind == decide.Hold.String() {
				holds = append(holds, e.Reason)
			}
		}
		if want := []string{"a burst; the directors have no free ID for another instance of the type"}; !slices.Equal(holds, want) {
			t.Errorf("got the holds %q, want %q", holds, want)
		}
	})
}

// TestRefusedIDsAreReplaced lowers the highest ID that the director accepts, as a reload that gives a GTP-C
// type a number does. The instances must be replaced, whether the director has removed them or has given
// them other IDs.
func TestRefusedIDsAreReplaced(t *testing.T) {
	for name, reload := range map[string]func(*fakeDirector){
		"removed": func(d *fakeDirector) { clear(d.all) },
		"other IDs": func(d *fakeDirector) {
			for i, name := range slices.Sorted(maps.Keys(d.all)) {
				d.all[name].ID = uint16(i + 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "    min: 2\n")
				r.director.highest = 65535
				r.run(10 * time.Second)
				r.director.highest = 127
				reload(r.director)
				r.run(10 * time.Second)
				for name, in := range r.director.all {
					if in.ID > 127 || in.State != vitrine.Active {
						t.Errorf("the director has %s with ID %d, %s, want an ID up to 127, active", name, in.ID, in.State)
					}
				}
				if len(r.director.all) != 2 || len(r.runner.units) != 2 || !r.has(EventDrain, "the directors accept IDs of its type up to 127, and it has 256") {
					t.Errorf("got %d instances in the director and %d units, want 2: %+v", len(r.director.all), len(r.runner.units), r.Events())
				}
			})
		})
	}
}

// A witness is a runner that calls saw at each start.
type witness struct {
	*fakeRunner
	saw func()
}

func (w witness) Start(ctx context.Context, o unit.Order) error {
	w.saw()
	return w.fakeRunner.Start(ctx, o)
}

// TestABurstIsSavedOnce starts 50 instances in one decision. The first start must find all of them in the
// state file. A write for each would delay the next readings.
func TestABurstIsSavedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 50
		r := newRig(t, "")
		var recorded []int
		r.Policy = startOnce(burst)
		r.Runner = witness{r.runner, func() {
			s, err := readState(r.File.State)
			if err != nil {
				t.Error(err)
			}
			recorded = append(recorded, len(s.Instances))
		}}
		r.step(t.Context())
		if want := slices.Repeat([]int{burst}, burst); !slices.Equal(recorded, want) {
			t.Errorf("at the starts the state file had %v instances, want %d at each", recorded, burst)
		}
	})
}

// A hungStarter is a runner that does not answer to orders.
type hungStarter struct{ *fakeRunner }

func (hungStarter) Start(ctx context.Context, _ unit.Order) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestAHungRunnerDelaysABurstOnce lets the runner hang at a burst of starts. Together they must not take
// longer than one time limit, because nothing is read meanwhile.
func TestAHungRunnerDelaysABurstOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 20
		r := newRig(t, "")
		r.Policy, r.Runner = startOnce(burst), hungStarter{r.runner}
		began := time.Now()
		r.step(t.Context())
		if took := time.Since(began); took != callLimit {
			t.Errorf("the step took %v, want %v", took, callLimit)
		}
		failed := 0
		for _, e := range r.Events() {
			if e.Kind == EventFail {
				failed++
			}
		}
		if failed != burst {
			t.Errorf("%d starts failed, want %d", failed, burst)
		}
	})
}
