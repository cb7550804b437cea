package redline

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/search/rate"
)

// steps is the minimum length of a step, in mean holding times. After that, most calls from before
// the step have ended.
const steps = 3

// measured has the observations of one step.
type measured struct {
	span       client.Span
	tally      tally
	others     float64 // rate of the other instances of the type
	neighbours float64 // rate of all other instances on the same host
	cpus       float64 // mean CPU use, in CPUs; 0: not known
	holding    time.Duration
	verdict    verdict
	unresolved bool // the step met the objective, but its backlog may grow
	restarted  bool // a director reset its counters during the step
	seconds    []tally
	shifted    time.Time // when the directors applied its weight; zero: the base weight
}

// An unidentifiable is the error of a measurement that would need steps longer than MaxStep, or
// whose instance gets no transactions, or whose traffic does not follow the weights.
type unidentifiable struct{ why string }

func (e *unidentifiable) Error() string { return e.why }

// measureBase measures at the present rate. It repeats a step in which a director reset its
// counters: all later rates are computed from this one. Its errors are those of climb.
func (r *run) measureBase(ctx context.Context) (err error) {
	const attempts = 3
	for range attempts {
		if r.base, err = r.measure(ctx); !r.base.restarted {
			return err
		}
		r.note("a director reset its counters: the step at the present rate is repeated")
	}
	return &fault{fmt.Sprintf("a director reset its counters in each of %d steps at the present rate", attempts)}
}

// climb measures at the present rate, and then at increasing rates. It returns nil when the
// search is done. Its errors are a *fault, an *unidentifiable, or the cause of ctx.
func (r *run) climb(ctx context.Context) error {
	if err := r.measureBase(ctx); err != nil {
		return err
	}
	r.result.begin(r)
	r.note("instance %s at present: %s", r.instance, r.result.Steps[0].line())
	if done, err := r.atBase(); done || err != nil {
		return err
	}
	search, cfg := r.search()
	r.result.Rates = plan(cfg)
	if r.DryRun || cfg.Max <= cfg.Min {
		return nil
	}
	first := search.Next(nil).Rate
	history := []vitrine.Outcome{r.outcome(1, first, r.base)}
	for {
		step := search.Next(history)
		if step.Done {
			if last := &r.result.Steps[len(r.result.Steps)-1]; last.Invalid != "" {
				r.result.Why = fmt.Sprintf("%s/s could not be measured: %s", vitrine.Digits(last.Target), last.Invalid)
			}
			return nil
		}
		r.shifted = true
		weight := r.weightFor(step.Rate)
		if err := r.set(ctx, map[string]float64{r.instance: weight}); err != nil {
			return r.lost(ctx, err)
		}
		shifted := time.Now()
		m, err := r.step(ctx, step.Rate)
		if err != nil {
			return err
		}
		m.shifted = shifted
		history = append(history, r.outcome(len(history)+1, step.Rate, m))
		r.result.add(step.Rate, weight, weight/(weight+r.rest), m)
		r.note("%s", r.result.Steps[len(r.result.Steps)-1].line())
		if m.verdict == stalled {
			return &fault{fmt.Sprintf("instance %s does not answer", r.instance)}
		}
		if m.verdict == hot {
			r.result.Why = r.hotText(m)
			return nil
		}
		if err := r.follow(weight, m); err != nil {
			return err
		}
	}
}

func (r *run) hotText(m measured) string {
	return fmt.Sprintf("stopped at %.2f of %.2f CPUs, before the objective breaks", m.cpus, r.CPULimit)
}

// lost converts a failure to change the weights to a *fault, unless ctx has ended.
func (r *run) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &fault{err.Error()}
}

// atBase reports whether the measurement at the present rate already determines the result.
func (r *run) atBase() (done bool, err error) {
	switch {
	case r.base.verdict == stalled:
		return true, &fault{fmt.Sprintf("instance %s does not answer", r.instance)}
	case r.base.unresolved:
		r.result.Verdict, r.result.Why = Below, "the objective is met at the present rate, but the backlog may grow"
		return true, nil
	case !r.base.meets(r.objective):
		r.result.Verdict, r.result.Why = Below, "the objective is not met at the present rate"
		return true, nil
	case r.isHot(r.base.cpus):
		r.result.Why = r.hotText(r.base)
		return true, nil
	}
	return false, nil
}

