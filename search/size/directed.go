package size

import (
	"fmt"
	"maps"
	"slices"

	"vitrine"
)

// The ways in which a directed search grows the bottleneck.
const (
	Up     = "up"     // the next flavor
	Out    = "out"    // one more instance
	Hybrid = "hybrid" // whichever of the two brings more
)

// A DirectedConfig says how a directed search grows and when it has enough.
type DirectedConfig struct {
	Scaling string // Up, Out or Hybrid
	ScaleOn string // vitrine.CPU, Memory or Network: whose use finds the bottleneck
	// Reach is the workload to reach, in the workload's unit; 0: none. A size
	// reaches it with the lower bound of its capacity, because a size that is
	// bought for a workload must carry it for sure.
	Reach     float64
	Threshold int // which of the capacities counts: index into Measured.Capacities
	Seed      uint64
}

// directed is NFV-VITAL's component-aware directed search (section III.A).
type directed struct {
	space Space
	cfg   DirectedConfig
}

// NewDirected returns a search that starts with the smallest sizing and grows,
// step by step, the component that uses the largest share of its resources at
// capacity. It ends when the workload is reached, when that component cannot grow
// within the space, or when the measurements do not tell which one to grow.
// Scaling out uses the space's first flavor, because it needs one size only (as
// in the paper). Hybrid scaling, which the paper leaves for later, is described
// at hybrid.
func NewDirected(space Space, cfg DirectedConfig) (Search, error) {
	if !slices.Contains([]string{Up, Out, Hybrid}, cfg.Scaling) {
		return nil, invalid(fmt.Sprintf("scaling %q", cfg.Scaling), "want up, out or hybrid")
	}
	if !slices.Contains([]string{vitrine.CPU, vitrine.Memory, vitrine.Network}, cfg.ScaleOn) {
		return nil, invalid(fmt.Sprintf("scale_on %q", cfg.ScaleOn), "want cpu, memory or network")
	}
	if err := space.check(); err != nil {
		return nil, err
	}
	if over := space.over(space.Minimal()); over != "" {
		return nil, invalid(fmt.Sprintf("even the smallest sizing, %s, is over the limit by %s", space.Minimal(), over),
			"raise the limit or give a smaller flavor")
	}
	if cfg.Scaling != Up {
		for _, c := range space.Components {
			if space.most(c.Short) == 0 && !space.bounds(space.Flavors[0]) {
				return nil, invalid(fmt.Sprintf("nothing bounds the instances of %s", c.Name),
					"give a limit that the flavor counts against, or the most instances")
			}
		}
	}
	if cfg.Scaling == Hybrid {
		return newHybrid(space, cfg)
	}
	return directed{space, cfg}, nil
}

func (d directed) Next(history []vitrine.Measured) Step {
	if len(history) == 0 {
		return Step{Sizing: d.space.Minimal(), Why: "the smallest sizing"}
	}
	last := history[len(history)-1]
	if end := d.enough(last); end != "" {
		return Step{Done: true, Why: end}
	}
	name, use := Bottleneck(last.Utilization, d.cfg.ScaleOn)
	if name == "" {
		return Step{Done: true, Why: fmt.Sprintf("%s: no %s use was measured at capacity, so the bottleneck is not known",
			last.Sizing, d.cfg.ScaleOn)}
	}
	found := fmt.Sprintf("%s uses the most %s at capacity in %s (%s)", name, d.cfg.ScaleOn, last.Sizing, d.share(use))
	next, grown, stuck := d.grow(last.Sizing, name)
	if stuck != "" {
		return Step{Done: true, Why: fmt.Sprintf("%s, but cannot grow: %s", found, stuck)}
	}
	return Step{Sizing: next, Why: fmt.Sprintf("%s: %s", found, grown), Grown: last.Capacities[d.cfg.Threshold].Rate}
}

func (d directed) share(use float64) string {
	of := "of what it was given"
	if d.cfg.ScaleOn == vitrine.Network {
		of = "of all components' traffic"
	}
	return fmt.Sprintf("%.0f%% %s", 100*use, of)
}

