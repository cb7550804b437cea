package rate

import (
	"fmt"
	"math"
	"time"

	"vitrine"
)

// mlr searches as the IETF's Multiple Loss Ratio search does
// (draft-ietf-bmwg-mlrsearch).
type mlr struct {
	cfg   Config
	grid  mlrGrid
	goals [][]mlrTarget // of each threshold, from coarse to fine
	wrong error
}

const (
	mlrShortest  = time.Second // length of a trial, unless the configuration's is shorter
	mlrExceed    = 0.5         // share of the time at a rate that may fail a goal (the draft's default)
	mlrCoarser   = 2           // number of coarser targets before a goal
	mlrExpansion = 2           // of the width, when a bound is not found
	mlrMost      = 300         // trials of a repeat and a threshold; far more than the rates allow for
)

// NewMLR returns a search for all thresholds at once by the logic of MLRsearch.
// Each threshold is a goal; its loss ratio is the share of calls that may fail.
// How long the trials at a rate passed and failed makes the rate a lower or an
// upper bound. The search begins with wide bounds and trials of a second. Each
// further target halves the width and lengthens the trials. The last target wants
// bounds no further apart than the precision, by trials of the full duration. The
// coarse targets only say where to look.
//
// The first repeat begins at the highest rate and goes where its goodput points,
// as in the draft. With a prior, it begins there. On a stateful function without
// a prior, it begins at the lowest rate. Later repeats begin on a fresh
// deployment with the bounds found before and the last target.
//
// A rate whose trials are invalid is an upper bound: it could not be measured.
func NewMLR(cfg Config) Search {
	m := &mlr{cfg: cfg, wrong: cfg.Check()}
	if m.wrong == nil && cfg.Max == cfg.Min {
		m.wrong = fmt.Errorf("range [%g, %g]: want two rates to search between", cfg.Min, cfg.Max)
	}
	if m.wrong == nil {
		precision := cfg.Precision
		if precision == 0 {
			precision = defaultPrecision
		}
		m.grid = newMLRGrid(cfg.Min, cfg.Max, precision)
		for _, t := range cfg.Thresholds {
			m.goals = append(m.goals, mlrTargets(1-t, cfg.Duration))
		}
	}
	return m
}

// Trials implements Planner: about three each to open and for every target, and
// both bounds in later repeats.
func (m *mlr) Trials() int {
	return 3 + len(m.goals)*(3*(mlrCoarser+1)+2*(m.cfg.Repeat-1))
}

func (m *mlr) Next(history []vitrine.Outcome) Step {
	if m.wrong != nil {
		return Step{Done: true, Why: m.wrong.Error()}
	}
	_, next := m.replay(history)
	return next
}

// replay walks the search through the history. It returns what each repeat found,
// and the step after the last outcome.
func (m *mlr) replay(history []vitrine.Outcome) (found []*mlrRun, next Step) {
	var before *mlrRun
	for repeat := 1; repeat <= m.cfg.Repeat; repeat++ {
		var own []vitrine.Outcome
		for _, o := range history {
			if o.Repeat == repeat {
				own = append(own, o)
			}
		}
		run := newMLRRun(m, own)
		found = append(found, run)
		run.walk(before)
		if run.pending != nil {
			next = *run.pending
			next.Repeat, next.Restart = repeat, len(own) == 0
			return found, next
		}
		before = run
	}
	return found, Step{Done: true, Repeat: m.cfg.Repeat,
		Why: fmt.Sprintf("all %d repeats are done: in the last %s", m.cfg.Repeat, before.result())}
}

// Estimate implements Estimator. The capacity of a repeat is the geometric mean
// of the relevant bounds; the result is the geometric mean over repeats. The
// interval holds the bounds of all repeats. It is not a confidence interval: the
// draft defines none.
func (m *mlr) Estimate(history []vitrine.Outcome) []vitrine.Capacity {
	capacities := make([]vitrine.Capacity, len(m.cfg.Thresholds))
	if m.wrong != nil {
		return capacities
	}
	runs, _ := m.replay(history)
	for i, threshold := range m.cfg.Thresholds {
		capacities[i] = m.capacity(i, runs)
		capacities[i].Threshold = threshold
	}
	return capacities
}

// capacity joins what the repeats found for one goal.
func (m *mlr) capacity(goal int, runs []*mlrRun) vitrine.Capacity {
	low, high, sum, n := math.Inf(1), 0.0, 0.0, 0.0
	lowest, highest, refused := 0, 0, 0
	for _, r := range runs {
		lo, hi, ok := r.bounds(goal)
		if !ok {
			continue // the repeat stopped before any bound was known
		}
		if hi >= 0 && r.blocked[hi] {
			refused++
		}
		from, to := m.cfg.Min, m.cfg.Max
		switch {
		case lo < 0:
			lowest++
			to = from
		case hi < 0:
			highest++
			from = to
		default:
			from, to = m.grid.rate(lo), m.grid.rate(hi)
		}
		low, high = min(low, from), max(high, to)
		sum += (math.Log(from) + math.Log(to)) / 2
		n++
	}
	if n == 0 {
		return vitrine.Capacity{Censored: vitrine.CensoredGenerator}
	}
	c := vitrine.Capacity{Rate: min(max(tidy(math.Exp(sum/n)), low), high), Low: low, High: high, Censored: vitrine.CensoredNone}
	switch all := int(n); {
	case refused == all && lowest == all:
		return vitrine.Capacity{Censored: vitrine.CensoredGenerator}
	case refused == all:
		c.Rate, c.High, c.Censored = low, low, vitrine.CensoredGenerator
	case lowest == all:
		c.Low, c.Censored = 0, vitrine.CensoredBelow
	case highest == all:
		c.Censored = vitrine.CensoredAbove
	}
	return c
}

// mlrGrid holds the rates that may be offered, in equal ratios. Its steps are so
// fine that halving a width never falls between two rates.
type mlrGrid struct {
	lowest, highest float64
	top             int // index of the highest
	ratio           float64
}

// mlrSteps is the number of grid steps in the narrowest width.
const mlrSteps = 16

func newMLRGrid(low, high, width float64) mlrGrid {
	narrowest := -math.Log1p(-width) // distance of the lower bound below the upper one
	span := math.Log(high / low)
	top := max(mlrSteps, math.Ceil(span*mlrSteps/narrowest-stepTolerance))
	return mlrGrid{lowest: low, highest: high, top: int(top), ratio: span / top}
}

func (g mlrGrid) rate(i int) float64 {
	switch {
	case i <= 0:
		return g.lowest
	case i >= g.top:
		return g.highest
	}
	return tidy(g.lowest * math.Exp(float64(i)*g.ratio))
}

// index returns the grid step at or below the rate.
func (g mlrGrid) index(rate float64) int {
	if rate <= g.lowest {
		return 0
	}
	return min(g.top, int(math.Floor(math.Log(rate/g.lowest)/g.ratio+stepTolerance)))
}
