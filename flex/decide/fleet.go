package decide

import "time"

// A fleet is the instances of one type in a View, and what is remembered of it.
type fleet struct {
	*TypeView
	mem     *Track
	boot    time.Duration
	states  [Stopping + 1]int
	profile float64 // capacity of those that start, warm or are active, by the profile
	active  float64 // of this, capacity of the active ones
	kinds   []kind  // by flavor

	unknown   int     // active instances with unknown metrics
	rate      float64 // that the active instances were sent
	good      float64 // of this, what succeeded
	slow      float64 // of this, what was sent to instances slower than the objective
	slowest   *Instance
	cpu       float64   // sum over the active instances
	survivor  time.Time // begin of the latest active time that has lasted longEnough
	revivable *Instance // the last one that began to drain
	since     time.Time // when it began

	shortfall float64 // capacity that is missing, by the profile
	plan      []int   // starts that are left to do, by flavor
	started   int
	cause     Cause  // of the starts
	reason    string // of the starts
}

// A kind is the instances of one flavor.
type kind struct {
	victim *Instance // the active one with the fewest transactions in flight
}

// gather counts the instances of every type, in the order of the view's types.
func gather(v *View, m *Memory) []fleet {
	fleets := make([]fleet, len(v.Types))
	index := make(map[string]int, len(v.Types))
	for i := range v.Types {
		t := &v.Types[i]
		mem := m.Types[t.Name]
		fleets[i] = fleet{TypeView: t, mem: mem, boot: mem.boot(t), kinds: make([]kind, len(t.Flavors))}
		index[t.Name] = i
	}
	for i := range v.Instances {
		in := &v.Instances[i]
		if at, ok := index[in.Type]; ok {
			fleets[at].add(in, v.Now)
		}
	}
	return fleets
}

// add counts one instance.
func (f *fleet) add(in *Instance, now time.Time) {
	index := f.flavorOf(in.Flavor)
	flavor := &f.Flavors[index]
	f.states[in.State]++
	switch in.State {
	case Starting, Warming:
		f.profile += flavor.Capacity
	case Active:
		f.profile += flavor.Capacity
		f.active += flavor.Capacity
		f.addActive(in, now, &f.kinds[index])
	case Draining:
		if f.revivable == nil || in.Since.After(f.since) {
			f.revivable, f.since = in, in.Since
		}
	}
}

func (f *fleet) addActive(in *Instance, now time.Time, k *kind) {
	if now.Sub(in.Since) >= longEnough && in.Since.After(f.survivor) {
		f.survivor = in.Since
	}
	if k.victim == nil || in.InFlight < k.victim.InFlight || in.InFlight == k.victim.InFlight && in.Rate < k.victim.Rate {
		k.victim = in
	}
	if !in.Known {
		f.unknown++
		return
	}
	f.rate += in.Rate
	f.good += in.Rate * in.Success
	f.cpu += in.CPU
	if f.Objective.P99 > 0 && in.P99 > f.Objective.P99 {
		f.slow += in.Rate
		if f.slowest == nil || in.P99 > f.slowest.P99 {
			f.slowest = in
		}
	}
}

// existing counts the instances that count against the type's maximum.
func (f *fleet) existing() int { return f.serving() + f.states[Draining] + f.states[Drained] }

// serving counts the instances that are active or on the way to that.
func (f *fleet) serving() int { return f.states[Starting] + f.states[Warming] + f.states[Active] }

// usable turns capacity by the profile into the rate that may be planned on it.
func (f *fleet) usable(profile float64) float64 { return profile * f.mem.Faith * (1 - f.Headroom) }

// nominal is the inverse of usable.
func (f *fleet) nominal(rate float64) float64 { return rate / (f.mem.Faith * (1 - f.Headroom)) }

// success returns the success ratio of everything that arrived, refused
// transactions included.
func (f *fleet) success() float64 {
	if f.rate+f.Refused <= 0 {
		return 1
	}
	return f.good / (f.rate + f.Refused)
}

// broken reports whether the type as a whole does not meet its objective: too few
// transactions succeed, or the instances that are too slow serve at least half of them.
func (f *fleet) broken() bool {
	return f.Objective.Success > 0 && f.success() < f.Objective.Success ||
		f.slow > 0 && f.slow >= f.rate/2
}

// The evidence that a profile is wrong, and what follows from it.
const (
	patience   = 5           // seconds that the objective must be broken for
	settled    = 10          // seconds that the active instances must have been enough for
	leastDoubt = 0.5         // at less than this share of the profile's capacity, something else is wrong
	step       = 1.1         // more capacity after each finding
	regain     = 0.1 / 21600 // trust regained a second while the objective holds: a tenth in six hours
)

// judge compares the objective with the profile. The profile is wrong when the
// objective is broken for some time although the active instances should have
// carried the rate since before. Then capacity counts for less.
func (f *fleet) judge() {
	carried := f.usable(f.active)
	if carried >= f.mem.Sight.Level && carried >= f.Rate {
		f.mem.Suffices++
	} else {
		// A second above the capacity, even by noise, is an excuse.
		f.mem.Suffices, f.mem.Broken = 0, 0
	}
	if !f.broken() {
		f.mem.Broken = 0
		if f.slow == 0 && f.mem.Faith < 1 {
			f.mem.Faith = min(1, f.mem.Faith+regain)
		}
		return
	}
	f.mem.Broken++
	if f.mem.Broken < patience || f.mem.Suffices < settled || f.serving() > f.states[Active] {
		return
	}
	doubted := f.mem.Sight.Level / (1 - f.Headroom) / (f.profile * step)
	if doubted >= leastDoubt && doubted < f.mem.Faith {
		f.mem.Faith, f.mem.Broken, f.mem.Suffices = doubted, 0, 0
	}
}

// elsewhere reports whether more capacity cannot mend the broken objective.
func (f *fleet) elsewhere() bool {
	return f.mem.Broken >= patience && f.mem.Suffices >= settled && f.serving() == f.states[Active]
}

// measure sets the shortfall. While the rate is unknown the capacity is kept as it
// was: instances that die are replaced.
func (f *fleet) measure() {
	wanted := f.mem.Held
	if f.Known {
		wanted = f.nominal(f.wanted())
	}
	f.shortfall = wanted - f.profile
	// A billionth is rounding.
	if !(f.shortfall > 1e-9*f.profile) {
		f.shortfall = 0
	}
}

// wanted returns the rate to have capacity for.
func (f *fleet) wanted() float64 { return max(f.mem.Sight.Level, f.mem.Sight.Forecast) }
