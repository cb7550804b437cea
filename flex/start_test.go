package flex

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
