package rate

import "vitrine"

// Fit is the success ratio at each rate that the valid trials tried, ascending,
// under the one thing that is sure, that more load succeeds no better. It is
// the curve whose crossing of a threshold Estimate calls the capacity.
func Fit(history []vitrine.Outcome) (rates, ratios []float64) {
	t := tabulate(history)
	if len(t.rows) == 0 {
		return nil, nil
	}
	return t.rates, curve{t.rates, t.pooled()}.fit()
}
