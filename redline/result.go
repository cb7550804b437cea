package redline

import (
	"fmt"
	"os"
	"time"

	"vitrine"
)

// ResultVersion is the version of the Result format.
const ResultVersion = 1

// A Verdict is the kind of a Result.
type Verdict string

// The verdicts.
const (
	Within          Verdict = "within"           // the capacity lies within the interval
	AtLeast         Verdict = "at-least"         // even the highest rate met the objective: the capacity is at least Low
	Below           Verdict = "below"            // the objective is not met at the present rate, or the backlog may grow
	NotIdentifiable Verdict = "not-identifiable" // steps would be too long, the instance gets no transactions, or the traffic does not follow the weights
	Aborted         Verdict = "aborted"          // a fault or an interrupt ended the measurement; no capacity
	Planned         Verdict = "planned"          // dry run
)

// A Result is the result of a measurement, with the evidence.
type Result struct {
	Version   int             `json:"vitrine_redline"`
	Type      string          `json:"type"`     // aggregate type
	Instance  string          `json:"instance"` // the measured instance
	Flavor    string          `json:"flavor,omitempty"`
	Unit      string          `json:"unit"` // unit of rates
	Objective ResultObjective `json:"objective"`
	Verdict   Verdict         `json:"verdict"`
	Why       string          `json:"why,omitempty"`
	Rate      float64         `json:"rate,omitempty"` // highest rate that meets the objective; at-least: the highest rate tried
	Low       float64         `json:"low,omitempty"`  // lower end of the 95% interval, at most the last rate that passed
	High      float64         `json:"high,omitempty"` // upper end of the interval, at least the first rate that failed; 0, and left out in JSON: no upper bound

	Transition float64   `json:"transition_seconds"`          // transition time of the directors
	Holding    float64   `json:"holding_seconds"`             // mean time that a call holds the instance, at the present rate
	Rates      []float64 `json:"planned_rates,omitempty"`     // target rates of the steps
	Steps      []Step    `json:"steps"`                       // in order of time; the first is at the present rate
	Restored   float64   `json:"restored_seconds"`            // time until all directors applied the base weights, or weight 0 for the instance
	Fell       *float64  `json:"load_fell_seconds,omitempty"` // time until the instance had no more transactions in flight than before the shift; omitted: the load did not fall, or was not shed

	Directors []string  `json:"directors"`
	Host      string    `json:"host"` // name of the host that ran the measurement
	Begun     time.Time `json:"begun"`
	Seconds   float64   `json:"seconds"`
	Tool      string    `json:"tool"` // version and commit
}

// A ResultObjective is an Objective in a result file.
type ResultObjective struct {
	Success  float64 `json:"success"`
	Latency  float64 `json:"latency_ms"`
	Quantile float64 `json:"quantile"`
}

// A Step has the figures of one step.
type Step struct {
	Target     float64 `json:"target"` // intended rate
	Rate       float64 `json:"rate"`   // observed rate
	Weight     float64 `json:"weight"`
	Share      float64 `json:"share"` // share of the weight in the type's total weight, 0..1
	Seconds    float64 `json:"seconds"`
	Ended      float64 `json:"ended"` // transactions, including overdue ones
	Success    float64 `json:"success"`
	P50        float64 `json:"p50_ms"`
	P90        float64 `json:"p90_ms"`
	P99        float64 `json:"p99_ms"`
	Budget     float64 `json:"budget"`               // used share of the allowed failures or late transactions; the objective is met up to 1
	CPU        float64 `json:"cpus,omitempty"`       // mean CPUs in use; omitted: unknown
	Others     float64 `json:"others_rate"`          // rate of the other instances of the type
	Neighbours float64 `json:"neighbours_rate"`      // rate of all other instances on the same host; if it falls, the measured capacity is too high
	Stopped    bool    `json:"stopped,omitempty"`    // a guard ended the step early
	Unresolved bool    `json:"unresolved,omitempty"` // the backlog may grow, even after all extensions: the step does not pass
	Invalid    string  `json:"invalid,omitempty"`    // why the step does not count

	measured measured
}

