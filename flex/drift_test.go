package flex

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"vitrine/redline"
)

// A series simulates the ratio of used to expected CPU time, minute by minute.
type series struct {
	level       float64 // mean
	noise       float64 // standard deviation of a minute
	persistence float64 // correlation of a minute with the one before
	outliers    float64 // share of minutes that take three times as long
}

// alarms simulates runs series. For each it returns the minute in which the rule first detects
// drift, or 0 if it never does.
func (s series) alarms(share float64, runs, minutes int) (first []int) {
	random := rand.New(rand.NewPCG(1, 2))
	for range runs {
		var d drift
		state, at := random.NormFloat64(), 0
		for minute := range minutes {
			state = s.persistence*state + math.Sqrt(1-s.persistence*s.persistence)*random.NormFloat64()
			ratio := max(s.level+s.noise*state, 0.05)
			if random.Float64() < s.outliers {
				ratio *= 3
			}
			d.seconds, d.begun, d.used, d.expected, d.moving = 60, 2400, 24*ratio, 24, 21
			d.close()
			if d.departed(share) {
				at = minute + 1
				break
			}
		}
		first = append(first, at)
	}
	return first
}

func within(all []int, most int) (n int) {
	for _, at := range all {
		if at > 0 && at <= most {
			n++
		}
	}
	return n
}

// TestNoiseIsNoDrift checks how often noise alone causes a measurement within a day. The drift
// limit is 0.2.
func TestNoiseIsNoDrift(t *testing.T) {
	const days, day = 100, 24 * 60
	for name, c := range map[string]struct {
		series
		most int // days with a false alarm
	}{
		"noise of a tenth":                         {series{level: 1, noise: 0.1}, 0},
		"noise of a fifth":                         {series{level: 1, noise: 0.2}, 0},
		"noise of a tenth that lasts ten minutes":  {series{level: 1, noise: 0.1, persistence: 0.9}, 5},
		"one minute in ten takes three times":      {series{level: 1, noise: 0.05, outliers: 0.1}, 0},
		"a profile that is a twentieth too low":    {series{level: 1.05, noise: 0.1}, 0},
		"half of the allowed departure, and noise": {series{level: 1.1, noise: 0.05}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := within(c.alarms(0.2, days, day), day)
			t.Logf("%d of %d days have a false alarm", got, days)
			if got > c.most {
				t.Errorf("%d of %d days have a false alarm, want at most %d", got, days, c.most)
			}
		})
	}
}

// TestDriftIsFound checks how soon real drift causes a measurement.
func TestDriftIsFound(t *testing.T) {
	const runs = 200
	for name, c := range map[string]struct {
		series
		within int // minutes, for 95% of the runs
	}{
		"twice the allowed departure":         {series{level: 1.4, noise: 0.1}, 40},
		"a departure of 0.3":                  {series{level: 1.3, noise: 0.1}, 90},
		"a release that takes less CPU":       {series{level: 0.7, noise: 0.05}, 40},
		"a departure with outliers and noise": {series{level: 1.5, noise: 0.1, outliers: 0.1}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			got := within(c.alarms(0.2, runs, 2*c.within), c.within)
			t.Logf("noticed %d of %d changes within %d minutes", got, runs, c.within)
			if got < runs*95/100 {
				t.Errorf("noticed %d of %d changes within %d minutes, want at least 95%%", got, runs, c.within)
			}
		})
	}
}

// TestQuietMinutesDoNotCount checks that minutes with few transactions, with mostly idle CPU
// use, or with gaps do not count.
func TestQuietMinutesDoNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		rate    float64
		cost    Cost
		seconds int // known in each minute
	}{
		"few transactions": {1, Cost{Idle: 0.001, Each: 0.1}, 60},
		"mostly idle":      {40, Cost{Idle: 0.5, Each: 0.1}, 60},
		"gaps":             {40, Cost{Idle: 0.05, Each: 0.4}, 20},
	} {
		var d drift
		now := time.Unix(1e9, 0)
		for range 60 {
			for range c.seconds {
				d.add(now, 10, c.rate, c.cost)
				now = now.Add(time.Second)
			}
			now = now.Add(time.Duration(60-c.seconds) * time.Second)
		}
		if d.departed(0.2) || len(d.ratios) > 0 {
			t.Errorf("%s: counted %d minutes, want 0", name, len(d.ratios))
		}
	}
}

func TestMedianOfAnEvenNumberOfWindows(t *testing.T) {
	d := drift{ratios: []float64{1, 3, 1, 2, 3, 1}}
	if got, ok := d.median(); !ok || got != 1.5 {
		t.Errorf("got %v, %v, want 1.5", got, ok)
	}
}

func TestCostIsALineThroughTheSteps(t *testing.T) {
	step := func(rate, cpus float64) redline.Step { return redline.Step{Rate: rate, CPU: cpus} }
	line := []redline.Step{step(100, 0.15), step(200, 0.25), step(300, 0.35), {Rate: 400, CPU: 9, Stopped: true}}
	for name, c := range map[string]struct {
		steps []redline.Step
		idle  float64 // known before
		want  Cost
		ok    bool
	}{
		"a line":                             {line, 0.5, Cost{Idle: 0.05, Each: 0.001}, true},
		"one step":                           {line[:1], 0, Cost{Each: 0.0015, Near: 100}, true},
		"two steps":                          {line[:2], 0, Cost{Each: 0.0013, Near: 150}, true},
		"two steps, idle use known":          {line[:2], 0.05, Cost{Idle: 0.05, Each: 0.001}, true},
		"two steps, more idle use than used": {line[:2], 0.5, Cost{Each: 0.0013, Near: 150}, true},
		"falling with use":                   {[]redline.Step{step(100, 0.3), step(200, 0.2), step(300, 0.1)}, 0, Cost{Each: 0.0007142857}, true},
		"CPU not known":                      {[]redline.Step{{Rate: 100}}, 0.05, Cost{}, false},
	} {
		got, ok := costOf(c.steps, c.idle)
		if ok != c.ok || got.Near != c.want.Near || math.Abs(got.Idle-c.want.Idle) > 1e-9 || math.Abs(got.Each-c.want.Each) > 1e-9 {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, ok, c.want)
		}
	}
}
