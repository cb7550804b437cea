package redline

import (
	"math/rand/v2"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/latency"
	"vitrine/search/rate"
)

// TestBrokenIsMoreThanChance checks that one failure of 60 proves nothing, and 12 more do. Without an
// objective nothing is broken.
func TestBrokenIsMoreThanChance(t *testing.T) {
	span := func(failed uint64) client.Span {
		s := client.Span{Ended: map[string]uint64{"succeeded": 60 - failed, "failed": failed}}
		s.Latencies.Add(latency.Bucket(10_000), 60)
		return s
	}
	o := Objective{Success: 0.99, Latency: 100 * time.Millisecond, Quantile: 0.99}
	for name, c := range map[string]struct {
		objective Objective
		spans     []client.Span
		want      bool
	}{
		"no transactions": {o, nil, false},
		"one failure":     {o, []client.Span{span(1)}, false},
		"13 failures":     {o, []client.Span{span(1), span(12)}, true},
		"no objective":    {Objective{}, []client.Span{span(60)}, false},
	} {
		if got := c.objective.Broken(c.spans...); got != c.want {
			t.Errorf("%s: got broken %t, want %t", name, got, c.want)
		}
	}
}

// TestPassedMatchesTheBudget checks that a step meets the threshold of search/rate if it is within its budget,
// also if the used share is near 1 and the transactions are few.
func TestPassedMatchesTheBudget(t *testing.T) {
	o := Objective{Success: 0.95, Latency: 100 * time.Millisecond, Quantile: 0.99}
	for _, c := range []tally{
		{ended: 550, timed: 550, failed: 26},
		{ended: 550, timed: 550, failed: 28},
		{ended: 549, timed: 549, late: 5.2},
		{ended: 549, timed: 549, late: 5.6},
		{ended: 500, timed: 500, failed: 25},
	} {
		scheduled, succeeded := passed(c.ended, o.budget(c))
		ratio := float64(succeeded) / float64(scheduled)
		if used := o.budget(c); (ratio >= threshold) != (used <= 1) {
			t.Errorf("%+v: got a ratio of %g for %g of the budget", c, ratio, used)
		}
	}
}

// TestSecondsAgreeWithTheirStep checks steps in which failures use two fifths of their budget, and late
// transactions half of theirs. The seconds must show the mean that the step shows. If each second lost a whole transaction
// for a part of one, the interval would begin at the lowest rate tried.
func TestSecondsAgreeWithTheirStep(t *testing.T) {
	o := Objective{Success: 0.95, Latency: 100 * time.Millisecond, Quantile: 0.99}
	random := rand.New(rand.NewPCG(1, 1))
	r := run{watch: watch{objective: o}}
	var history []vitrine.Outcome
	for number, perSecond := range []int{50, 60, 70} {
		m := measured{span: client.Span{Duration: 60 * time.Second}}
		for range 60 {
			second := tally{ended: float64(perSecond), timed: float64(perSecond)}
			for range perSecond {
				if random.Float64() < 0.02 {
					second.failed++
				}
				if random.Float64() < 0.005 {
					second.late++
				}
			}
			m.seconds = append(m.seconds, second)
			m.tally.ended, m.tally.timed = m.tally.ended+second.ended, m.tally.timed+second.timed
			m.tally.failed, m.tally.late = m.tally.failed+second.failed, m.tally.late+second.late
		}
		history = append(history, r.outcome(number+1, float64(perSecond), m))
	}
	c := rate.Estimate(history, rate.Config{Thresholds: []float64{threshold}})[0]
	if c.Censored != vitrine.CensoredAbove || c.Low < 60 {
		t.Errorf("got %+v, want at least 60/s", c)
	}
}

// TestStepThatMissesItsBudgetCountsAsMeasured checks that only a step that failed for another reason counts as
// one with twice its budget.
func TestStepThatMissesItsBudgetCountsAsMeasured(t *testing.T) {
	o := Objective{Success: 0.99, Latency: 100 * time.Millisecond, Quantile: 0.99}
	r := run{watch: watch{objective: o}}
	missed := r.outcome(1, 120, measured{tally: tally{ended: 2000, timed: 2000, failed: 21}})
	stopped := r.outcome(2, 120, measured{tally: tally{ended: 2000, timed: 2000, failed: 5}, verdict: broken})
	if missed.SuccessRatio() < 0.9894 || missed.SuccessRatio() > 0.9896 {
		t.Errorf("105%% of the budget: got a ratio of %g", missed.SuccessRatio())
	}
	if stopped.SuccessRatio() != 0.98 || stopped.Seconds != nil {
		t.Errorf("stopped by a guard: got %+v", stopped)
	}
}
