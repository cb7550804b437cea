package size

import (
	"fmt"
	"math"
	"slices"

	"vitrine"
)

// What a model search looks for.
const (
	MostCapacity = "capacity" // the most that the resources carry
	FewestVCPUs  = "vcpus"    // the fewest vCPUs that carry a workload
	LowestPrice  = "price"    // the lowest price, by flavor, that carries a workload
)

// A ModelConfig says what a model search looks for.
type ModelConfig struct {
	Objective string  // MostCapacity, FewestVCPUs or LowestPrice
	Reach     float64 // the workload to carry, in the workload's unit; not for MostCapacity
	Threshold int     // which of the capacities counts: index into Measured.Capacities
	Unit      string  // of rates, for Why: "calls/s"
	Seed      uint64
}

// A Chooser is a Search that chooses the best of the measured sizings itself,
// because it knows more about a sizing than its own trials show.
type Chooser interface {
	// Choose returns the index into history, -1 for none, and why.
	Choose(history []vitrine.Measured) (index int, why string)
}

// model fits what components cost to the measurements, and measures next where
// the expected gain is highest.
type model struct {
	space   Space
	cfg     ModelConfig
	sizings []vitrine.Sizing
	index   map[string]int // by name
	places  []place
	cells   [][]int // by sizing
	costs   []float64
}

const (
	// worthwhile is the least gain, as a share, that the search looks for.
	worthwhile = 0.02
	// plausible is the least probability at which a sizing may well be the better
	// one.
	plausible = 0.05
	// enough is the expected gain, as a share of the best, below which the search
	// ends.
	enough = 0.002
	// alike is the relative difference up to which capacities count as equal:
	// then the fewer vCPUs win.
	alike = 0.01
)

// NewModel returns a search that begins with the smallest sizing. After each
// measurement it fits a model to all of them: the demand of every component, with
// an intercept for idle work; the use at which it saturates; the price of
// clustering. The fit is not a single answer but an ensemble of draws from the
// posterior, and so gives a capacity with an interval for every sizing. The next
// sizing is the one with the highest expected gain over the best so far (expected
// improvement: Jones et al., Efficient Global Optimization, 1998, section 4.1,
// over the ensemble). The search ends when no untried sizing can plausibly beat
// the best. It then measures the best once more, because a figure that was chosen
// for being high is too high by luck.
func NewModel(space Space, cfg ModelConfig) (Search, error) {
	if !slices.Contains([]string{MostCapacity, FewestVCPUs, LowestPrice}, cfg.Objective) {
		return nil, invalid(fmt.Sprintf("objective %q", cfg.Objective), "want capacity, vcpus or price")
	}
	if cfg.Objective == MostCapacity && cfg.Reach != 0 {
		return nil, invalid("a workload to reach, but the objective is capacity", "leave reach away, or choose the objective vcpus or price")
	}
	if cfg.Objective != MostCapacity && !(cfg.Reach > 0) {
		return nil, invalid(fmt.Sprintf("the objective %s, but no workload to carry", cfg.Objective), "give reach a rate")
	}
	if cfg.Objective == LowestPrice {
		for _, f := range space.Flavors {
			if !(f.Price > 0) {
				return nil, invalid(fmt.Sprintf("flavor %s has no price", f.Name), "give every flavor one, or choose the objective vcpus")
			}
		}
	}
	sizings, err := space.sizings()
	if err != nil {
		return nil, err
	}
	m := &model{space: space, cfg: cfg, sizings: sizings, index: map[string]int{}, places: space.places(sizings)}
	for i, s := range sizings {
		m.index[s.String()] = i
		m.costs = append(m.costs, m.cost(s))
		cells := make([]int, len(m.places))
		for k, p := range m.places {
			cells[k] = p.cellOf(s)
		}
		m.cells = append(m.cells, cells)
	}
	return m, nil
}

// cost returns the cost of a sizing: its price or its vCPUs, by the objective.
func (m *model) cost(s vitrine.Sizing) float64 {
	if m.cfg.Objective == LowestPrice {
		return m.space.Price(s)
	}
	return m.space.Resources(s).VCPUs
}

// Price returns the price of all instances of the sizing.
func (s Space) Price(sizing vitrine.Sizing) (total float64) {
	for _, p := range sizing {
		if f := s.flavor(p.Initial); f >= 0 {
			total += float64(p.Count) * s.Flavors[f].Price
		}
	}
	return total
}

// known is what a model search has learned so far.
type known struct {
	*model
	*ensemble
	figures []figure // of the measured sizings, in the order of their first measurement
	tried   map[int]bool
}

