package sim_test

import (
	"math"
	"testing"

	"vitrine"
	"vitrine/search/sim"
)

// verdict returns an outcome of a thousand calls; growing makes it one that is
// not steady.
func verdict(repeat int, rate, ratio float64) vitrine.Outcome {
	return vitrine.Outcome{Key: vitrine.Key{Repeat: repeat, Rate: rate}, Scheduled: 1000, Succeeded: int64(1000 * ratio), Valid: true}
}

func growing(o vitrine.Outcome) vitrine.Outcome {
	o.InFlight = []int64{1, 100}
	return o
}

func steady(o vitrine.Outcome) bool { return o.InFlight == nil }

func TestBracket(t *testing.T) {
	invalid := verdict(1, 400, 1)
	invalid.Valid = false
	none := math.Inf(1)
	for name, c := range map[string]struct {
		history    []vitrine.Outcome
		pass, fail float64
	}{
		"nothing":                      {nil, 0, none},
		"one deployment":               {[]vitrine.Outcome{verdict(1, 100, 0.9), verdict(1, 120, 0.89), verdict(1, 140, 0.1)}, 100, 120},
		"not steady":                   {[]vitrine.Outcome{verdict(1, 100, 1), growing(verdict(1, 120, 1)), growing(verdict(1, 140, 0))}, 100, 140},
		"invalid":                      {[]vitrine.Outcome{verdict(1, 100, 1), invalid}, 100, none},
		"passing above is passing":     {[]vitrine.Outcome{verdict(1, 100, 1), verdict(2, 110, 1), verdict(3, 50, 1)}, 100, none},
		"half of two are not most":     {[]vitrine.Outcome{verdict(1, 100, 1), verdict(2, 110, 0)}, 0, none},
		"failing below is failing":     {[]vitrine.Outcome{verdict(1, 100, 0), verdict(2, 110, 0), verdict(3, 150, 1)}, 0, 110},
		"a deployment contradicts":     {[]vitrine.Outcome{verdict(1, 200, 1), verdict(1, 100, 0)}, 200, 100},
		"one passes at most and fails": {[]vitrine.Outcome{verdict(1, 90, 1), verdict(1, 99, 0), verdict(2, 95, 1), verdict(2, 98, 0), verdict(3, 97, 1)}, 95, 99},
	} {
		if b := sim.NewBracket(c.history, 0.9, steady); b.Pass != c.pass || b.Fail != c.fail {
			t.Errorf("%s: got %+v, want [%g, %g]", name, b, c.pass, c.fail)
		}
	}
}

func TestContradicts(t *testing.T) {
	var history, states []vitrine.Outcome
	for repeat := 1; repeat <= 3; repeat++ {
		history = append(history, verdict(repeat, 100, 1), verdict(repeat, 120, 0))
	}
	// Two deployments in the lower state, three in the upper one.
	for repeat := 1; repeat <= 5; repeat++ {
		shift := 1.0
		if repeat > 2 {
			shift = 1.5
		}
		states = append(states, verdict(repeat, 100*shift, 1), verdict(repeat, 120*shift, 0))
	}
	two := &vitrine.TwoStates{Lower: 110, Upper: 165}
	for name, c := range map[string]struct {
		history  []vitrine.Outcome
		capacity vitrine.Capacity
		wrong    bool
	}{
		"holds":                 {history, vitrine.Capacity{Low: 105, High: 110}, false},
		"touches":               {history, vitrine.Capacity{Low: 120, High: 130}, false},
		"too low":               {history, vitrine.Capacity{Low: 80, High: 99}, true},
		"too high":              {history, vitrine.Capacity{Low: 121, High: 130}, true},
		"bounded from below":    {history, vitrine.Capacity{Low: 90, High: 90, Censored: vitrine.CensoredAbove}, false},
		"bounded from above":    {history, vitrine.Capacity{Low: 0, High: 99, Censored: vitrine.CensoredBelow}, true},
		"no trial":              {nil, vitrine.Capacity{Low: 1, High: 2}, false},
		"most are in the upper": {states, vitrine.Capacity{Low: 105, High: 115}, true},
		"the lower is judged":   {states, vitrine.Capacity{Low: 105, High: 115, States: two}, false},
		"the lower is wrong":    {states, vitrine.Capacity{Low: 130, High: 140, States: two}, true},
	} {
		c.capacity.Threshold = 0.9
		if err := sim.Contradicts(c.capacity, c.history, steady); (err != nil) != c.wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}
