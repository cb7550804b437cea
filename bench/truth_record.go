package main

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine/search/sim/queue"
)

// A truthRecord holds the figures of one family and their source. A record file is a list of
// truthRecords in the order of queue.Families.
type truthRecord struct {
	Family  string    `json:"family"`
	Servers queue.Set `json:"servers"` // name of the set, which determines the seeds of its servers
	Seed    uint64    `json:"seed"`    // of the searches
	Version string    `json:"version"` // hash of the search's behaviour on the servers
	Runs    int       `json:"runs"`    // of our search at each precision
	source
	Figures []truthFigure `json:"figures"`
}

// A truthFigure sums up the runs of one search at one precision. Figures are
// medians over the runs. A median that is not finite is missing.
type truthFigure struct {
	Precision      float64  `json:"precision"`
	Search         string   `json:"search"`
	Runs           int      `json:"runs"`
	Held           int      `json:"held"` // intervals that hold the truth
	Coverage       float64  `json:"coverage"`
	CoverageLow    float64  `json:"coverage_low"` // exact 95% interval (Clopper and Pearson)
	CoverageHigh   float64  `json:"coverage_high"`
	P              float64  `json:"p"` // probability of so few, if each interval held with 0.95
	Contradictions int      `json:"contradictions"`
	Width          *float64 `json:"width,omitempty"`  // of the interval, as a share of the estimate
	Oracle         *float64 `json:"oracle,omitempty"` // width of the oracle's; only for our search
	Error          *float64 `json:"error,omitempty"`  // |ln(estimate/truth)|
	Trials         float64  `json:"trials"`
	Deployments    float64  `json:"deployments"`
	Load           float64  `json:"load_s"`
	Wall           float64  `json:"wall_s"`
}

// overOracle returns the width as a multiple of the oracle's.
func (f truthFigure) overOracle() float64 {
	if f.Width == nil || f.Oracle == nil {
		return math.NaN()
	}
	return *f.Width / *f.Oracle
}

// summarize returns the figures of the family.
func (t *truthBench) summarize() truthRecord {
	r := truthRecord{Family: t.family, Servers: queue.HeldOut, Seed: queue.Config(0).Seed, Version: t.version, Runs: t.runs}
	for _, precision := range t.kind.precisions {
		for _, search := range truthSearches() {
			if runs := t.of(precision, search); len(runs) > 0 {
				r.Figures = append(r.Figures, figureOf(precision, search, runs))
			}
		}
	}
	return r
}

func figureOf(precision float64, search string, runs []truthRun) truthFigure {
	n, held := len(runs), countRuns(runs, covered)
	middle := func(figure func(truthRun) float64) float64 {
		v, _ := strconv.ParseFloat(strconv.FormatFloat(median(values(runs, figure)), 'g', 5, 64), 64)
		return v
	}
	finite := func(v float64) *float64 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	f := truthFigure{
		Precision: precision, Search: search, Runs: n, Held: held, Coverage: float64(held) / float64(n),
		CoverageHigh: 1, P: queue.TooFew(held, n, truthConfidence), Contradictions: countRuns(runs, contradicted),
		Width: finite(middle(truthRun.width)), Error: finite(middle(truthRun.error)),
		Trials:      middle(func(r truthRun) float64 { return float64(r.Trials) }),
		Deployments: middle(func(r truthRun) float64 { return float64(r.Deployments) }),
		Load:        middle(func(r truthRun) float64 { return r.Load }),
		Wall:        middle(func(r truthRun) float64 { return r.Wall }),
	}
	const tail = (1 - 0.95) / 2
	if held > 0 {
		f.CoverageLow = distuv.Beta{Alpha: float64(held), Beta: float64(n - held + 1)}.Quantile(tail)
	}
	if held < n {
		f.CoverageHigh = distuv.Beta{Alpha: float64(held + 1), Beta: float64(n - held)}.Quantile(1 - tail)
	}
	if oracle := middle(func(r truthRun) float64 { return r.Oracle }); oracle > 0 {
		f.Oracle = finite(oracle)
	}
	return f
}

// readTruth returns the records of the file, or none if the file does not exist.
func readTruth(file string) (records []truthRecord, err error) {
	return records, readRecord(file, &records)
}

// keepTruth replaces the family's record in the file.
func keepTruth(file string, r truthRecord) error {
	records, err := readTruth(file)
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(old truthRecord) bool { return old.Family == r.Family })
	records = append(records, r)
	order := queue.Families()
	slices.SortStableFunc(records, func(a, b truthRecord) int {
		return cmp.Compare(slices.Index(order, a.Family), slices.Index(order, b.Family))
	})
	return writeRecord(file, records)
}
