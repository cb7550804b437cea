package decide

import (
	"math"
	"slices"
	"time"
)

// A Memory is the state that Decide keeps from one second to the next. The zero value is ready
// to use. A Memory survives a round trip through JSON, so that a restarted orchestrator
// continues. Its fields are exported for explain and for tests; only this package changes them.
type Memory struct {
	At    time.Time         `json:"at"` // time of the last View
	Types map[string]*Track `json:"types"`
}

// A Track is the memory of one type.
type Track struct {
	Sight Sight           `json:"sight"` // input of the last decision
	Rates []float64       `json:"rates"` // rates of the last seconds, oldest first
	Boots []time.Duration `json:"boots"` // times of the last starts, oldest first

	Peaks []float64 `json:"peaks"`       // highest rate to be carried in each part of the stable time, oldest first
	Part  time.Time `json:"peaks_since"` // begin of the last part
	Known time.Time `json:"known_since"` // since when the metrics have been known without a gap; zero: they are unknown

	Held     float64   `json:"held"`     // capacity by the profile to keep while the rate is unknown; 0: not known
	Drained  time.Time `json:"drained"`  // time of the last Drain action
	Failures int       `json:"failures"` // consecutive failures
	Failed   time.Time `json:"failed"`   // time of the last failure
	Died     string    `json:"died"`     // reason of the last failure

	Faith   float64 `json:"faith"`   // trusted share of the profile's capacity, leastDoubt..1
	Profile float64 `json:"profile"` // sum of the flavors' capacities when Faith was reset
	Broken  int     `json:"broken"`  // seconds for which the objective has been broken although the active instances are enough, by the profile
}

// A Sight is the load of a type as a decision saw it, in transactions/s.
type Sight struct {
	Level    float64       `json:"level"`    // the rate now, without noise
	Forecast float64       `json:"forecast"` // the rate expected at the end of a start
	Peak     float64       `json:"peak"`     // highest rate to be carried within the stable time
	Capacity float64       `json:"capacity"` // usable capacity of the Starting, Warming and Active instances, by headroom and Faith
	Boot     time.Duration `json:"boot"`     // 90th percentile of the last starts
}

const (
	bootsKept  = 32               // starts in the sample for the percentile of the boot time
	peakParts  = 12               // parts of the stable time
	jump       = 10 * time.Second // a longer time between two Views is a jump of the clock
	tick       = time.Second      // time between two Views
	longEnough = time.Minute      // the death of an instance that was active for this long is no crash loop

	firstWait = 10 * time.Second // back-off after the second failure; doubles with each further one
	mostWait  = 5 * time.Minute

	lapse = 10 * time.Minute // failures are forgotten after this long without another one; longer than mostWait
)

// advance updates the memory to the time of the view. It corrects for jumps of the clock,
// deletes removed types, and records starts and deaths.
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
		// Deaths in the same second probably have a common cause: count them as one.
		if t := kept[d.Type]; t != nil && d.Lived < longEnough && !t.Failed.Equal(v.Now) {
			t.Failures++
			t.Failed, t.Died = v.Now, d.Reason
		}
	}
}

// shift moves the stored times with the clock, so that their ages stay the same. It clears
// Known, because the metrics have a gap.
func (t *Track) shift(by time.Duration) {
	for _, at := range []*time.Time{&t.Part, &t.Drained, &t.Failed} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	t.Known = time.Time{}
}

// Rebase gives the times of a Memory from JSON the monotonic clock of now. Otherwise their ages would
// change when the wall clock is set.
func (m *Memory) Rebase(now time.Time) {
	times := []*time.Time{&m.At}
	for _, t := range m.Types {
		times = append(times, &t.Part, &t.Known, &t.Drained, &t.Failed)
	}
	for _, at := range times {
		if !at.IsZero() {
			*at = now.Add(at.Sub(now))
		}
	}
}

// meet resets Faith to 1 if the capacities of the flavors have changed. Then Held is no longer comparable
// with the capacity of the instances, and is unknown too.
func (t *Track) meet(v *TypeView) {
	sum := 0.0
	for _, f := range v.Flavors {
		sum += f.Capacity
	}
	if t.Faith == 0 || t.Profile != sum {
		t.Faith, t.Profile = 1, sum
		t.Broken, t.Held = 0, 0
	}
}

// boot returns the 90th percentile of the times of the last starts. Without a start it returns
// the type's default.
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

// see adds the metrics of one second. The caller checks that they are known.
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

// wait returns the end of the back-off of a type in a crash loop. Zero: there is none.
func (t *Track) wait() time.Time {
	if t.Failures < 2 {
		return time.Time{}
	}
	return t.Failed.Add(min(mostWait, firstWait<<min(t.Failures-2, 10)))
}
