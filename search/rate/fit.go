package rate

import "vitrine"

// Fit returns the success ratio at each rate of the valid trials, in ascending
// order, under one assumption: more load never succeeds better. Estimate calls
// the point where this curve crosses a threshold the capacity.
func Fit(history []vitrine.Outcome) (rates, ratios []float64) {
	t := tabulate(history)
	if len(t.rows) == 0 {
		return nil, nil
	}
	return t.rates, curve{t.rates, t.pooled()}.fit()
}
