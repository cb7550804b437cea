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
	pooled := make([]count, len(t.rates))
	for _, row := range t.rows {
		for k, n := range row {
			pooled[k].scheduled += n.scheduled
			pooled[k].succeeded += n.succeeded
		}
	}
	return t.rates, curve{t.rates, pooled}.fit()
}
