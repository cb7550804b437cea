package rate

import (
	"sort"

	"vitrine"
)

// A count holds the calls of some trials at one rate.
type count struct{ scheduled, succeeded float64 }

func (c count) ratio() float64 { return c.succeeded / c.scheduled }

func (c *count) add(scheduled, succeeded int64) {
	c.scheduled += float64(scheduled)
	c.succeeded += float64(succeeded)
}

// A curve is success over rate: counts[i] holds the calls at rates[i]. Rates
// ascend. A rate without scheduled calls was not tried.
type curve struct {
	rates  []float64
	counts []count
}

// tried leaves out the rates at which nothing was scheduled.
func (c curve) tried() curve {
	t := curve{make([]float64, 0, len(c.rates)), make([]count, 0, len(c.rates))}
	for i, n := range c.counts {
		if n.scheduled > 0 {
			t.rates = append(t.rates, c.rates[i])
			t.counts = append(t.counts, n)
		}
	}
	return t
}

// fit returns the success ratio at each rate under one assumption: more load
// never succeeds better. It is the decreasing curve with the least squared error,
// where each rate weighs as many calls as were scheduled. It pools adjacent
// violators (Barlow et al., Statistical Inference under Order Restrictions, 1972,
// section 1.2).
func (c curve) fit() []float64 {
	type block struct {
		count
		rates int
	}
	blocks := make([]block, 0, len(c.counts))
	for _, n := range c.counts {
		last := block{n, 1}
		for len(blocks) > 0 && blocks[len(blocks)-1].ratio() < last.ratio() {
			higher := blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			last.scheduled += higher.scheduled
			last.succeeded += higher.succeeded
			last.rates += higher.rates
		}
		blocks = append(blocks, last)
	}
	fit := make([]float64, 0, len(c.counts))
	for _, b := range blocks {
		for range b.rates {
			fit = append(fit, b.ratio())
		}
	}
	return fit
}

// crossing returns the highest rate at which the fit, linear between neighbouring
// rates, is at least the threshold. When the fit is below it everywhere or
// nowhere, that is the lowest or the highest rate, and censored says so.
func (c curve) crossing(fit []float64, threshold float64) (rate float64, censored string) {
	fails := sort.Search(len(fit), func(i int) bool { return fit[i] < threshold })
	switch fails {
	case 0:
		return c.rates[0], vitrine.CensoredBelow
	case len(fit):
		return c.rates[fails-1], vitrine.CensoredAbove
	}
	pass := fails - 1
	way := (fit[pass] - threshold) / (fit[pass] - fit[fails])
	return c.rates[pass] + way*(c.rates[fails]-c.rates[pass]), vitrine.CensoredNone
}

// bracket returns [last pass, first fail] by the counts alone: the rate below the
// first that failed, and the rate above the last that passed. Where the counts
// are not monotone, it holds all rates in doubt. It does not extend beyond the
// rates that were tried.
func (c curve) bracket(threshold float64) (low, high float64) {
	firstFail, lastPass := len(c.counts), -1
	for i, n := range c.counts {
		if n.ratio() >= threshold {
			lastPass = i
		} else {
			firstFail = min(firstFail, i)
		}
	}
	return c.rates[max(firstFail-1, 0)], c.rates[min(lastPass+1, len(c.rates)-1)]
}
