package vitrine

import (
	"math"
	"strconv"
)

// The values of Capacity.Censored: where the capacity lies when it is outside
// the rates that were tried.
const (
	CensoredNone      = "none"
	CensoredBelow     = "below"     // even the lowest rate failed: Rate is that rate, [Low, High] is [0, Rate]
	CensoredAbove     = "above"     // even the highest rate passed: Rate is that rate, the capacity is at least Low
	CensoredGenerator = "generator" // no trial at a higher rate was valid: the generator could not offer it, or the function ended
)

// A Capacity is the highest offered rate at which the mean success ratio over
// fresh deployments, in steady state, meets Threshold (after NFV-VITAL,
// II.B.2). Rates are in the workload's unit. docs/measuring.md defines the terms.
type Capacity struct {
	Threshold float64 `json:"threshold"` // 0..1
	Rate      float64 `json:"capacity"`
	Low       float64 `json:"capacity_low"`  // confidence interval: 95%, or the workload's confidence
	High      float64 `json:"capacity_high"` // of a ramp or a bisection, the interval is never narrower than [last pass, first fail]
	Censored  string  `json:"capacity_censored"`

	// Only searches that tell deployments apart set the fields below.

	Deployments int        `json:"deployments,omitempty"`     // fresh deployments that the interval rests on
	SD          float64    `json:"deployment_sd,omitempty"`   // standard deviation between them, in the unit of Rate
	Single      float64    `json:"capacity_single,omitempty"` // one new deployment carries it with 90% probability (lower prediction bound); 0: not known
	States      *TwoStates `json:"capacity_states,omitempty"` // nil: the deployments are of one kind
	Fresh       float64    `json:"capacity_fresh,omitempty"`  // capacity before an overload, if an overload lowers it; Rate is then the lower one; 0: no such effect
}

// TwoStates describes deployments of two kinds, where the lower kind decides:
// Capacity.Rate is Lower.
type TwoStates struct {
	Lower     float64 `json:"lower"`      // capacity of the lower kind
	Upper     float64 `json:"upper"`      // capacity of the upper kind
	Share     float64 `json:"share"`      // share of deployments of the lower kind, 0..1
	ShareLow  float64 `json:"share_low"`  // 95% interval of Share
	ShareHigh float64 `json:"share_high"` // 95% interval of Share
}

// Bounds returns an interval that holds the capacity, censored or not. high is
// infinite when the trials set no upper bound.
func (c Capacity) Bounds() (low, high float64) {
	switch c.Censored {
	case CensoredBelow:
		return 0, c.High
	case CensoredAbove, CensoredGenerator:
		return c.Low, math.Inf(1)
	}
	return c.Low, c.High
}

// Unmeasured reports whether the capacity rests on no valid trial.
func (c Capacity) Unmeasured() bool { return c.Censored == CensoredGenerator && c.Rate == 0 }

// Measured is what a campaign learned about one sizing.
type Measured struct {
	Sizing      Sizing
	Resources   Resources
	Capacities  []Capacity                    // one per threshold, in the workload's order
	Confidence  float64                       // of their intervals; 0: 0.95
	Bottleneck  string                        // the component used most at capacity; empty: not known
	Utilization map[string]map[string]float64 // resource -> component -> used / given at capacity, 0..1
	Loads       []Load                        // one per component and trial that the function carried
	Again       bool                          // the sizing was measured before, and these figures replace the earlier ones
}

// A Load is the CPU use of one component's instances in one trial that the
// function carried.
type Load struct {
	Component string
	Instances int
	VCPUs     float64 // given to each instance; 0: unlimited
	Rate      float64 // calls a second that succeeded
	CPU       float64 // CPUs, all instances together
	Busiest   float64 // CPUs of the busiest instance of this sizing
}

// Digits formats a number with four significant digits, and from 1,000 as a whole number. Unlike %.4g, it
// writes no exponent from 10,000.
func Digits(v float64) string {
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
