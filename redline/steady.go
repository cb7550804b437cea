package redline

import (
	"context"
	"fmt"
	"time"

	"vitrine"
	"vitrine/search/rate"
)

// A sampler collects the readings of a step.
type sampler struct {
	objective Objective
	inFlight  []int64
	flights   float64 // sum of inFlight
	dialogs   float64 // sum over the same samples
	second    reading // reading at the begin of the present second
	seconds   []tally
}

func (s *sampler) take(now reading) {
	s.inFlight = append(s.inFlight, int64(now.own.InFlight))
	s.flights += float64(now.own.InFlight)
	s.dialogs += float64(now.own.Dialogs)
	if now.own.At.Sub(s.second.own.At) < time.Second-tick/2 {
		return
	}
	s.seconds = append(s.seconds, s.objective.tally(now.own.Since(s.second.own), 0))
	s.second = now
}

// means returns the mean numbers of transactions in flight and of open dialogs.
func (s *sampler) means() (inFlight, dialogs float64) {
	n := float64(len(s.inFlight))
	return s.flights / n, s.dialogs / n
}

// isSteady reports whether the backlog is steady, as search/rate defines it for a trial
// (docs/measuring.md). known is false if there are too few samples.
func (s *sampler) isSteady(m *measured, precision float64) (steady, known bool) {
	const fewest = 12 // as in search/rate
	n := len(s.inFlight)
	if n < fewest || m.span.Begun == 0 {
		return false, false
	}
	// rate.Judge assumes that samples are InFlightEvery apart, and compares their growth with the
	// rate. So the rate is scaled to a clock with that interval.
	interval := m.span.Duration.Seconds() / float64(n)
	o := vitrine.Outcome{Valid: true, Seconds: s.objective.seconds(m.tally, s.seconds), InFlight: s.inFlight}
	o.Rate = m.span.Rate() * interval / vitrine.InFlightEvery.Seconds()
	o.Scheduled, o.Succeeded = passed(m.tally.ended, s.objective.budget(m.tally))
	j := rate.Judge(o, precision)
	// rate.Judge calls a part of the step with too few samples steady. Then the whole step decides.
	judged := float64(n)*(1-j.Cut) >= fewest
	return j.Steady && (judged || !rate.Grows(o, precision)), true
}

// longest bounds the extension of a step whose backlog may grow. Like a trial of search/rate, the
// step is doubled up to three times. After that it is unresolved: it does not pass, and its rate
// is an upper bound of the capacity.
const longest = 8

// timeForGrowth returns the time needed to detect growth of the backlog with the precision,
// for paced arrivals, as in search/rate.
func timeForGrowth(rate, precision float64) time.Duration {
	const transactions = 9
	return time.Duration(transactions / (precision * precision * max(rate, 1)) * float64(time.Second))
}

// measure measures the instance for one step. A step lasts at least Options.Step and three
// holding times, and long enough to judge the objective and the growth of the backlog, but at
// most MaxStep. A guard can end it early, and so can a director that resets its counters. The CPU
// limit does not end the step at the present rate, because nothing is shifted yet.
func (r *run) measure(ctx context.Context) (measured, error) {
	first := *r.last()
	s := &sampler{objective: r.objective, second: first}
	for factor := 1.0; ; {
		now, err := r.next(ctx)
		if err != nil {
			return measured{}, err
		}
		s.take(now)
		m := r.summarize(&first, r.judge())
		if m.verdict == hot && len(r.result.Steps) == 0 {
			m.verdict = good // atBase looks at the mean CPU use of the whole step
		}
		m.restarted, m.seconds = now.restarted, s.seconds
		m.holding = r.holding(m.span, s.means)
		if m.restarted {
			return m, nil
		}
		steady, known := s.isSteady(&m, r.Precision)
		if m.verdict != good {
			m.unresolved = m.verdict == hot && known && !steady
			return m, nil
		}
		elapsed, needed := m.span.Duration, max(r.Step, steps*m.holding)
		window := max(needed, min(timeForGrowth(m.span.Rate(), r.Precision), longest*r.Step))
		switch {
		case elapsed >= r.Step && m.span.Begun == 0:
			return m, &unidentifiable{"the instance gets no transactions"}
		case elapsed >= r.Step && needed > r.MaxStep:
			return m, &unidentifiable{fmt.Sprintf("the mean holding time is %s, so a step would last %s: more than %s", m.holding.Round(time.Millisecond), needed.Round(time.Second), r.MaxStep)}
		case elapsed < r.MaxStep && (elapsed.Seconds() < factor*window.Seconds() || m.tally.ended < r.objective.enough()):
			continue
		case m.tally.ended < r.objective.enough():
			return m, &unidentifiable{fmt.Sprintf("%.0f transactions in %s are too few to judge the objective, which needs %.0f", m.tally.ended, r.MaxStep, r.objective.enough())}
		}
		m.unresolved = !steady && r.objective.budget(m.tally) <= 1
		if !m.unresolved || factor >= longest || elapsed >= r.MaxStep {
			return m, nil
		}
		factor *= 2
	}
}
