package vitrine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ProfileVersion is the version of the Profile format. It increases when a reader
// of the older format would misread the newer one.
const ProfileVersion = 1

// The sources of a figure in a Profile.
const (
	SourceMeasured  = "measured"  // trials of that very size
	SourcePredicted = "predicted" // a model fitted to trials of other sizes
)

// A Profile is what a network function carries at every size, measured or
// predicted, and what that costs each component; capacity is planned with it.
type Profile struct {
	Version    int           `json:"profile" jsonschema:"required"`    // Version of this format.
	Function   string        `json:"function" jsonschema:"required"`   // The deployment's vnf_name.
	Unit       string        `json:"unit" jsonschema:"required"`       // Unit of rates, such as calls/s.
	Thresholds []float64     `json:"thresholds" jsonschema:"required"` // Thresholds of the success ratio, 0 to 1. The capacities of sizes are for the first one; see also capacities.
	Confidence float64       `json:"confidence" jsonschema:"required"` // Confidence of the intervals, 0 to 1; 0: they claim none, because the search was mlr or deployed each size only once.
	Settings   []Setting     `json:"settings" jsonschema:"required"`   // One per combination of options.
	Provenance ProfileSource `json:"provenance" jsonschema:"required"` // Where the figures come from.
}

// A Setting holds the results on one substrate with one set of options.
type Setting struct {
	Substrate   string             `json:"substrate"`                        // Such as process.
	Options     string             `json:"options"`                          // Such as pinning=on; empty when none varies.
	Accelerator string             `json:"accelerator,omitempty"`            // Accelerator of virtual machines; tcg is emulation, not comparable with hardware. Left out: no virtual machines.
	Unlimited   bool               `json:"boot_unlimited,omitempty"`         // Instances booted without their CPU quota, which applied from their first command on; otherwise boot_seconds is with the quota.
	Components  []ComponentProfile `json:"components" jsonschema:"required"` // What each component costs.
	Sizes       []SizeProfile      `json:"sizes" jsonschema:"required"`      // Ascending by vCPUs.
}

// A SizeProfile is what one size carries.
type SizeProfile struct {
	Sizing     string  `json:"sizing" jsonschema:"required"`                                                  // Such as bn1s-sp2m-hs1l.
	VCPUs      float64 `json:"vcpus" jsonschema:"required"`                                                   // vCPUs of the scalable components together.
	Memory     int64   `json:"memory_bytes" jsonschema:"required"`                                            // Memory of the scalable components together.
	Price      float64 `json:"price,omitempty"`                                                               // Price of the scalable components together, when the flavors have one.
	Source     string  `json:"source" jsonschema:"required,enum=measured,enum=predicted"`                     // What the capacity rests on.
	Rate       float64 `json:"capacity" jsonschema:"required"`                                                // Highest rate at which the success ratio is at least the first threshold.
	Low        float64 `json:"capacity_low" jsonschema:"required"`                                            // Lower end of the interval: what the size carries for sure.
	High       float64 `json:"capacity_high" jsonschema:"required"`                                           // Upper end of the interval.
	Censored   string  `json:"capacity_censored" jsonschema:"enum=none,enum=below,enum=above,enum=generator"` // Where the capacity lies when it is outside the rates that were tried.
	Bottleneck string  `json:"bottleneck"`                                                                    // The component that saturates first; empty: not known.

	// Only for measured sizes, like boot_seconds and latency: one capacity per threshold.
	Capacities []Capacity     `json:"capacities,omitempty"`
	Boot       float64        `json:"boot_seconds,omitempty"` // From the first install script or start until all instances were ready, the median over deployments; left out when not known.
	Latency    []LatencyPoint `json:"latency,omitempty"`      // At rising shares of the capacity.
	Unfinished string         `json:"unfinished,omitempty"`   // Why the search for the capacity did not end; the size then carries nothing for sure. Left out: the search ended.
}

// A LatencyPoint is the latency of one trial, from the scheduled time to the
// last answer.
type LatencyPoint struct {
	Fraction float64 `json:"fraction" jsonschema:"required"` // The trial's rate as a share of the capacity.
	Rate     float64 `json:"rate" jsonschema:"required"`     // The rate offered.
	P50      float64 `json:"p50_ms" jsonschema:"required"`   // Median.
	P95      float64 `json:"p95_ms" jsonschema:"required"`   // 95th percentile.
	P99      float64 `json:"p99_ms" jsonschema:"required"`   // 99th percentile.
}

// A ComponentProfile is what one component costs, fitted to all measurements.
type ComponentProfile struct {
	Name       string             `json:"name" jsonschema:"required"`           // Name of the component.
	Demand     Estimate           `json:"demand_seconds" jsonschema:"required"` // CPU seconds that a call costs a single instance of the smallest flavor.
	Idle       Estimate           `json:"idle_vcpus" jsonschema:"required"`     // CPUs that an instance uses without load.
	Saturation []FlavorSaturation `json:"saturation" jsonschema:"required"`     // By flavor.
	Clustering []ClusteringCost   `json:"clustering" jsonschema:"required"`     // By number of instances.
}

