package rate_test

import (
	"fmt"
	"time"

	"vitrine"
	"vitrine/search/rate"
)

// A caller asks for a step, runs the trial, appends the outcome, and asks again.
// Here the trial is simulated: at most 320 calls/s succeed, so the success ratio is
// 0.9 at 356 calls/s.
func ExampleNewBisect() {
	cfg := rate.Config{Min: 100, Max: 1000, Increase: 50, Duration: 10 * time.Second, Repeat: 1, Thresholds: []float64{0.9}, Seed: 1}
	search := rate.NewBisect(cfg)
	var history []vitrine.Outcome
	for {
		step := search.Next(history)
		if step.Done {
			break
		}
		calls := int64(step.Rate * step.Duration.Seconds())
		history = append(history, vitrine.Outcome{
			Key:      vitrine.Key{Seq: len(history) + 1, Repeat: step.Repeat, Rate: step.Rate},
			Duration: step.Duration, Valid: true,
			Scheduled: calls, Offered: calls, Succeeded: int64(float64(calls) * min(1, 320/step.Rate)),
		})
	}
	capacity := rate.Estimate(history, cfg)[0]
	fmt.Printf("%d trials: %.0f calls/s, between %.0f and %.0f\n", len(history), capacity.Rate, capacity.Low, capacity.High)
	// Output: 7 trials: 356 calls/s, between 350 and 400
}
