package result

import (
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
	ScaleOn        string    `json:"scale_on,omitempty"` // what Utilization is of: vitrine.CPU (also when empty), ...
	Sizings        []Sizing  `json:"sizings"`            // in the order of measuring
	Path           []Step    `json:"path"`               // of the search, in order
	Optimal        *Optimal  `json:"optimal"`            // null: none was found
	InvalidTrials  int       `json:"invalid_trials"`
	StoppedBecause string    `json:"stopped_because"`
}

// A Sizing is one size as measured on one substrate with one set of options.
type Sizing struct {
	Name        string  `json:"name"` // "bn1s-sp2m-hs1l"
	VCPUs       float64 `json:"vcpus"`
	MemoryBytes int64   `json:"memory_bytes"`
	Substrate   string  `json:"substrate"`
	Options     string  `json:"options"` // "pinning=on"; empty when none vary

	// For the first threshold, flat: capacity, capacity_low, capacity_high,
	// capacity_censored. SaveSummary takes it from Capacities.
	vitrine.Capacity

	Capacities  []vitrine.Capacity `json:"capacities"`  // one per threshold
	Bottleneck  string             `json:"bottleneck"`  // component; empty: not known
	Utilization map[string]float64 `json:"utilization"` // component -> used / given at capacity, 0..1
	Trials      int                `json:"trials"`
	LoadSeconds float64            `json:"load_seconds"` // time under load, warm-up included
}

// Label names the sizing among those of other substrates and options.
func (z Sizing) Label() string { return Label(z.Substrate, z.Options, z.Name) }

// Label joins what is not empty: "bn1s-sp1s process pinning=on".
func Label(substrate, options, sizing string) string {
	return strings.Join(strings.Fields(sizing+" "+substrate+" "+options), " ")
}

// A Step is what the search chose, and why; Substrate and Options tell steps
// apart when the plan varies them. A step without a sizing is the search's end.
type Step struct {
	Sizing    string `json:"sizing"`
	Why       string `json:"why"`
	Substrate string `json:"substrate,omitempty"`
	Options   string `json:"options,omitempty"`
}

// Optimal is the best sizing of all that were measured, and why.
type Optimal Step

// Best is the entry of the optimal sizing; nil when there is none.
func (s *Summary) Best() *Sizing {
	if s.Optimal == nil {
		return nil
	}
	return s.Find(Step(*s.Optimal))
}

// Find gives the entry of the sizing that a step names; nil when there is none.
// A step that leaves substrate or options open gets the first that fits, of the
// highest capacity.
func (s *Summary) Find(step Step) *Sizing {
	var found *Sizing
	for i := range s.Sizings {
		z := &s.Sizings[i]
		if z.Name == step.Sizing &&
			(step.Substrate == "" || step.Substrate == z.Substrate) &&
			(step.Options == "" || step.Options == z.Options) &&
			(found == nil || z.Rate > found.Rate) {
			found = z
		}
	}
	return found
}

// filled writes empty lists as [] and repeats the first threshold's capacity
// where flat readers look for it.
func (s Summary) filled() Summary {
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
	return s
}

// check names the first number that JSON could not say.
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
		for name, v := range numbers {
			if !finite(v) {
				return fmt.Errorf("%s: %s: %s is %v, not a number that can be reported", summaryFile, z.Name, name, v)
			}
		}
	}
	return nil
}
