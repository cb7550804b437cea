package rate

import (
	"slices"
	"testing"

	"vitrine"
)

func TestFitPoolsWhatRises(t *testing.T) {
	trial := func(repeat int, rate float64, succeeded int64, valid bool) vitrine.Outcome {
		return vitrine.Outcome{
			Key:       vitrine.Key{Repeat: repeat, Rate: rate},
			Scheduled: 100, Offered: 100, Succeeded: succeeded, Valid: valid,
		}
	}
	rates, ratios := Fit([]vitrine.Outcome{
		trial(1, 200, 80, true), trial(1, 300, 90, true), trial(2, 200, 60, true), // 0.7, then 0.9: pooled by calls
		trial(1, 100, 100, true), trial(1, 400, 20, true), trial(2, 400, 0, false),
	})
	if want := []float64{100, 200, 300, 400}; !slices.Equal(rates, want) {
		t.Errorf("rates %v, want %v", rates, want)
	}
	if want := []float64{1, 230.0 / 300, 230.0 / 300, 0.2}; !slices.Equal(ratios, want) {
		t.Errorf("ratios %v, want %v", ratios, want)
	}
	if rates, ratios := Fit([]vitrine.Outcome{trial(1, 100, 100, false)}); rates != nil || ratios != nil {
		t.Errorf("no valid trial gives %v, %v", rates, ratios)
	}
}
