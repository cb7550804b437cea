package flex

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/director/client"
	"vitrine/director/latency"
	"vitrine/flex/decide"
)

// TestAFailureByChanceStartsNothing lets one of 60 transactions fail, and then a quarter of all.
func TestAFailureByChanceStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    objective: {p99: 100ms, success: 0.99}\n")
		r.director.rate = 12
		r.run(time.Minute)
		failing := func() bool {
			return slices.ContainsFunc(r.view(time.Now()).Instances, func(in decide.Instance) bool { return in.Failing })
		}
		r.director.failed = 1
		r.run(2 * time.Second)
		if failing() {
			t.Error("one failure: the policy sees an instance that fails")
		}
		r.run(28 * time.Second)
		if faith := r.memory.Types["registration"].Faith; len(r.runner.starts) != 1 || faith != 1 {
			t.Errorf("one failure: got %d starts, faith %g, want 1 and 1: %+v", len(r.runner.starts), faith, r.Events())
		}
		r.director.failing = 0.25
		r.run(25 * time.Second)
		if len(r.runner.starts) != 2 || !r.has(decide.Start.String(), "of the profile's capacity is trusted") || !failing() {
			t.Errorf("a quarter fails: got %d starts, failing %t, want 2 and true: %+v", len(r.runner.starts), failing(), r.Events())
		}
	})
}

// TestASlowSecondStartsNothing lets all transactions of one second be late, as in a pause of the store.
func TestASlowSecondStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    objective: {p99: 100ms}\n")
		r.director.rate = 12
		r.run(time.Minute)
		r.director.all["registration-1"].Latencies.Add(latency.Bucket(1_000_000), 12)
		r.run(30 * time.Second)
		if n := len(r.runner.starts); n != 1 {
			t.Errorf("got %d starts, want 1: %+v", n, r.Events())
		}
	})
}

// TestTransactionsWithoutAResponseBecomeLateOnce has the counts of six seconds, with ten transactions in each.
func TestTransactionsWithoutAResponseBecomeLateOnce(t *testing.T) {
	silent := func(s uint64) client.Instance { return client.Instance{Transactions: 10 * s, InFlight: 10 * s} }
	ended := func(s uint64) client.Instance {
		return client.Instance{Transactions: 320 + 10*s, InFlight: 320, Ended: map[string]uint64{"unanswered": 10 * s}}
	}
	for _, c := range []struct {
		name  string
		bound time.Duration
		count func(second uint64) client.Instance
		want  uint64
	}{
		{"all are answered", time.Millisecond, func(s uint64) client.Instance { return client.Instance{Transactions: 10 * s, InFlight: 1} }, 0},
		{"none is answered", time.Millisecond, silent, 40},
		{"none is answered, and the bound is 3 s", 3 * time.Second, silent, 20},
		{"none is answered, and there is no bound", 0, silent, 0},
		{"none is answered, and the first ones end", time.Millisecond, ended, 50},
		{"the same, and the bound is above the window", 8 * time.Second, ended, 50},
		{"50 were lost long ago", time.Millisecond, func(s uint64) client.Instance { return client.Instance{Transactions: 10 * s, InFlight: 50} }, 0},
		{"all ring", time.Millisecond, func(s uint64) client.Instance {
			return client.Instance{Transactions: 10 * s, InFlight: 10 * s, Proceeding: 10 * s}
		}, 0},
		{"the director starts again", time.Millisecond, func(s uint64) client.Instance {
			if s == 5 {
				return client.Instance{Transactions: 3, InFlight: 3}
			}
			return client.Instance{Transactions: 1000 + 10*s, InFlight: 100}
		}, 0},
	} {
		in := &instance{bound: c.bound}
		for s := range uint64(6) {
			in.readings = append(in.readings, client.Read(time.Unix(int64(s), 0), c.count(s)))
		}
		late := in.lately().Latencies
		if n := late.Count(); n != c.want || n > 0 && late.Quantile(0) <= c.bound {
			t.Errorf("%s: got %d late transactions, the shortest takes %s, want %d above %s", c.name, n, late.Quantile(0), c.want, c.bound)
		}
	}
}

// A silentDirector is a director whose first instance stops to answer.
type silentDirector struct {
	*fakeDirector
	answered uint64 // transactions that the instance has answered; 0: all
}

func (d *silentDirector) Instances(ctx context.Context) ([]client.Instance, error) {
	list, err := d.fakeDirector.Instances(ctx)
	if d.answered > 0 && len(list) > 0 {
		in := &list[0]
		in.Ended, in.InFlight = map[string]uint64{"succeeded": d.answered}, in.Transactions-d.answered
	}
	return list, err
}

// TestAnInstanceThatAnswersNothingKeepsTheOthers lets the load fall while one of two instances stops to answer. Its
// transactions end as unanswered only after a transition, which this test does not reach.
func TestAnInstanceThatAnswersNothingKeepsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    objective: {p99: 100ms}\n")
		d := &silentDirector{fakeDirector: r.director}
		r.Directors = []Director{d}
		r.director.rate = 30
		r.run(30 * time.Second)
		r.director.rate, d.answered = 6, r.director.all["registration-1"].Transactions
		r.run(4 * time.Second)
		if p99 := r.Status().Types[0].P99; p99 < 1 || r.inState(decide.Active) != 2 {
			t.Errorf("got a 99th percentile of %g s with %d active instances, want at least 1 s with 2", p99, r.inState(decide.Active))
		}
		r.run(30 * time.Second)
		if r.inState(decide.Active) != 2 || !r.has("hold", "nothing is drained, although") {
			t.Errorf("got %d active instances, want both, and a hold: %+v", r.inState(decide.Active), r.Events())
		}
	})
}

// TestDialogsCountIfADrainWaitsForThem checks what the policy sees of open dialogs.
func TestDialogsCountIfADrainWaitsForThem(t *testing.T) {
	for more, want := range map[string]int{"": 0, "    drain: dialog\n": 50} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, more)
			r.director.dialogs = 50
			r.run(10 * time.Second)
			if got := r.view(time.Now()).Instances[0].Dialogs; got != want {
				t.Errorf("%q: the policy sees %d dialogs, want %d", more, got, want)
			}
		})
	}
}
