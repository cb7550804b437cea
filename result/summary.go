package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"vitrine"
)

// A Summary is summary.json: what a campaign found.
type Summary struct {
	VNF            string    `json:"vnf"`
	Unit           string    `json:"unit"`               // of rates: "calls/s"
	Thresholds     []float64 `json:"thresholds"`         // of the success ratio
	ScaleOn        string    `json:"scale_on,omitempty"` // the resource of Utilization: vitrine.CPU (also when empty), ...
	Sizings        []Sizing  `json:"sizings"`            // in the order in which they were measured
	Path           []Step    `json:"path"`               // of the search, in order
	Optimal        *Optimal  `json:"optimal"`            // of the sizings whose search ended; null: none found
	InvalidTrials  int       `json:"invalid_trials"`
	StoppedBecause string    `json:"stopped_because"`
	Partial        bool      `json:"partial,omitempty"`     // the search had not ended: optimal is the best so far
	Interleaved    bool      `json:"interleaved,omitempty"` // the sizings were measured in turns: one fresh deployment of each in each turn
}

// A Sizing is one size, measured on one substrate with one set of options.
type Sizing struct {
	Name        string  `json:"name"`  // "bn1s-sp2m-hs1l"
	VCPUs       float64 `json:"vcpus"` // of the scalable components together
	MemoryBytes int64   `json:"memory_bytes"`
	Substrate   string  `json:"substrate"`
	Options     string  `json:"options"`              // "pinning=on"; empty if none vary
	Again       bool    `json:"again,omitempty"`      // the sizing was measured before, and this entry counts
	Unfinished  string  `json:"unfinished,omitempty"` // why the search for the capacity did not end; empty: it ended

	// The capacity at the first threshold as flat fields: capacity, capacity_low, capacity_high,
	// capacity_censored. MarshalJSON copies it from Capacities.
	vitrine.Capacity

	Capacities  []vitrine.Capacity `json:"capacities"`  // one per threshold
	Bottleneck  string             `json:"bottleneck"`  // component; empty: unknown
	Utilization map[string]float64 `json:"utilization"` // component -> used / given at capacity, 0..1
	Trials      int                `json:"trials"`
	Ended       int                `json:"ended_trials,omitempty"` // of the trials: invalid because an instance of the function ended
	LoadSeconds float64            `json:"load_seconds"`           // time under load, including invalid trials and without warm-ups
	Search      *Search            `json:"search,omitempty"`
}

// A Search holds the input of the search that chose the rates of a sizing's trials. With it, a
// reader can recompute the state of the search after any trial.
type Search struct {
	Name       string  `json:"name"` // the workload's: "ramp", "adaptive", ...
	Min        float64 `json:"min"`  // of the range of rates
	Max        float64 `json:"max"`
	Increase   float64 `json:"increase,omitempty"`
	Duration   float64 `json:"duration_seconds"` // of the longest window
	Repeat     int     `json:"repeat"`
	Precision  float64 `json:"precision,omitempty"`        // wanted width of the interval as a share of the capacity; 0: the search's default
	Confidence float64 `json:"confidence,omitempty"`       // of the interval, 0..1; 0: the search's default
	Overhead   float64 `json:"overhead_seconds,omitempty"` // of a trial, besides its window
	Stateful   bool    `json:"stateful,omitempty"`
	PriorLow   float64 `json:"prior_low,omitempty"` // capacity range that neighbouring sizes suggest
	PriorHigh  float64 `json:"prior_high,omitempty"`
}

// Claimed returns the confidence that the search claims for its intervals, or 0 if it claims none. The
// bounds of mlr claim none. The interval of one deployment does not cover how deployments differ.
func (s *Search) Claimed() float64 {
	if s.Name == "mlr" || s.OneDeployment() {
		return 0
	}
	return cmp.Or(s.Confidence, 0.95)
}

// OneDeployment reports whether all trials of the size were on one fresh deployment: a ramp and a
// bisection deploy it repeat times, and adaptive more often.
func (s *Search) OneDeployment() bool {
	return s != nil && s.Repeat == 1 && (s.Name == "ramp" || s.Name == "bisect")
}

