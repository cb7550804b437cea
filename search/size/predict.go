package size

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"vitrine"
)

// A Prediction is what a sizing is predicted to carry, as a campaign would
// measure it.
type Prediction struct {
	Rate      float64 // median over the ensemble
	Low, High float64 // interval, of the same confidence as measured ones
	// Bottleneck is the component that most probably saturates first; empty: a
	// limit that is not a component's CPU.
	Bottleneck string
}

// An ensemble is a set of draws from the posterior. allows is the logarithm of
// the capacity that a cell allows, by draw, place and cell.
type ensemble struct {
	evidence
	costings []costing
	draws    []draw
	allows   [][][]float64
	ceilings []float64
}

// fit samples an ensemble. The evidence has at least one size.
func fit(e evidence, seed uint64) *ensemble {
	p := newPosterior(e, seed)
	en := &ensemble{evidence: e, costings: p.costings, draws: p.draws()}
	for i := range en.draws {
		d := &en.draws[i]
		en.ceilings = append(en.ceilings, e.ceiling(d))
		var table [][]float64
		for k := range en.costings {
			p.drawUnmeasured(k, &d.demands[k])
			table = append(table, en.costings[k].table(&d.demands[k], thresholdSpread*d.threshold))
		}
		en.allows = append(en.allows, table)
	}
	return en
}

// drawUnmeasured draws from the prior how far unmeasured counts and cells depart from
// the laws.
func (p *posterior) drawUnmeasured(place int, d *demand) {
	counted := map[int]bool{}
	for i, c := range p.places[place].cells {
		counted[c.count] = counted[c.count] || slices.Contains(p.used[place], i)
	}
	for n := range d.counts {
		if n > 1 && !counted[n] {
			d.counts[n] = p.random.NormFloat64()
		}
	}
	for i := range d.cells {
		if !slices.Contains(p.used[place], i) {
			d.cells[i] = p.random.NormFloat64()
		}
	}
}

// table returns the logarithm of what every cell carries. More of a resource
// never carries less at the same count; more instances may.
func (c *costing) table(d *demand, shift float64) []float64 {
	carries := make([]float64, len(c.cells))
	for i, at := range c.cells {
		carries[i] = shift + c.carries(d, i)
		for k, smaller := range c.cells[:i] {
			if smaller.count == at.count && smaller.vcpus <= at.vcpus && smaller.memory <= at.memory {
				carries[i] = max(carries[i], carries[k])
			}
		}
	}
	return carries
}

// capacity returns the logarithm of the sizing's capacity in one draw, and the
// place that limits it; -1: none does.
func (en *ensemble) capacity(draw int, cells []int) (log float64, limits int) {
	log, limits = en.ceilings[draw], -1
	for place, c := range cells {
		if allows := en.allows[draw][place][c]; allows < log {
			log, limits = allows, place
		}
	}
	return log, limits
}

// cells returns the sizing's cells, by place; false: not all of them are in the
// space.
func (en *ensemble) cells(sizing vitrine.Sizing) ([]int, bool) {
	cells := make([]int, len(en.places))
	for i, p := range en.places {
		if cells[i] = p.cellOf(sizing); cells[i] == unknownPart {
			return nil, false
		}
	}
	return cells, true
}

// luck is the relative standard deviation between deployments of one sizing: no
// prediction is more certain.
const luck = 0.02

// predict sums up the ensemble for one sizing.
func (en *ensemble) predict(cells []int) Prediction {
	logs := make([]float64, len(en.draws))
	votes := make([]int, len(en.places)+1)
	for i := range en.draws {
		log, limits := en.capacity(i, cells)
		logs[i] = log
		votes[limits+1]++
	}
	slices.Sort(logs)
	at := func(q float64) float64 { return math.Exp(stat.Quantile(q, stat.Empirical, logs, nil)) }
	p := Prediction{Rate: at(0.5)}
	tail, luck := (1-en.confidence)/2, en.half()*luck
	p.Low = p.Rate * math.Exp(-math.Hypot(math.Log(p.Rate/at(tail)), luck))
	p.High = p.Rate * math.Exp(math.Hypot(math.Log(at(1-tail)/p.Rate), luck))
	for i, n := range votes {
		if n == slices.Max(votes) && i > 0 {
			p.Bottleneck = en.places[i-1].name
			break
		}
	}
	return p
}

// middle returns the median of values, which must not be empty.
func middle(values []float64) float64 {
	return stat.Quantile(0.5, stat.Empirical, slices.Sorted(slices.Values(values)), nil)
}