// A figure is the last measurement of one sizing.
type figure struct {
	sizing   int // index into the model's sizings
	history  int // index into the history
	again    bool
	censored string
	Prediction
	measured vitrine.Capacity
}

// Next implements Search.
func (m *model) Next(history []vitrine.Measured) Step {
	if len(history) == 0 {
		return Step{Sizing: m.sizings[0].Clone(), Why: "the smallest sizing: what each component costs"}
	}
	k := m.learn(history)
	if len(k.figures) == 0 {
		last := history[len(history)-1]
		return Step{Done: true, Why: fmt.Sprintf("%s: no capacity was found, so there is nothing to learn from", last.Sizing)}
	}
	next, best, why := k.best()
	switch {
	case next >= 0:
		p := k.of(next)
		return Step{Sizing: m.sizings[next].Clone(), Why: why, Predicted: &p}
	case best < 0 || k.figures[best].again:
		return Step{Done: true, Why: why}
	}
	return Step{Sizing: m.sizings[k.figures[best].sizing].Clone(), Again: true, Predicted: &k.figures[best].Prediction,
		Why: why + "; measured once more, because the best of many is partly lucky"}
}

// Choose implements Chooser.
func (m *model) Choose(history []vitrine.Measured) (index int, why string) {
	k := m.learn(history)
	if len(k.figures) == 0 {
		return -1, "no sizing was seen to carry even the lowest rate"
	}
	_, best, why := k.best()
	if best < 0 {
		return -1, why
	}
	f := k.figures[best]
	name := m.sizings[f.sizing]
	once := "measured once"
	if f.again {
		once = "measured once more"
	}
	what := map[string]string{MostCapacity: "the most capacity within the resources", FewestVCPUs: "the fewest vCPUs",
		LowestPrice: "the lowest price"}[m.cfg.Objective]
	if m.cfg.Reach > 0 {
		what += " that carry " + m.rate(m.cfg.Reach)
	}
	return f.history, fmt.Sprintf("%s of %d sizings, %d of them measured: %s carries %s [%.4g, %.4g] (%s) with %.4g vCPUs",
		what, len(m.sizings), len(k.figures), name, m.rate(f.measured.Rate), f.measured.Low, f.measured.High, once,
		m.space.Resources(name).VCPUs)
}

// learn fits the ensemble to the history.
func (m *model) learn(history []vitrine.Measured) *known {
	k := &known{model: m, tried: map[int]bool{}}
	e := gather(m.places, history, m.cfg.Threshold)
	if len(e.sizes) > 0 {
		k.ensemble = fit(e, m.cfg.Seed)
	}
	at := map[int]int{}
	for i, h := range history {
		s, ours := m.index[h.Sizing.String()]
		if !ours {
			continue
		}
		k.tried[s] = true
		if m.cfg.Threshold >= len(h.Capacities) || k.ensemble == nil {
			continue
		}
		c := h.Capacities[m.cfg.Threshold]
		f := figure{sizing: s, history: i, censored: c.Censored, measured: c}
		if c.Censored == vitrine.CensoredBelow || !(c.Rate > 0) {
			f.measured.Rate, f.measured.Low = 0, 0
		}
		if n, seen := at[s]; seen {
			f.again = true
			k.figures[n] = f
			continue
		}
		at[s] = len(k.figures)
		k.figures = append(k.figures, f)
	}
	for i := range k.figures {
		k.figures[i].Prediction = k.of(k.figures[i].sizing)
	}
	return k
}

// of returns what the sizing is predicted to carry.
func (k *known) of(sizing int) Prediction { return k.predict(k.all(sizing)) }

// all returns the sizing's cells, followed by those of components that do not
// scale.
func (k *known) all(sizing int) []int {
	cells := slices.Clone(k.model.cells[sizing])
	return append(cells, make([]int, len(k.ensemble.places)-len(cells))...)
}

// best returns the sizing to measure next, -1 for none, the best figure so far,
// -1 for none, and why.
func (k *known) best() (next, best int, why string) {
	if k.cfg.Objective == MostCapacity {
		return k.most()
	}
	return k.cheapest()
}

func (m *model) rate(r float64) string { return Objective{Unit: m.cfg.Unit}.rate(r) }