// Label names the sizing uniquely among all substrates and options.
func (z Sizing) Label() string { return Label(z.Substrate, z.Options, z.Name) }

// Label joins the non-empty parts: "bn1s-sp1s process pinning=on".
func Label(substrate, options, sizing string) string {
	return strings.Join(strings.Fields(sizing+" "+substrate+" "+options), " ")
}

// A Step is a choice of the search, and why. Substrate and Options distinguish steps if the plan
// varies them. A step without a sizing is the search's end.
type Step struct {
	Sizing    string `json:"sizing"`
	Why       string `json:"why"`
	Substrate string `json:"substrate,omitempty"`
	Options   string `json:"options,omitempty"`
	// Predicted is the capacity at the first threshold that the search predicted before it measured
	// the sizing; nil: no prediction.
	Predicted *vitrine.Capacity `json:"predicted,omitempty"`
}

// Optimal is the best of all measured sizings, and why.
type Optimal Step

// Best returns the entry of the optimal sizing; nil if there is none.
func (s *Summary) Best() *Sizing {
	if s.Optimal == nil {
		return nil
	}
	return s.Find(Step(*s.Optimal))
}

// Find returns the entry of the sizing that a step names; nil if there is none. If the step names
// no substrate or options, Find returns the matching entry with the highest capacity. For a sizing
// that was measured again, it returns the last entry whose search ended.
func (s *Summary) Find(step Step) *Sizing {
	var found *Sizing
	for i := range s.Sizings {
		z := &s.Sizings[i]
		if z.Name == step.Sizing &&
			(step.Substrate == "" || step.Substrate == z.Substrate) &&
			(step.Options == "" || step.Options == z.Options) &&
			(found == nil || z.Unfinished == "" && (z.Again || z.Rate > found.Rate && !found.Again)) {
			found = z
		}
	}
	return found
}

// MarshalJSON writes empty lists as [] and copies the first threshold's capacity to the flat
// fields.
func (s Summary) MarshalJSON() ([]byte, error) {
	type plain Summary // without this method
	s.Thresholds = append([]float64{}, s.Thresholds...)
	s.Path = append([]Step{}, s.Path...)
	s.Sizings = append([]Sizing{}, s.Sizings...)
	for i := range s.Sizings {
		z := &s.Sizings[i]
		if len(z.Capacities) > 0 {
			z.Capacity = z.Capacities[0]
		}
		z.Capacities = append([]vitrine.Capacity{}, z.Capacities...)
		z.VCPUs = math.Round(z.VCPUs*1e9) / 1e9 // 0.1+0.2 is 0.3
		if z.Utilization == nil {
			z.Utilization = map[string]float64{}
		}
	}
	return json.Marshal(plain(s))
}

// check returns an error that names the first number that JSON cannot represent.
func (s Summary) check() error {
	for _, z := range s.Sizings {
		numbers := map[string]float64{
			"vcpus": z.VCPUs, "capacity": z.Rate, "capacity_low": z.Low,
			"capacity_high": z.High, "load_seconds": z.LoadSeconds,
		}
		for component, u := range z.Utilization {
			numbers["utilization of "+component] = u
		}
		for _, c := range z.Capacities {
			numbers[fmt.Sprintf("capacity at %v", c.Threshold)] = c.Rate
			numbers[fmt.Sprintf("capacity_low at %v", c.Threshold)] = c.Low
			numbers[fmt.Sprintf("capacity_high at %v", c.Threshold)] = c.High
		}
		if err := checkFinite(z.Name, numbers); err != nil {
			return err
		}
	}
	for _, p := range s.Path {
		if c := p.Predicted; c != nil {
			if err := checkFinite(p.Sizing, map[string]float64{"predicted capacity": c.Rate, "its low": c.Low, "its high": c.High}); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFinite(sizing string, numbers map[string]float64) error {
	for name, v := range numbers {
		if !finite(v) {
			return fmt.Errorf("%s: %s: %s is %v, which JSON cannot represent", summaryFile, sizing, name, v)
		}
	}
	return nil
}