// search returns a ramp from the present rate to the highest rate that Share and MaxRate allow.
func (r *run) search() (rate.Search, rate.Config) {
	least := r.base.span.Rate()
	most := r.Share * (least + r.base.others)
	if r.MaxRate > 0 {
		most = min(most, r.MaxRate)
	}
	const part = 0.1 // of the present rate
	increase := r.Increase
	if increase == 0 {
		increase = part * least
	}
	cfg := rate.Config{
		Min: round(least), Max: round(most), Increase: round(increase), Duration: r.Step, Repeat: 1, Thresholds: []float64{threshold},
		Stop: func(o vitrine.Outcome) bool { return o.SuccessRatio() < threshold },
	}
	return rate.NewRamp(cfg), cfg
}

// round rounds to four significant digits, for readable results.
func round(x float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	return rounded
}

// plan returns the rates of a ramp.
func plan(cfg rate.Config) (rates []float64) {
	const most = 1000 // enough for a list that people read
	for k := 0; len(rates) < most && cfg.Increase > 0; k++ {
		at := cfg.Min + float64(k)*cfg.Increase
		if at > cfg.Max*(1+1e-9) {
			break
		}
		rates = append(rates, round(at))
	}
	return rates
}

// weightFor returns the weight that should result in the target rate. The ratio of the rates of the instance
// and of the others is proportional to its weight. The weights of the others do not tell that ratio, because
// an instance that is away keeps its weight, and weights act within a region. They are only a bound: without
// it, traffic that the weights do not reach, as that of another region, would multiply the weight in each step.
func (r *run) weightFor(target float64) float64 {
	rate, others := r.base.span.Rate(), r.base.others // not 0: see measure, search and follow
	share := min(target/(rate+others), r.Share)
	weight := r.weight * share / (1 - share) * others / rate
	return min(weight, max(r.weight, r.rest*r.Share/(1-r.Share)))
}

// follow updates the rates of the traffic, and the weight that belongs to them, from a step. It returns an
// *unidentifiable if the traffic does not follow the weights.
func (r *run) follow(weight float64, m measured) error {
	if m.restarted { // its rates are too low, and the next weight would be too high
		return nil
	}
	if !r.isIgnored(m) {
		r.ignored = 0
	} else if r.ignored++; r.ignored >= enoughIgnored {
		return &unidentifiable{"the traffic does not follow the weights: its UEs, sessions or dialogs stay at their instances"}
	}
	if m.span.Begun > 0 && m.others > 0 { // otherwise the next weight would be infinite or 0
		r.base.others, r.base.span.Begun, r.base.span.Duration = m.others, m.span.Begun, m.span.Duration
		r.weight = weight
	}
	return nil
}

// enoughIgnored is how many steps in a row must show that the traffic ignores the weights.
const enoughIgnored = 2

// isIgnored reports whether the traffic of the last step ignored the weights. It did if the rate is less
// than a third of the way from the rate at the base weight to the rate that the weight stands for, and the
// difference is not noise. Known keys stay at their instance for a transition, so the weight is the last
// one that was applied that long before the measurement.
func (r *run) isIgnored(m measured) bool {
	const deviations = 3
	base := &r.result.Steps[0]
	weight, then := base.Weight, time.Now().Add(tick-m.span.Duration-r.transition) // the measurement began up to a tick early
	for i := range r.result.Steps {
		if s := &r.result.Steps[i]; !s.measured.shifted.After(then) {
			weight = s.Weight
		}
	}
	total := m.span.Rate() + m.others
	usual := total * base.Rate / (base.Rate + base.Others)
	odds := base.Rate / base.Others * weight / base.Weight
	meant := total*odds/(1+odds) - usual
	missing := usual + meant - m.span.Rate()
	noise := deviations * math.Sqrt(2*float64(m.span.Begun)) / m.span.Duration.Seconds() // of the difference of two steps
	return m.verdict == good && weight > base.Weight && missing > max(2*meant/3, noise)
}

