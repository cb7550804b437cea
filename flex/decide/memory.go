package decide

import (
	"math"
	"slices"
	"time"
)

// A Memory is what Decide must remember from one second to the next. The zero value
// is that of a first start. It can be written and read as JSON, so that an
// orchestrator that starts again goes on where it was. Its fields are for explain
// and for tests; only Decide changes them.
type Memory struct {
	At    time.Time         `json:"at"` // of the last View
	Types map[string]*Track `json:"types"`
}

// A Track is what is remembered of one type.
type Track struct {
	Sight Sight           `json:"sight"` // what the last decision saw
	Rates []float64       `json:"rates"` // of the last seconds, oldest first
	Boots []time.Duration `json:"boots"` // of the last starts, oldest first

	Peaks []float64 `json:"peaks"`       // highest rate to be carried, of successive parts of the stable time, oldest first
	Part  time.Time `json:"peaks_since"` // begin of the last part
	Known time.Time `json:"known_since"` // since when the metrics have been known without a gap; zero: they are not

	Held     float64   `json:"held"`    // capacity by the profile after the last decision that knew the rate
	Drained  time.Time `json:"drained"` // the last Drain action
	Failures int       `json:"failures"`
	Failed   time.Time `json:"failed"` // the last failure
	Died     string    `json:"died"`   // its reason

	Faith    float64 `json:"faith"`    // share of the profile's capacity that the objective was held at
	Profile  float64 `json:"profile"`  // sum of the flavors' capacities that Faith is about
	Broken   int     `json:"broken"`   // seconds for which the objective has been broken
	Suffices int     `json:"suffices"` // seconds for which the active instances should have been enough
}

// A Sight is what a decision saw of a type, in transactions/s.
type Sight struct {
	Level    float64       `json:"level"`    // the rate now, without noise
	Forecast float64       `json:"forecast"` // the rate expected at the end of a start
	Peak     float64       `json:"peak"`     // highest rate to be carried within the stable time
	Capacity float64       `json:"capacity"` // of the instances that start, warm or are active, less headroom and doubt
	Boot     time.Duration `json:"boot"`     // 90th percentile of the last starts
}

const (
	bootsKept  = 32 // starts that the percentile of the boot time rests on
	peakParts  = 12 // parts of the stable time
	jump       = 10 * time.Second
	tick       = time.Second
	longEnough = time.Minute // an instance that was active for this long did not die in a loop

	firstWait = 10 * time.Second // after the second failure; doubles with each further one
	mostWait  = 5 * time.Minute
)

// advance brings the memory to the view's second: it follows jumps of the clock,
// forgets types that are gone, and takes in starts and deaths.
func (m *Memory) advance(v *View) {
	if m.Types == nil {
		m.Types = map[string]*Track{}
	}
	if passed := v.Now.Sub(m.At); !m.At.IsZero() && (passed < 0 || passed > jump) {
		for _, t := range m.Types {
			t.shift(passed - tick)
		}
	}
	m.At = v.Now
	kept := make(map[string]*Track, len(v.Types))
	for i := range v.Types {
		t := m.Types[v.Types[i].Name]
		if t == nil {
			t = &Track{}
		}
		t.meet(&v.Types[i])
		kept[v.Types[i].Name] = t
	}
	m.Types = kept
	for _, b := range v.Booted {
		if t := kept[b.Type]; t != nil {
			t.Boots = append(t.Boots, b.Took)
			t.Boots = t.Boots[max(0, len(t.Boots)-bootsKept):]
		}
	}
	for _, d := range v.Died {
		// Deaths of the same second have one cause, and count as one.
		if t := kept[d.Type]; t != nil && d.Lived < longEnough && !t.Failed.Equal(v.Now) {
			t.Failures++
			t.Failed, t.Died = v.Now, d.Reason
		}
	}
}

// shift moves the remembered times with the clock, so that what was remembered is
// as old as before. The metrics have a gap.
func (t *Track) shift(by time.Duration) {
	for _, at := range []*time.Time{&t.Part, &t.Drained, &t.Failed} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	t.Known = time.Time{}
}

// meet compares the profile with the remembered one. A new profile is believed.
func (t *Track) meet(v *TypeView) {
	sum := 0.0
	for _, f := range v.Flavors {
		sum += f.Capacity
	}
	if t.Faith == 0 || t.Profile != sum {
		t.Faith, t.Profile = 1, sum
		t.Broken, t.Suffices = 0, 0
	}
}

// boot returns the 90th percentile of the last starts.
func (t *Track) boot(v *TypeView) time.Duration {
	if len(t.Boots) == 0 {
		if v.Boot > 0 {
			return v.Boot
		}
		return DefaultBoot
	}
	var space [bootsKept]time.Duration
	sorted := append(space[:0], t.Boots...)
	slices.Sort(sorted)
	return sorted[int(math.Ceil(0.9*float64(len(sorted))))-1]
}

// see takes in the metrics of a second in which they are known.
func (t *Track) see(v *TypeView, now time.Time, boot time.Duration) {
	if t.Known.IsZero() {
		t.Known = now
	}
	rate := v.Rate
	if !(rate >= 0) || math.IsInf(rate, 1) {
		rate = 0
	}
	if len(t.Rates) >= history {
		t.Rates = append(t.Rates[:0], t.Rates[len(t.Rates)-history+1:]...)
	}
	t.Rates = append(t.Rates, rate)

	deviation := noise(t.Rates)
	var bound float64
	t.Sight.Level, bound = level(t.Rates, deviation)
	t.Sight.Forecast = forecast(t.Rates, t.Sight.Level, deviation, boot.Seconds()+2*tick.Seconds())

	part := v.stable() / peakParts
	if len(t.Peaks) == 0 || now.Sub(t.Part) >= part {
		t.Peaks = append(t.Peaks, 0)
		t.Peaks = t.Peaks[max(0, len(t.Peaks)-peakParts-1):]
		t.Part = now
	}
	last := &t.Peaks[len(t.Peaks)-1]
	*last = max(*last, bound, t.Sight.Forecast)
	t.Sight.Peak = slices.Max(t.Peaks)
}

// wait returns until when instances that die again and again are not started.
func (t *Track) wait() time.Time {
	if t.Failures < 2 {
		return time.Time{}
	}
	return t.Failed.Add(min(mostWait, firstWait<<min(t.Failures-2, 10)))
}
