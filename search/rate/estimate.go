package rate

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

const (
	draws      = 1000
	confidence = 0.95
)

// Estimate returns the capacity that the trials of one sizing show, for each of
// cfg.Thresholds. It pools the trials over repeats, fits a decreasing success
// ratio over the offered rate, and returns the rate at which the fit crosses the
// threshold. Invalid trials do not count.
//
// The 95% interval takes the repeats as the sample, because calls and seconds of
// one deployment share its luck. It is the widest of
//   - the percentiles of a bootstrap that resamples repeats,
//   - Student's t with the bootstrap's standard error, because the percentiles
//     of two to five repeats are too narrow: with two repeats that differ it is
//     very wide (t is 12.7), with three it is useful, and with many both agree,
//   - [last pass, first fail] of the pooled trials.
//
// A single repeat does not show how deployments differ. The bootstrap then
// resamples the seconds of its trials, which bounds only the noise within that
// deployment.
//
// The interval stays within the rates that were tried. Where the fit does not
// cross:
//   - below: even the lowest rate failed. Rate is that rate, and the capacity
//     lies within [Low, High] = [0, Rate];
//   - above: even the highest rate passed. Rate is that rate. The capacity is at
//     least Low, and High is only the highest rate tried, not a bound;
//   - generator: as above, but higher rates were asked for and could not be
//     measured; all zero when no trial was valid.
func Estimate(history []vitrine.Outcome, cfg Config) []vitrine.Capacity {
	t := tabulate(history)
	capacities := make([]vitrine.Capacity, len(cfg.Thresholds))
	if len(t.rows) == 0 {
		for i, threshold := range cfg.Thresholds {
			capacities[i] = vitrine.Capacity{Threshold: threshold, Censored: vitrine.CensoredGenerator}
		}
		return capacities
	}
	pooled := curve{t.rates, t.pooled()}
	fit := pooled.fit()
	drawn := t.bootstrap(cfg.Thresholds, cfg.Seed)
	for i, threshold := range cfg.Thresholds {
		rate, censored := pooled.crossing(fit, threshold)
		c := vitrine.Capacity{Threshold: threshold, Rate: rate, Censored: censored}
		c.Low, c.High = interval(rate, drawn[i], len(t.rows))
		low, high := pooled.bracket(threshold)
		c.Low = max(min(c.Low, low, rate), pooled.rates[0])
		c.High = min(max(c.High, high, rate), pooled.rates[len(pooled.rates)-1])
		switch {
		case censored == vitrine.CensoredBelow:
			c.Low, c.High = 0, rate
		case censored == vitrine.CensoredAbove && t.refused > rate:
			c.Censored = vitrine.CensoredGenerator
		}
		capacities[i] = c
	}
	return capacities
}

// interval joins the percentile interval with Student's t. The bootstrap's
// variance over R repeats is (R-1)/R of the true variance.
func interval(rate float64, drawn []float64, repeats int) (low, high float64) {
	slices.Sort(drawn)
	tail := (1 - confidence) / 2
	low = stat.Quantile(tail, stat.Empirical, drawn, nil)
	high = stat.Quantile(1-tail, stat.Empirical, drawn, nil)
	if repeats > 1 {
		r := float64(repeats)
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: r - 1}.Quantile(1 - tail)
		half := t * stat.StdDev(drawn, nil) * math.Sqrt(r/(r-1))
		low, high = min(low, rate-half), max(high, rate+half)
	}
	return low, high
}

// A table holds the valid trials: a row per repeat, a column per rate.
type table struct {
	rates   []float64
	rows    [][]count
	cells   map[int][]vitrine.Outcome // by column
	refused float64                   // the highest rate of an invalid trial; 0: none
}

func tabulate(history []vitrine.Outcome) table {
	t := table{cells: map[int][]vitrine.Outcome{}}
	row := map[int]int{} // repeat -> index
	for _, o := range history {
		if !counts(o) {
			t.refused = max(t.refused, o.Rate)
			continue
		}
		t.rates = append(t.rates, o.Rate)
		if _, seen := row[o.Repeat]; !seen {
			row[o.Repeat] = len(row)
		}
	}
	slices.Sort(t.rates)
	t.rates = slices.Compact(t.rates)
	t.rows = make([][]count, len(row))
	for i := range t.rows {
		t.rows[i] = make([]count, len(t.rates))
	}
	for _, o := range history {
		if counts(o) {
			k, _ := slices.BinarySearch(t.rates, o.Rate)
			t.rows[row[o.Repeat]][k].add(o.Scheduled, o.Succeeded)
			t.cells[k] = append(t.cells[k], o)
		}
	}
	return t
}

// bootstrap estimates the capacity of each threshold from resampled trials, draws
// times.
func (t table) bootstrap(thresholds []float64, seed uint64) [][]float64 {
	random := rand.New(rand.NewPCG(seed, draws))
	drawn := make([][]float64, len(thresholds))
	counts := make([]count, len(t.rates))
	for range draws {
		clear(counts)
		if len(t.rows) > 1 {
			t.drawRepeats(random, counts)
		} else {
			t.drawSeconds(random, counts)
		}
		c := curve{t.rates, counts}.tried()
		fit := c.fit()
		for i, threshold := range thresholds {
			rate, _ := c.crossing(fit, threshold)
			drawn[i] = append(drawn[i], rate)
		}
	}
	return drawn
}

// drawRepeats adds as many repeats as there are, drawn with replacement.
func (t table) drawRepeats(random *rand.Rand, to []count) {
	for range t.rows {
		add(to, t.rows[random.IntN(len(t.rows))])
	}
}

// drawSeconds adds as many seconds of each trial as it has, drawn with
// replacement. A trial without seconds is added whole.
func (t table) drawSeconds(random *rand.Rand, to []count) {
	for k := range to {
		for _, o := range t.cells[k] {
			var drawn count
			for range o.Seconds {
				s := o.Seconds[random.IntN(len(o.Seconds))]
				drawn.add(s.Scheduled, s.Succeeded)
			}
			if drawn.scheduled == 0 {
				drawn.add(o.Scheduled, o.Succeeded)
			}
			to[k].scheduled += drawn.scheduled
			to[k].succeeded += drawn.succeeded
		}
	}
}

// pooled returns the sum over the repeats.
func (t table) pooled() []count {
	total := make([]count, len(t.rates))
	for _, row := range t.rows {
		add(total, row)
	}
	return total
}

func add(to, row []count) {
	for k, n := range row {
		to[k].scheduled += n.scheduled
		to[k].succeeded += n.succeeded
	}
}
