package size

import (
	"fmt"
	"slices"
	"strings"

	"vitrine"
)

// A Space defines the possible sizings. All instances of one component have the
// same flavor.
type Space struct {
	Components []vitrine.Component // scalable ones, in the order of the sizing's name
	Flavors    []vitrine.Flavor    // ascending by VCPUs; unique initials
	Limit      vitrine.Resources   // of all instances together; zero fields: no limit
	MaxCount   int                 // most instances of one component; 0: only Limit bounds them
	Counts     map[string]Count    // by short name: exceptions for single components
	// Place returns why the sizing does not fit on the CPUs although it is within
	// the Limit; nil: every sizing fits.
	Place func(vitrine.Sizing) error
}

// A Count is how many instances a component may have.
type Count struct {
	Min int // 0: 1
	Max int // 0: the Space's MaxCount
}

// Minimal returns the smallest sizing: the fewest instances of the first flavor.
func (s Space) Minimal() vitrine.Sizing {
	sizing := make(vitrine.Sizing, len(s.Components))
	for i, c := range s.Components {
		sizing[i] = vitrine.Part{Short: c.Short, Count: s.least(c.Short), Initial: s.Flavors[0].Initial()}
	}
	return sizing
}

// Resources returns the resources of all instances of the sizing.
func (s Space) Resources(sizing vitrine.Sizing) vitrine.Resources {
	var total vitrine.Resources
	for _, p := range sizing {
		if f := s.flavor(p.Initial); f >= 0 {
			total.VCPUs += float64(p.Count) * s.Flavors[f].VCPUs
			total.Memory += int64(p.Count) * s.Flavors[f].Memory
		}
	}
	return total
}

// flavor returns the index of the flavor with the initial; -1: none.
func (s Space) flavor(initial byte) int {
	return slices.IndexFunc(s.Flavors, func(f vitrine.Flavor) bool { return f.Initial() == initial })
}

func (s Space) least(short string) int { return max(1, s.Counts[short].Min) }

// most returns how many instances the component may have; 0: only the Limit
// bounds them.
func (s Space) most(short string) int {
	if n := s.Counts[short].Max; n > 0 {
		return n
	}
	return s.MaxCount
}

// check refuses a space without sizings.
func (s Space) check() error {
	switch {
	case len(s.Components) == 0:
		return invalid("no component is scalable", "mark one, or give its sizes with custom")
	case len(s.Flavors) == 0:
		return invalid("no flavor", "give at least one")
	}
	for _, c := range s.Components {
		if most := s.most(c.Short); most > 0 && most < s.least(c.Short) {
			return invalid(fmt.Sprintf("%s may have at least %d and at most %d instances", c.Name, s.least(c.Short), most),
				"raise the most or lower the least")
		}
	}
	return nil
}

// noPlace returns why the sizing has no place; nil: it has one.
func (s Space) noPlace(sizing vitrine.Sizing) error {
	if s.Place == nil {
		return nil
	}
	return s.Place(sizing)
}

// tooLarge returns why the sizing cannot be measured; empty: it can.
func (s Space) tooLarge(sizing vitrine.Sizing) string {
	if over := s.over(sizing); over != "" {
		return "would be over the limit by " + over
	}
	if err := s.noPlace(sizing); err != nil {
		return "has no place: " + err.Error()
	}
	return ""
}

// over returns by how much the sizing exceeds the limit; empty: it does not.
func (s Space) over(sizing vitrine.Sizing) string {
	need := s.Resources(sizing)
	var parts []string
	if !need.Within(vitrine.Resources{VCPUs: s.Limit.VCPUs}) {
		parts = append(parts, fmt.Sprintf("%.4g vCPUs", need.VCPUs-s.Limit.VCPUs))
	}
	if !need.Within(vitrine.Resources{Memory: s.Limit.Memory}) {
		parts = append(parts, fmt.Sprintf("%.4g MiB of memory", float64(need.Memory-s.Limit.Memory)/(1<<20)))
	}
	return strings.Join(parts, " and ")
}