// A FlavorSaturation is the use at which an instance saturates.
type FlavorSaturation struct {
	VCPUs float64  `json:"vcpus" jsonschema:"required"` // vCPUs of the flavor.
	Use   Estimate `json:"use" jsonschema:"required"`   // Share of them, 0 to 1, that the busiest instance uses when the component is saturated.
}

// A ClusteringCost is the price of several instances: what a call costs all of
// them, if all were as busy as the busiest, divided by what it costs a single one.
type ClusteringCost struct {
	Instances int      `json:"instances" jsonschema:"required"`                           // Number of instances.
	Source    string   `json:"source" jsonschema:"required,enum=measured,enum=predicted"` // Whether this number of instances was measured.
	Factor    Estimate `json:"factor" jsonschema:"required"`                              // 1: clustering is free; equal to instances: further instances bring nothing.
}

// An Estimate is a value with its interval.
type Estimate struct {
	Value float64 `json:"value" jsonschema:"required"` // Median of the posterior.
	Low   float64 `json:"low" jsonschema:"required"`   // Lower end of the interval.
	High  float64 `json:"high" jsonschema:"required"`  // Upper end of the interval.
}

// A ProfileSource says where a profile's figures come from.
type ProfileSource struct {
	Tool     string            `json:"tool"`                           // Program that wrote the profile, and its version.
	Specs    map[string]string `json:"specs" jsonschema:"required"`    // SHA-256 of the files that the user gave, by role.
	Outcomes string            `json:"outcomes" jsonschema:"required"` // SHA-256 of the trials, one JSON object a line, in their order.
}

// ParseProfile parses a profile and checks it.
func ParseProfile(text []byte) (*Profile, error) {
	var version struct {
		Version *int `json:"profile"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("not a capacity profile: %w", err)
	}
	switch {
	case version.Version == nil:
		return nil, errors.New("not a capacity profile: it has no field profile that says its version")
	case *version.Version != ProfileVersion:
		return nil, fmt.Errorf("a capacity profile of version %d, and this program reads version %d: use the version that wrote it, or characterize again",
			*version.Version, ProfileVersion)
	}
	var p Profile
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("not a capacity profile: %w", err)
	}
	return &p, p.Check()
}

// Check returns an error for the first value of the profile that makes no sense,
// or nil.
func (p *Profile) Check() error {
	if p.Function == "" || len(p.Thresholds) == 0 {
		return errors.New("a capacity profile without its function or thresholds")
	}
	for _, s := range p.Settings {
		for _, z := range s.Sizes {
			_, err := ParseSizing(z.Sizing)
			switch {
			case err != nil:
				return err
			case z.Source != SourceMeasured && z.Source != SourcePredicted:
				return fmt.Errorf("size %s: source %q: want %s or %s", z.Sizing, z.Source, SourceMeasured, SourcePredicted)
			case !(z.Low >= 0 && z.Low <= z.Rate && z.Rate <= z.High) || math.IsInf(z.High, 0):
				return fmt.Errorf("size %s: capacity %g is not within its interval [%g, %g]", z.Sizing, z.Rate, z.Low, z.High)
			case !(z.VCPUs > 0):
				return fmt.Errorf("size %s: %g vCPUs: want more than none", z.Sizing, z.VCPUs)
			}
		}
	}
	return nil
}

// A Choice is a size of a profile, and its setting.
type Choice struct {
	Setting *Setting
	Size    *SizeProfile
}

// Carrying chooses the size with the fewest vCPUs among those that carry the
// rate for sure: the lower end of their interval is at least the rate, and the
// search for their capacity ended. With equal
// vCPUs, the size with the higher lower end wins. chosen is nil when no size
// carries the rate. most is the size that carries most for sure, or nil when no
// size carries anything.
func (p *Profile) Carrying(rate float64) (chosen, most *Choice) {
	var all []Choice
	for i := range p.Settings {
		s := &p.Settings[i]
		for k := range s.Sizes {
			if z := &s.Sizes[k]; z.Low > 0 && z.Censored != CensoredBelow && z.Unfinished == "" {
				all = append(all, Choice{s, z})
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	leaner := func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Size.VCPUs, b.Size.VCPUs), cmp.Compare(b.Size.Low, a.Size.Low))
	}
	top := slices.MaxFunc(all, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Size.Low, b.Size.Low), leaner(b, a))
	})
	carry := slices.DeleteFunc(all, func(c Choice) bool { return c.Size.Low < rate })
	if len(carry) == 0 {
		return nil, &top
	}
	least := slices.MinFunc(carry, leaner)
	return &least, &top
}
