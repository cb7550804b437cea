package size

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// A cell is one component at one count and flavor.
type cell struct {
	count  int
	vcpus  float64
	memory int64
}

// A place is a component as the model sees it, with all cells that it can have. A
// component that is not scalable has a single cell, and no short name.
type place struct {
	name, short string
	cells       []cell
	index       map[vitrine.Part]int // index of the cells of a scalable component
	least, most float64              // vCPUs of the smallest and largest flavor
}

// A line holds the sums of a weighted regression of the busiest instance's CPU
// over the rate, for one component in one sizing.
type line struct {
	w, x, y, xx, xy, yy float64
	peak                float64 // the most CPU that its busiest instance was seen to use
}

// add joins the sums of two measurements.
func (l *line) add(other line) {
	l.w, l.x, l.y = l.w+other.w, l.x+other.x, l.y+other.y
	l.xx, l.xy, l.yy = l.xx+other.xx, l.xy+other.xy, l.yy+other.yy
	l.peak = max(l.peak, other.peak)
}

// observed is one measurement of one sizing.
type observed struct {
	cells    []int // by place
	lines    []line
	capacity float64 // natural logarithm
	error    float64 // standard deviation of capacity
	least    bool    // the capacity is at least this
	most     bool    // the capacity is at most this
}

const (
	readError   = 0.03  // relative, of one trial's CPU reading
	floorError  = 0.002 // the same, as a share of the instance's vCPUs
	mostPoints  = 6     // largest weight of a sizing's trials together, because they share its deployments' luck
	heldBack    = 0.9   // share of its quota above which an instance works on a queue
	leastError  = 0.015 // smallest relative standard deviation of a capacity
	mostError   = 0.2
	usual       = 0.95 // confidence of the intervals by default
	unknownPart = -1
)

// evidence is a history in the model's terms.
type evidence struct {
	places []place
	sizes  []observed
	most   float64 // highest capacity seen, as a rate
	// confidence is that of the intervals, both measured and predicted.
	confidence float64
}

// gather converts the history. Components outside the space (those that are not
// scalable) are known from their loads alone. It skips a measurement without a
// capacity, or outside the space.
func gather(places []place, history []vitrine.Measured, threshold int) evidence {
	e := evidence{places: slices.Clone(places), confidence: usual}
	for _, m := range history {
		e.confidence = cmp.Or(m.Confidence, e.confidence)
	}
	e.addFixed(history)
	for _, m := range history {
		if threshold >= len(m.Capacities) {
			continue
		}
		o := observed{cells: make([]int, len(e.places)), lines: make([]line, len(e.places))}
		known := o.capacityOf(m.Capacities[threshold], e.half())
		for i, p := range e.places {
			o.cells[i] = p.cellOf(m.Sizing)
			known = known && o.cells[i] != unknownPart
			if known {
				o.lines[i] = p.lineOf(m, p.cells[o.cells[i]], math.Exp(o.capacity))
			}
		}
		if known {
			e.sizes = append(e.sizes, o)
			e.most = max(e.most, math.Exp(o.capacity))
		}
	}
	return e
}

// addFixed adds the components that the space does not name.
func (e *evidence) addFixed(history []vitrine.Measured) {
	for _, m := range history {
		for _, l := range m.Loads {
			known := slices.ContainsFunc(e.places, func(p place) bool { return p.name == l.Component })
			if !known && l.VCPUs > 0 && l.Instances > 0 {
				e.places = append(e.places, place{name: l.Component, least: l.VCPUs, most: l.VCPUs,
					cells: []cell{{count: l.Instances, vcpus: l.VCPUs}}})
			}
		}
	}
}

// places returns the space's components with the cells that its sizings have.
func (s Space) places(sizings []vitrine.Sizing) []place {
	places := make([]place, len(s.Components))
	for i, c := range s.Components {
		p := place{name: c.Name, short: c.Short, index: map[vitrine.Part]int{}, least: math.Inf(1)}
		seen := map[vitrine.Part]bool{}
		var parts []vitrine.Part
		for _, sizing := range sizings {
			if part := *sizing.Part(c.Short); !seen[part] {
				seen[part] = true
				parts = append(parts, part)
			}
		}
		slices.SortFunc(parts, func(a, b vitrine.Part) int {
			return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(s.flavor(a.Initial), s.flavor(b.Initial)))
		})
		for _, part := range parts {
			f := s.Flavors[s.flavor(part.Initial)]
			p.index[part] = len(p.cells)
			p.cells = append(p.cells, cell{part.Count, f.VCPUs, f.Memory})
			p.least, p.most = min(p.least, f.VCPUs), max(p.most, f.VCPUs)
		}
		places[i] = p
	}
	return places
}

// largest returns the most instances of any cell.
func (p place) largest() (count int) {
	for _, c := range p.cells {
		count = max(count, c.count)
	}
	return count
}

// cellOf returns the index of the sizing's cell; unknownPart: the space has none.
func (p place) cellOf(sizing vitrine.Sizing) int {
	if p.short == "" {
		return 0
	}
	part := sizing.Part(p.short)
	if part == nil {
		return unknownPart
	}
	if i, ok := p.index[*part]; ok {
		return i
	}
	return unknownPart
}

// lineOf sums the loads of the component. Without a load reading, its mean use at
// capacity stands in.
func (p place) lineOf(m vitrine.Measured, c cell, capacity float64) line {
	var l line
	points := 0.0
	add := func(rate, cpu float64) {
		spread := readError*cpu + floorError*c.vcpus
		w := 1 / (spread * spread)
		l.w, l.x, l.y = l.w+w, l.x+w*rate, l.y+w*cpu
		l.xx, l.xy, l.yy = l.xx+w*rate*rate, l.xy+w*rate*cpu, l.yy+w*cpu*cpu
		points++
	}
	for _, load := range m.Loads {
		if load.Component == p.name {
			l.peak = max(l.peak, load.Busiest)
			if load.Busiest < heldBack*c.vcpus {
				add(load.Rate, load.Busiest)
			}
		}
	}
	if use, read := m.Utilization[vitrine.CPU][p.name]; read && l.peak == 0 {
		l.peak = use * c.vcpus
		if use < heldBack {
			add(capacity, l.peak)
		}
	}
	if points > mostPoints {
		share := mostPoints / points
		l.w, l.x, l.y = l.w*share, l.x*share, l.y*share
		l.xx, l.xy, l.yy = l.xx*share, l.xy*share, l.yy*share
	}
	return l
}

// half returns how many standard deviations an interval reaches to either side.
func (e *evidence) half() float64 { return distuv.UnitNormal.Quantile(0.5 + e.confidence/2) }

// capacityOf reads the capacity, whose interval reaches half standard deviations
// to either side; false: the capacity says nothing.
func (o *observed) capacityOf(c vitrine.Capacity, half float64) bool {
	rate := c.Rate
	switch c.Censored {
	case vitrine.CensoredAbove:
		o.least = true
	case vitrine.CensoredGenerator:
		o.least = true
		rate = c.Low
	case vitrine.CensoredBelow:
		o.most = true
	}
	if !(rate > 0) {
		return false
	}
	o.capacity = math.Log(rate)
	o.error = leastError
	if !o.least && !o.most {
		o.error = min(max(leastError, (c.High-c.Low)/(2*half*rate)), mostError)
	}
	return true
}