// enough returns why nothing larger needs to be, or can be, measured; empty: go
// on.
func (d directed) enough(last vitrine.Measured) string {
	if d.cfg.Threshold < 0 || d.cfg.Threshold >= len(last.Capacities) {
		return fmt.Sprintf("%s: no capacity was found", last.Sizing)
	}
	c := last.Capacities[d.cfg.Threshold]
	if d.cfg.Reach > 0 && c.Censored != vitrine.CensoredBelow && c.Low >= d.cfg.Reach {
		return fmt.Sprintf("%s reaches the workload of %.4g: it carries at least %.4g", last.Sizing, d.cfg.Reach, c.Low)
	}
	return outOfRange(last.Sizing, c.Censored, fmt.Sprintf("%.4g", c.Rate))
}

// outOfRange returns why nothing larger can be measured; empty: it can.
func outOfRange(sizing vitrine.Sizing, censored, rate string) string {
	switch censored {
	case vitrine.CensoredAbove:
		return fmt.Sprintf("%s carries even the highest rate, %s: a larger one would look the same; raise the range to go on", sizing, rate)
	case vitrine.CensoredGenerator:
		return fmt.Sprintf("%s: its capacity is not known, because no trial at a higher rate was valid: the trials say why", sizing)
	}
	return ""
}

// grow returns the sizing with the component one step larger and what grew, or
// why the component cannot grow.
func (d directed) grow(sizing vitrine.Sizing, name string) (next vitrine.Sizing, grown, stuck string) {
	next = sizing.Clone()
	part := d.part(next, name)
	if part == nil {
		return nil, "", "it is not scalable"
	}
	if d.cfg.Scaling == Out {
		if most := d.space.most(part.Short); most > 0 && part.Count >= most {
			return nil, "", fmt.Sprintf("it has %d instances, the most allowed", part.Count)
		}
		part.Count++
		grown = fmt.Sprintf("out to %d instances", part.Count)
	} else {
		flavor, ok := d.larger(part.Initial)
		if !ok {
			return nil, "", "there is no larger flavor"
		}
		part.Initial = flavor.Initial()
		grown = "up to " + flavor.Name
	}
	if why := d.space.tooLarge(next); why != "" {
		return nil, "", fmt.Sprintf("%s %s", next, why)
	}
	return next, grown, ""
}

// part returns the component's part, by the component's name; nil: none.
func (d directed) part(sizing vitrine.Sizing, name string) *vitrine.Part {
	for _, c := range d.space.Components {
		if c.Name == name {
			return sizing.Part(c.Short)
		}
	}
	return nil
}

// larger returns the next flavor with more of the resource that is scaled on.
func (d directed) larger(initial byte) (vitrine.Flavor, bool) {
	at := d.space.flavor(initial)
	if at < 0 {
		return vitrine.Flavor{}, false
	}
	now := d.space.Flavors[at]
	for _, f := range d.space.Flavors[at+1:] {
		more := f.VCPUs > now.VCPUs
		if d.cfg.ScaleOn == vitrine.Memory {
			more = f.Memory > now.Memory
		}
		if more || d.cfg.ScaleOn == vitrine.Network {
			return f, true
		}
	}
	return vitrine.Flavor{}, false
}

// bounds reports whether the limit bounds the instances of the flavor.
func (s Space) bounds(f vitrine.Flavor) bool {
	return s.Limit.VCPUs > 0 && f.VCPUs > 0 || s.Limit.Memory > 0 && f.Memory > 0
}

// Bottleneck returns the component that uses the largest share of the resource,
// and that share, 0..1. Among equals it returns the first by name. An empty name
// means that no use was measured.
func Bottleneck(utilization map[string]map[string]float64, resource string) (component string, use float64) {
	shares := utilization[resource]
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if component == "" || shares[name] > use {
			component, use = name, shares[name]
		}
	}
	return component, use
}
