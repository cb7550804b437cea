package rate_test

import (
	"strings"
	"testing"

	"vitrine"
	"vitrine/search/rate"
)

func TestRampOffersTheWholeRange(t *testing.T) {
	cfg := config()
	cfg.Repeat = 2
	search := rate.NewRamp(cfg)
	steps, _ := run(t, search, saturating(100))
	want := "1: 50 100 150 200 250 300 350 400 2: 50 100 150 200 250 300 350 400 done"
	if got := offered(steps); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := search.(rate.Planner).Trials(); n != 16 {
		t.Errorf("plans %d trials, want 16", n)
	}
}

func TestRampRatesAreExact(t *testing.T) {
	cfg := config()
	cfg.Repeat, cfg.Min, cfg.Max, cfg.Increase = 1, 0.1, 0.7, 0.1 // (0.7-0.1)/0.1 is a little less than 6
	steps, _ := run(t, rate.NewRamp(cfg), saturating(1))
	if got, want := offered(steps), "1: 0.1 0.2 0.3 0.4 0.5 0.6 0.7 done"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	cfg.Max = 0.65
	steps, _ = run(t, rate.NewRamp(cfg), saturating(1))
	if got, want := offered(steps), "1: 0.1 0.2 0.3 0.4 0.5 0.6 done"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	cfg.Max, cfg.Increase = 0.1, 0
	steps, _ = run(t, rate.NewRamp(cfg), saturating(1))
	if got, want := offered(steps), "1: 0.1 done"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRampStops(t *testing.T) {
	cfg := config()
	cfg.Stop = func(o vitrine.Outcome) bool { return o.SuccessRatio() < 0.8 }
	steps, _ := run(t, rate.NewRamp(cfg), func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
		return ratio(min(1, (100+50*float64(s.Repeat))/s.Rate)) // 150, 200, 250 by repeat
	})
	want := "1: 50 100 150 200 2: 50 100 150 200 250 300 3: 50 100 150 200 250 300 350 done"
	if got := offered(steps); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if why := steps[len(steps)-1].Why; !strings.Contains(why, "stop condition at 350") {
		t.Errorf("why: %s", why)
	}
}

func TestRampTriesInvalidTrialsAgain(t *testing.T) {
	cfg := config()
	cfg.Repeat = 2
	steps, _ := run(t, rate.NewRamp(cfg), func(s rate.Step, history []vitrine.Outcome) vitrine.Outcome {
		switch {
		case s.Repeat == 1 && s.Rate >= 150: // the generator's ceiling
			return invalid()
		case s.Repeat == 2 && s.Rate == 50 && len(history) < 7: // two bad starts
			return invalid()
		}
		return ratio(1)
	})
	want := "1: 50 100 150 150 150 2: 50 50 50 100 150 200 250 300 350 400 done"
	if got := offered(steps); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if why := steps[3].Why; !strings.Contains(why, "attempt 2 of 3") || !strings.Contains(why, "generator: offered 0.90") {
		t.Errorf("why: %s", why)
	}
	if why := steps[5].Why; !strings.Contains(why, "repeat 1 ended at 150") || !strings.Contains(why, "3 attempts") {
		t.Errorf("why: %s", why)
	}
}
