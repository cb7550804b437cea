package papers

import (
	"encoding/json"
	"fmt"
	"math"

	"vitrine"
	"vitrine/measure/delay"
)

// A Ratio is one quantity over another with its 95% interval. Mean is NaN where a
// quantity is only bounded; High may be infinite.
type Ratio struct{ Mean, Low, High float64 }

// MarshalJSON writes null for values that are not finite numbers.
func (r Ratio) MarshalJSON() ([]byte, error) {
	number := func(v float64) *float64 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	return json.Marshal(map[string]*float64{"mean": number(r.Mean), "low": number(r.Low), "high": number(r.High)})
}

func (r Ratio) String() string {
	high := "no bound"
	if !math.IsInf(r.High, 0) {
		high = short(r.High)
	}
	if math.IsNaN(r.Mean) {
		return fmt.Sprintf("[%s, %s]", short(r.Low), high)
	}
	return fmt.Sprintf("%s [%s, %s]", short(r.Mean), short(r.Low), high)
}

// ratio returns more / less. If both were measured in the same turns, it is the
// mean of the turns' ratios. Otherwise its interval uses MOVER on logarithms (Zou
// and Donner 2008): the squared distances of the bounds from the means are added.
// If a quantity is only bounded, the interval is what the bounds allow. ok is
// false if a quantity is not positive.
func ratio(less, more Reading) (r Ratio, ok bool) {
	if logs := logRatios(less.Turns, more.Turns); logs != nil {
		return geometric(logs), true
	}
	lessLow, lessHigh := less.bounds()
	moreLow, moreHigh := more.bounds()
	if less.Bound != "" || more.Bound != "" {
		return Ratio{math.NaN(), moreLow / lessHigh, moreHigh / lessLow}, lessHigh > 0
	}
	if less.Mean <= 0 || more.Mean <= 0 {
		return r, false
	}
	mean := math.Log(more.Mean / less.Mean)
	down := math.Hypot(math.Log(more.Mean/max(moreLow, 0)), math.Log(lessHigh/less.Mean))
	up := math.Hypot(math.Log(moreHigh/more.Mean), math.Log(less.Mean/max(lessLow, 0)))
	return Ratio{math.Exp(mean), math.Exp(mean - down), math.Exp(mean + up)}, true
}

// logRatios returns the logarithm of more / less in each turn. A turn's two values were measured one
// soon after the other, so their ratio has little of the drift of the host. It returns nil if the
// quantities were not measured in the same turns, or if one is not positive.
func logRatios(less, more []float64) []float64 {
	if len(less) < 2 || len(less) != len(more) {
		return nil
	}
	logs := make([]float64, len(less))
	for i := range less {
		if less[i] <= 0 || more[i] <= 0 {
			return nil
		}
		logs[i] = math.Log(more[i] / less[i])
	}
	return logs
}

// geometric returns the geometric mean of the turns' ratios, with Student's interval of the logarithms.
func geometric(logs []float64) Ratio {
	i := delay.OfRepeats(logs)
	return Ratio{math.Exp(i.Mean), math.Exp(i.Low), math.Exp(i.High)}
}

// difference returns more - less with MOVER's interval.
func difference(less, more Reading) Ratio {
	lessLow, lessHigh := less.bounds()
	moreLow, moreHigh := more.bounds()
	mean := more.Mean - less.Mean
	return Ratio{mean, mean - math.Hypot(more.Mean-moreLow, lessHigh-less.Mean), mean + math.Hypot(moreHigh-more.Mean, less.Mean-lessLow)}
}

// average returns the geometric mean of ratios. Its interval allows for errors that the ratios have
// in common, because all frame sizes are measured on the same deployments.
func average(list []Ratio) Ratio {
	var mean, down, up float64
	for _, r := range list {
		mean += math.Log(r.Mean)
		down += math.Log(r.Mean / r.Low)
		up += math.Log(r.High / r.Mean)
	}
	n := float64(len(list))
	return Ratio{math.Exp(mean / n), math.Exp((mean - down) / n), math.Exp((mean + up) / n)}
}

// averageInTurns returns the geometric mean of ratios of the same turns, from their logarithms. A turn
// gives one value, the mean over the ratios, so the interval holds whatever errors these have in common.
// ok is false if the ratios were not measured in the same turns.
func averageInTurns(list [][]float64) (r Ratio, ok bool) {
	means := make([]float64, len(list[0]))
	for _, logs := range list {
		if logs == nil || len(logs) != len(means) {
			return r, false
		}
		for i, v := range logs {
			means[i] += v / float64(len(list))
		}
	}
	return geometric(means), true
}

// bounds returns an interval that holds the quantity, bounded on one side or
// both.
func (r Reading) bounds() (low, high float64) {
	return vitrine.Capacity{Low: r.Low, High: r.High, Censored: r.Bound}.Bounds()
}
