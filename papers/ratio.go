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
	if r, ok := inTurns(less.Turns, more.Turns); ok {
		return r, true
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

// inTurns returns the geometric mean of more / less over the turns, with Student's interval of the
// logarithms. A turn's two values were measured one soon after the other, so their ratio has little
// of the drift of the host. ok is false if the quantities were not measured in the same turns, or if
// one is not positive.
func inTurns(less, more []float64) (r Ratio, ok bool) {
	if len(less) < 2 || len(less) != len(more) {
		return r, false
	}
	logs := make([]float64, len(less))
	for i := range less {
		if less[i] <= 0 || more[i] <= 0 {
			return r, false
		}
		logs[i] = math.Log(more[i] / less[i])
	}
	i := delay.OfRepeats(logs)
	return Ratio{math.Exp(i.Mean), math.Exp(i.Low), math.Exp(i.High)}, true
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

// bounds returns an interval that holds the quantity, bounded on one side or
// both.
func (r Reading) bounds() (low, high float64) {
	return vitrine.Capacity{Low: r.Low, High: r.High, Censored: r.Bound}.Bounds()
}