// step waits until the rate is near the target, or for the transition time, and then measures.
func (r *run) step(ctx context.Context, target float64) (measured, error) {
	began := time.Now()
	for {
		if _, err := r.next(ctx); err != nil {
			return measured{}, err
		}
		if v := r.judge(); v != good {
			return r.stopped(began, v), nil
		}
		waited := time.Since(began)
		s, _ := r.span(r.before(guardTime))
		slack := 0.03*target + 2*math.Sqrt(target/guardTime.Seconds())
		if waited >= r.transition || waited >= guardTime && waited >= r.base.holding && math.Abs(s.Rate()-target) < slack {
			break
		}
	}
	r.note("at %s/s after %.1fs", vitrine.Digits(target), time.Since(began).Seconds())
	return r.measure(ctx)
}

// stopped returns the observations of a step that a guard stopped before its measurement.
func (r *run) stopped(began time.Time, v verdict) measured {
	first := r.before(min(guardTime, time.Since(began)))
	return r.summarize(first, v)
}

// summarize returns the observations since a reading.
func (r *run) summarize(first *reading, v verdict) measured {
	s, t := r.span(first)
	now := r.last()
	m := measured{span: s, tally: t, verdict: v, others: now.others.Since(first.others).Rate(), neighbours: now.neighbours.Since(first.neighbours).Rate()}
	m.cpus, _ = r.used(first.own.At, now.own.At)
	return m
}

// holding returns the mean time that a call holds the instance. By Little's law, this is the mean
// number of open transactions divided by the rate at which they begin, or the same for dialogs;
// the longer of the two applies.
func (r *run) holding(s client.Span, means func() (inFlight, dialogs float64)) time.Duration {
	if r.Holding > 0 {
		return r.Holding
	}
	inFlight, dialogs := means()
	per := func(mean float64, begun uint64) time.Duration {
		if mean <= 0 {
			return 0
		}
		if begun == 0 {
			return s.Duration // a lower bound
		}
		return time.Duration(mean / float64(begun) * float64(s.Duration))
	}
	return max(per(inFlight, s.Begun), per(dialogs, s.DialogsBegun))
}

// meets reports whether a step met the objective with a steady backlog.
func (m *measured) meets(o Objective) bool {
	return m.verdict != broken && m.verdict != stalled && !m.unresolved && o.budget(m.tally) <= 1
}

// invalid returns why a step does not count. It is empty if the step counts. The CPU limit can stop
// a step after one tick, and the rate of so few transactions may be far off.
func (m *measured) invalid(o Objective) string {
	switch {
	case m.restarted:
		return "a director reset its counters"
	case m.verdict == hot && m.tally.ended < o.enough():
		return "the CPU limit stopped it after too few transactions"
	}
	return ""
}

// outcome converts a step to an Outcome for search/rate.
func (r *run) outcome(number int, target float64, m measured) vitrine.Outcome {
	o := vitrine.Outcome{
		Key: vitrine.Key{Seq: number, Attempt: 1, Repeat: 1, Rate: target}, Duration: m.span.Duration,
		Seconds: r.objective.seconds(m.tally, m.seconds), Reason: m.invalid(r.objective),
	}
	o.Valid = o.Reason == ""
	used := r.objective.budget(m.tally)
	if used <= 1 && !m.meets(r.objective) { // a guard or the backlog failed it, not the mean of its transactions
		used, o.Seconds = 2, nil
	}
	o.Scheduled, o.Succeeded = passed(m.tally.ended, used)
	o.Offered = o.Scheduled
	return o
}

// estimate returns the highest rate that meets the objective, from the observed rates. For a step
// that met the objective, it uses the rate of completed transactions. The begun transactions that
// did not complete may be growth of the backlog that is too slow to detect in the step.
func (r *run) estimate() vitrine.Capacity {
	var history []vitrine.Outcome
	for i := range r.result.Steps {
		s := &r.result.Steps[i]
		at := s.Rate
		if s.measured.meets(r.objective) {
			at = round(float64(s.measured.span.Completed()) / s.Seconds)
		}
		history = append(history, r.outcome(i+1, at, s.measured))
	}
	return rate.Estimate(history, rate.Config{Thresholds: []float64{threshold}})[0]
}
