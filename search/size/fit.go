package size

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"vitrine"
)

// A Fit predicts all sizings of a space, measured or not, from a history.
type Fit struct {
	space    Space
	ensemble *ensemble
}

// NewFit fits the model of NewModel to the results of any search. It returns nil
// when the history says nothing, and an error when the space is not bounded or
// empty.
func NewFit(space Space, history []vitrine.Measured, threshold int, seed uint64) (*Fit, error) {
	sizings, err := space.sizings()
	if err != nil {
		return nil, err
	}
	e := gather(space.places(sizings), history, threshold)
	if len(e.sizes) == 0 {
		return nil, nil
	}
	return &Fit{space, fit(e, seed)}, nil
}

// Sizings returns all sizings of the space, ascending by vCPUs.
func (f *Fit) Sizings() []vitrine.Sizing {
	sizings, err := f.space.sizings()
	if err != nil {
		return nil // NewFit refuses such a space
	}
	return sizings
}

// Predict returns what the sizing is predicted to carry; false: it is not in the
// space.
func (f *Fit) Predict(sizing vitrine.Sizing) (Prediction, bool) {
	cells, ok := f.ensemble.cells(sizing)
	if !ok {
		return Prediction{}, false
	}
	return f.ensemble.predict(cells), true
}

// Components returns what each component costs: first the components of the
// space, in its order, then those that are not scalable.
func (f *Fit) Components() []vitrine.ComponentProfile {
	var all []vitrine.ComponentProfile
	for place := range f.ensemble.places {
		all = append(all, f.component(place))
	}
	return all
}

func (f *Fit) component(place int) vitrine.ComponentProfile {
	c := &f.ensemble.costings[place]
	over := func(value func(*demand) float64) vitrine.Estimate {
		var values []float64
		for i := range f.ensemble.draws {
			values = append(values, value(&f.ensemble.draws[i].demands[place]))
		}
		slices.Sort(values)
		at := func(q float64) float64 { return stat.Quantile(q, stat.Empirical, values, nil) }
		tail := (1 - f.ensemble.confidence) / 2
		return vitrine.Estimate{Value: at(0.5), Low: at(tail), High: at(1 - tail)}
	}
	alone := cell{count: 1, vcpus: c.least}
	p := vitrine.ComponentProfile{
		Name:   c.name,
		Demand: over(func(d *demand) float64 { return c.perCall(d, alone) }),
		Idle:   over(c.idle),
	}
	var counts []int
	var flavors []float64
	for _, at := range c.cells {
		if !slices.Contains(counts, at.count) {
			counts = append(counts, at.count)
		}
		if !slices.Contains(flavors, at.vcpus) {
			flavors = append(flavors, at.vcpus)
		}
	}
	slices.Sort(flavors)
	for _, vcpus := range flavors {
		p.Saturation = append(p.Saturation, vitrine.FlavorSaturation{VCPUs: vcpus,
			Use: over(func(d *demand) float64 { return min(1, c.usable(d, cell{vcpus: vcpus})/vcpus) })})
	}
	for _, n := range counts {
		source := vitrine.SourcePredicted
		if f.ensemble.counted(place, n) {
			source = vitrine.SourceMeasured
		}
		p.Clustering = append(p.Clustering, vitrine.ClusteringCost{Instances: n, Source: source,
			Factor: over(func(d *demand) float64 {
				return float64(n) * c.perCall(d, cell{count: n, vcpus: c.least}) / c.perCall(d, alone)
			})})
	}
	return p
}

// counted reports whether so many instances of the component were measured.
func (e evidence) counted(place, count int) bool {
	for _, s := range e.sizes {
		if e.places[place].cells[s.cells[place]].count == count {
			return true
		}
	}
	return false
}

// finite reports whether all values can be written as JSON.
func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}
