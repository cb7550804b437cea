package redline

import (
	"fmt"
	"math"
	"time"

	"vitrine"
	"vitrine/director/client"
)

// An Objective is the service level objective of an instance: a success ratio and a quantile of
// latency.
type Objective struct {
	Success  float64       // lower bound on the share of transactions without failure, above 0 and below 1
	Latency  time.Duration // upper bound on the quantile of latency, from request to final answer, and from INVITE to its first response but 100
	Quantile float64       // the quantile, above 0 and below 1, such as 0.99
}

func (o Objective) String() string {
	return fmt.Sprintf("p%g at most %s, success at least %g", 100*o.Quantile, o.Latency, o.Success)
}

func (o Objective) check() error {
	switch {
	case !(o.Success > 0 && o.Success < 1):
		return bad(fmt.Sprintf("success %g", o.Success), "want a share above 0 and below 1, such as 0.99")
	case !(o.Quantile > 0 && o.Quantile < 1):
		return bad(fmt.Sprintf("quantile %g", o.Quantile), "want a share above 0 and below 1, such as 0.99")
	case o.Latency < time.Millisecond:
		return bad(fmt.Sprintf("latency %s", o.Latency), "want at least 1ms")
	}
	return nil
}

// A tally counts the transactions of a span by their relation to an objective.
type tally struct {
	ended   float64 // ended or overdue transactions
	failed  float64 // of those
	timed   float64 // transactions with a latency, or overdue: more than have ended while calls ring
	late    float64 // of those, later than the objective, or overdue
	overdue float64 // transactions that wait for their response for longer than the objective
}

// tally counts the transactions of a span. Those overdue at its end count as ended, timed and late.
func (o Objective) tally(s client.Span, overdue uint64) tally {
	return tally{
		ended: float64(s.Completed() + overdue), failed: float64(s.Failures()),
		timed: float64(s.Latencies.Count() + overdue), late: s.Latencies.Above(o.Latency) + float64(overdue), overdue: float64(overdue),
	}
}

// budget returns the used share of the error budget: the share of the allowed failures or of the
// allowed late transactions, whichever is higher. The objective is met up to 1.
func (o Objective) budget(t tally) float64 { return max(o.failed(t), o.late(t)) }

// failed returns the used share of the allowed failures.
func (o Objective) failed(t tally) float64 { return t.failed / max(t.ended, 1) / (1 - o.Success) }

// late returns the used share of the allowed late transactions.
func (o Objective) late(t tally) float64 { return t.late / max(t.timed, 1) / (1 - o.Quantile) }

// isBroken reports whether a span proves that the objective is broken. It does so if failures or
// late transactions are significantly more than expected when the objective is just met.
func (o Objective) isBroken(t tally) bool {
	exceeds := func(n, of, share float64) bool {
		const deviations, least = 3, 3
		mean := of * share
		return n > mean+deviations*math.Sqrt(mean*(1-share))+least
	}
	return exceeds(t.failed, t.ended, 1-o.Success) || exceeds(t.late, t.timed, 1-o.Quantile)
}

// Broken reports whether spans together prove that the objective is broken. Transactions that still wait for
// their response do not count. If Quantile is 0, any latency meets the objective.
func (o Objective) Broken(spans ...client.Span) bool {
	var sum tally
	for _, s := range spans {
		t := o.tally(s, 0)
		sum.ended, sum.failed = sum.ended+t.ended, sum.failed+t.failed
		sum.timed, sum.late = sum.timed+t.timed, sum.late+t.late
	}
	return o.isBroken(sum)
}

// enough returns the number of transactions needed to judge the objective. With that many, five
// failures or late transactions are expected if the objective is just met.
func (o Objective) enough() float64 {
	const seen = 5
	return seen / min(1-o.Success, 1-o.Quantile)
}

// threshold is the success ratio passed to search/rate for a step that uses the whole budget.
const threshold = 0.99

// perTransaction is the number of counts for search/rate that one transaction stands for. With one count
// each, rounding could fail a step that met the objective, and every second with a part of a failure would
// lose a whole transaction.
const perTransaction = 1000

// passed maps the used share of a budget to a success ratio for search/rate: succeeded/scheduled is at
// least threshold if and only if the share is at most 1.
func passed(ended, used float64) (scheduled, succeeded int64) {
	const rounding = 1e-6
	scheduled = perTransaction * int64(math.Round(ended))
	share := max(0, 1-(1-threshold)*used)
	return scheduled, int64(math.Floor(share*float64(scheduled) + rounding))
}

// seconds maps the seconds of a step as passed maps the step. Failures or late transactions decide,
// whichever use more of the step's budget: the higher of both in each second would be too much together.
func (o Objective) seconds(step tally, each []tally) []vitrine.Second {
	used := o.failed
	if o.late(step) > o.failed(step) {
		used = o.late
	}
	seconds := make([]vitrine.Second, len(each))
	for i, t := range each {
		scheduled, succeeded := passed(t.ended, used(t))
		seconds[i] = vitrine.Second{Scheduled: scheduled, Offered: scheduled, Succeeded: succeeded, Failed: scheduled - succeeded}
	}
	return seconds
}

func bad(found, want string) error {
	return &vitrine.BadInput{File: "redline", Found: found, Want: want}
}
