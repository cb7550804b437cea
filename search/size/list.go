package size

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"vitrine"
)

// MostSizings is the most sizings of an exhaustive search: at a minute each, they
// take ten weeks.
const MostSizings = 100_000

// list measures given sizings, one after another.
type list struct{ sizings []vitrine.Sizing }

// NewCustom returns a search that measures the sizings in the given order, each
// once.
func NewCustom(sizings []vitrine.Sizing) Search {
	var l list
	seen := map[string]bool{}
	for _, s := range sizings {
		if name := s.String(); !seen[name] {
			seen[name] = true
			l.sizings = append(l.sizings, s.Clone())
		}
	}
	return l
}

// NewExhaustive returns a search that measures every combination of count and
// flavor of each component within the space's limit, those with the fewest vCPUs
// first. It refuses a space without bound, or with more than MostSizings.
func NewExhaustive(space Space) (Search, error) {
	sizings, err := space.sizings()
	if err != nil {
		return nil, err
	}
	return list{sizings}, nil
}

// sizings returns all sizings of the space, those with the fewest vCPUs first.
func (s Space) sizings() ([]vitrine.Sizing, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	choices := make([][]vitrine.Part, len(s.Components))
	product := 1.0
	for i, c := range s.Components {
		parts, err := s.parts(c)
		if err != nil {
			return nil, err
		}
		choices[i] = parts
		product *= float64(len(parts))
	}
	sizings := s.combine(nil, choices, nil)
	switch {
	case len(sizings) == 0:
		return nil, invalid("no sizing is within the limit", "raise the limit or give a smaller flavor")
	case len(sizings) > MostSizings:
		return nil, invalid(fmt.Sprintf("more than %d sizings fit, of %.0f combinations", MostSizings, product),
			"lower the limit or the most instances, or use directed")
	}
	slices.SortStableFunc(sizings, func(a, b vitrine.Sizing) int {
		x, y := s.Resources(a), s.Resources(b)
		if !sameVCPUs(x.VCPUs, y.VCPUs) {
			return cmp.Compare(x.VCPUs, y.VCPUs)
		}
		return cmp.Compare(x.Memory, y.Memory)
	})
	return sizings, nil
}

// Plan implements Planner.
func (l list) Plan() []vitrine.Sizing { return slices.Clone(l.sizings) }

// Next returns the first sizing of the list that is not measured yet.
func (l list) Next(history []vitrine.Measured) Step {
	measured := make(map[string]bool, len(history))
	for _, m := range history {
		measured[m.Sizing.String()] = true
	}
	for i, s := range l.sizings {
		if !measured[s.String()] {
			return Step{Sizing: s.Clone(), Why: fmt.Sprintf("sizing %d of %d", i+1, len(l.sizings))}
		}
	}
	return Step{Done: true, Why: fmt.Sprintf("all %d sizings are measured", len(l.sizings))}
}

// parts returns the counts and flavors that one component may have on its own.
func (s Space) parts(c vitrine.Component) ([]vitrine.Part, error) {
	var parts []vitrine.Part
	most := s.most(c.Short)
	for count := s.least(c.Short); most == 0 || count <= most; count++ {
		before := len(parts)
		for _, f := range s.Flavors {
			p := vitrine.Part{Short: c.Short, Count: count, Initial: f.Initial()}
			if s.Resources(vitrine.Sizing{p}).Within(s.Limit) {
				parts = append(parts, p)
			}
		}
		if len(parts) == before {
			break // more instances need more of everything
		}
		if len(parts) > MostSizings {
			return nil, invalid(fmt.Sprintf("nothing bounds the instances of %s", c.Name),
				"give a limit that every flavor counts against, or the most instances")
		}
	}
	return parts, nil
}

// combine appends all sizings that begin with start, are within the limit and
// have a place. It stops soon after MostSizings.
func (s Space) combine(start vitrine.Sizing, choices [][]vitrine.Part, found []vitrine.Sizing) []vitrine.Sizing {
	if len(choices) == 0 {
		if s.noPlace(start) == nil {
			found = append(found, start)
		}
		return found
	}
	rest := s.needed(choices[1:])
	for _, p := range choices[0] {
		if len(found) > MostSizings {
			break
		}
		next := append(start.Clone(), p)
		need := s.Resources(next)
		need.VCPUs += rest.VCPUs
		need.Memory += rest.Memory
		if need.Within(s.Limit) {
			found = s.combine(next, choices[1:], found)
		}
	}
	return found
}

// needed returns the least resources of the components with these choices.
// combine skips a start that leaves less.
func (s Space) needed(choices [][]vitrine.Part) vitrine.Resources {
	var total vitrine.Resources
	for _, parts := range choices {
		least := vitrine.Resources{VCPUs: math.Inf(1), Memory: math.MaxInt64}
		for _, p := range parts {
			r := s.Resources(vitrine.Sizing{p})
			least.VCPUs = min(least.VCPUs, r.VCPUs)
			least.Memory = min(least.Memory, r.Memory)
		}
		if len(parts) == 0 {
			return vitrine.Resources{}
		}
		total.VCPUs += least.VCPUs
		total.Memory += least.Memory
	}
	return total
}

func sameVCPUs(a, b float64) bool { return max(a, b)-min(a, b) < 1e-9 }