// most looks for the highest capacity.
func (k *known) most() (next, best int, why string) {
	best = k.highest()
	if best < 0 {
		return k.upward()
	}
	f := k.figures[best]
	name := k.sizings[f.sizing]
	if end := outOfRange(name, f.censored, k.rate(f.measured.Rate)); end != "" {
		return -1, best, end
	}
	gains, chance, expected := k.gains(f)
	if chance < plausible || expected < enough {
		return -1, best, fmt.Sprintf("no untried sizing can plausibly beat %s, which carries %s: the chance that any carries %.0f%% more is %.0f%%, and all that is left to gain is %.1f%%",
			name, k.rate(f.Rate), 100*worthwhile, 100*chance, 100*expected)
	}
	next = k.leanest(gains)
	p := k.of(next)
	return next, best, fmt.Sprintf("predicted to carry %s [%.4g, %.4g]: a chance of %.0f%% to carry at least %.0f%% more than %s (%s)",
		k.rate(p.Rate), p.Low, p.High, 100*gains[next].chance, 100*worthwhile, name, k.rate(f.Rate))
}

// A gain is the expected benefit of measuring a sizing.
type gain struct {
	mean   float64 // expected improvement, as a share of the best
	chance float64 // that the improvement is worthwhile
}

// gains returns the gain of each sizing over the best, the chance that any of
// them is worthwhile, and the expected gain of the best of them all.
func (k *known) gains(best figure) (gains []gain, chance, expected float64) {
	gains = make([]gain, len(k.sizings))
	now := k.drawn(best.sizing)
	one := 1 / float64(len(now))
	most := make([]float64, len(now)) // by draw, of any sizing
	for s := range k.sizings {
		if k.tried[s] || k.dominated(s, best) {
			continue
		}
		cells := k.all(s)
		for i, log := range now {
			c, _ := k.capacity(i, cells)
			if c <= log {
				continue
			}
			more := math.Expm1(c - log)
			most[i] = max(most[i], more)
			gains[s].mean += more * one
			if more > worthwhile {
				gains[s].chance += one
			}
		}
	}
	for _, more := range most {
		expected += more * one
		if more > worthwhile {
			chance += one
		}
	}
	return gains, chance, expected
}

// leanest returns the sizing with the fewest vCPUs among those with nearly the
// highest gain: what a component has beyond its need is wasted.
func (k *known) leanest(gains []gain) int {
	const nearly = 0.9
	top := 0.0
	for _, g := range gains {
		top = max(top, g.mean)
	}
	next := -1
	for s, g := range gains { // ascending by vCPUs
		switch {
		case g.mean < nearly*top:
		case next < 0, sameVCPUs(k.costs[s], k.costs[next]) && g.mean > gains[next].mean:
			next = s
		}
	}
	return next
}

// highest returns the figure with the highest capacity, and among those alike the
// cheapest; -1: none carries anything.
func (k *known) highest() int {
	best := -1
	for i, f := range k.figures {
		if f.measured.Rate > 0 && (best < 0 || f.Rate > k.figures[best].Rate) {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	top := k.figures[best]
	for i, f := range k.figures {
		same := f.measured.Rate > 0 && f.Rate >= (1-alike)*top.Rate && f.censored == top.censored
		if same && k.costs[f.sizing] < k.costs[k.figures[best].sizing]-1e-9 {
			best = i
		}
	}
	return best
}

// upward returns the next sizing while none carried even the lowest rate: the one
// with the highest upper bound of its prediction.
func (k *known) upward() (next, best int, why string) {
	next, most := -1, 0.0
	for s := range k.sizings {
		if p := k.of(s); !k.tried[s] && p.High > most {
			next, most = s, p.High
		}
	}
	if next < 0 {
		return -1, -1, fmt.Sprintf("all %d sizings are measured, and none carries even the lowest rate", len(k.sizings))
	}
	return next, -1, "nothing measured carries even the lowest rate: the one believed to carry most"
}

// drawn returns the logarithm of the sizing's capacity in every draw.
func (k *known) drawn(sizing int) []float64 {
	cells := k.all(sizing)
	logs := make([]float64, len(k.draws))
	for i := range k.draws {
		logs[i], _ = k.capacity(i, cells)
	}
	return logs
}

// dominated reports whether a measured sizing carries less than the best for
// sure, although it has as many instances of every component, and at least as
// much for each. Between sizings of different counts nothing is sure: more
// instances may carry less (NFV-VITAL, Table II).
func (k *known) dominated(sizing int, best figure) bool {
	for _, f := range k.figures {
		if f.censored == vitrine.CensoredNone && f.measured.High < best.measured.Low && k.least(k.sizings[f.sizing], k.sizings[sizing]) {
			return true
		}
	}
	return false
}

// least reports whether a has as many instances of every component as b, and at
// least as much for each.
func (m *model) least(a, b vitrine.Sizing) bool {
	for i := range a {
		x, y := m.space.Flavors[m.space.flavor(a[i].Initial)], m.space.Flavors[m.space.flavor(b[i].Initial)]
		if a[i].Count != b[i].Count || x.VCPUs < y.VCPUs || x.Memory < y.Memory {
			return false
		}
	}
	return true
}