func newResult(o *Options, instance string, began time.Time) Result {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Result{
		Version: ResultVersion, Type: o.Type, Instance: instance, Flavor: o.Flavor, Unit: "transactions/s",
		Objective: ResultObjective{Success: o.Objective.Success, Latency: milliseconds(o.Objective.Latency), Quantile: o.Objective.Quantile},
		Verdict:   AtLeast, Steps: []Step{}, Directors: o.Names, Host: host, Begun: began.UTC(),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// begin adds the measurement at the present rate.
func (s *Result) begin(r *run) {
	s.Transition, s.Holding = r.transition.Seconds(), r.base.holding.Seconds()
	s.add(r.base.span.Rate(), r.weight, r.weight/(r.weight+r.rest), r.base)
	if r.DryRun {
		s.Verdict = Planned
	}
}

// add adds a step.
func (s *Result) add(target, weight, share float64, m measured) {
	step := Step{
		Target: round(target), Rate: round(m.span.Rate()), Weight: round(weight), Share: round(share), Seconds: m.span.Duration.Seconds(),
		Ended: m.tally.ended, Success: round(1 - m.tally.failed/max(m.tally.ended, 1)),
		P50: milliseconds(m.span.Quantile(0.5)), P90: milliseconds(m.span.Quantile(0.9)), P99: milliseconds(m.span.Quantile(0.99)),
		CPU: round(m.cpus), Others: round(m.others), Neighbours: round(m.neighbours), Stopped: m.verdict != good, Unresolved: m.unresolved, measured: m,
	}
	o := Objective{Success: s.Objective.Success, Quantile: s.Objective.Quantile}
	step.Budget, step.Invalid = round(o.budget(m.tally)), m.invalid(o)
	s.Steps = append(s.Steps, step)
}

// line describes a step in one line, for people.
func (s *Step) line() string {
	text := fmt.Sprintf("%s/s for %.0fs: success %.4g, p50 %.3gms, p99 %.3gms, %.0f%% of the budget", vitrine.Digits(s.Rate), s.Seconds, s.Success, s.P50, s.P99, 100*s.Budget)
	if s.CPU > 0 {
		text += fmt.Sprintf(", %.2f CPUs", s.CPU)
	}
	if s.Stopped {
		text += ", stopped"
	}
	if s.Unresolved {
		text += ", the backlog may grow"
	}
	if s.Invalid != "" {
		text += ", does not count: " + s.Invalid
	}
	return text
}

// conclude sets the capacity and the final verdict, if the steps show a capacity.
func (r *run) conclude() {
	s := &r.result
	s.Seconds = time.Since(r.began).Seconds()
	if s.Verdict != AtLeast || len(s.Steps) == 0 {
		return
	}
	c := r.estimate()
	s.Rate, s.Low = round(c.Rate), round(c.Low)
	switch c.Censored {
	case vitrine.CensoredNone:
		s.Verdict, s.High = Within, round(c.High)
	case vitrine.CensoredBelow:
		s.Verdict, s.Rate, s.Low, s.High = Below, 0, 0, round(c.High)
		s.Why = fmt.Sprintf("the first step met the objective, but all steps together do not, even at %s/s", vitrine.Digits(s.High))
	default:
		if s.Why == "" {
			s.Why = "the limits allow no more traffic to be shifted"
		}
	}
}

// String describes the result in one line.
func (s *Result) String() string {
	name := s.Instance + " of type " + s.Type
	switch s.Verdict {
	case Within:
		return fmt.Sprintf("%s: %s/s, between %s and %s", name, vitrine.Digits(s.Rate), vitrine.Digits(s.Low), vitrine.Digits(s.High))
	case AtLeast:
		return fmt.Sprintf("%s: at least %s/s: %s", name, vitrine.Digits(s.Low), s.Why)
	case Below:
		return fmt.Sprintf("%s: below the present rate: %s", name, s.Why)
	case NotIdentifiable:
		return fmt.Sprintf("%s: not identifiable: %s", name, s.Why)
	case Planned:
		return fmt.Sprintf("%s: would measure at %v/s", name, s.Rates)
	}
	return fmt.Sprintf("%s: aborted: %s", name, s.Why)
}
