package decide

import "time"

// A fleet summarizes the instances of one type in a View, with the memory of the type.
type fleet struct {
	*TypeView
	mem     *Track
	boot    time.Duration
	states  [Stopping + 1]int
	profile float64     // capacity of the Starting, Warming and Active instances, by the profile
	active  float64     // capacity of the Active instances, by the profile
	victims []*Instance // by flavor: the Active instance with the fewest open transactions and dialogs; nil: there is none

	unknown   int     // Active instances with unknown metrics
	rate      float64 // transactions/s sent to the Active instances
	good      float64 // part of rate that succeeded
	slow      float64 // part of rate sent to instances slower than the objective
	sound     float64 // part of rate sent to instances that are not Failing
	soundGood float64 // part of sound that succeeded
	slowest   *Instance
	worst     *Instance   // the Failing instance with the lowest success ratio; nil: there is none
	strained  float64     // part of rate sent to instances that do not meet the objective
	bearable  float64     // capacity of those instances, by the profile
	cpu       float64     // sum of the known CPU use of the Active instances
	metered   int         // Active instances with known CPU use
	survivor  time.Time   // latest begin of an active time of at least longEnough
	revivable []*Instance // the Draining instances that are not away

	lost    []*Instance // the Active instances that are away for AwayAfter; no other field counts them
	suspect bool        // some Active instance is away, be it for a second
	served  bool        // a transaction succeeded within Window
	eldest  time.Time   // since when the oldest Active instance that is not away has been active; zero: there is none
	cutOff  bool        // some instance is lost, and none shows that the directors reach the type

	shortfall float64 // missing capacity, by the profile
	plan      []int   // remaining starts, by flavor
	started   int
	cause     Cause  // of the starts: see why
	reason    string // of the starts
}

// gather returns a fleet for each type, in the order of the view's types.
func gather(v *View, m *Memory) []fleet {
	fleets := make([]fleet, len(v.Types))
	index := make(map[string]int, len(v.Types))
	for i := range v.Types {
		t := &v.Types[i]
		mem := m.Types[t.Name]
		fleets[i] = fleet{TypeView: t, mem: mem, boot: mem.boot(t), victims: make([]*Instance, len(t.Flavors))}
		index[t.Name] = i
	}
	for i := range v.Instances {
		in := &v.Instances[i]
		if at, ok := index[in.Type]; ok {
			fleets[at].add(in, v.Now)
		}
	}
	for i := range fleets {
		f := &fleets[i]
		f.cutOff = len(f.lost) > 0 && !f.isReached(v.Now)
	}
	return fleets
}

// add adds one instance to the fleet.
func (f *fleet) add(in *Instance, now time.Time) {
	if in.State == Active && in.Away > 0 {
		f.suspect = true
		if in.Away >= AwayAfter {
			f.lost = append(f.lost, in)
			return
		}
	}
	capacity := f.CapacityOf(in.Flavor, in.Was)
	f.states[in.State]++
	switch in.State {
	case Starting, Warming:
		f.profile += capacity
	case Active:
		f.profile += capacity
		f.active += capacity
		f.addActive(in, now, capacity)
	case Draining:
		if in.Away == 0 {
			f.revivable = append(f.revivable, in)
		}
	}
}

func (f *fleet) addActive(in *Instance, now time.Time, capacity float64) {
	if now.Sub(in.Since) >= longEnough && in.Since.After(f.survivor) {
		f.survivor = in.Since
	}
	if in.Away == 0 && (f.eldest.IsZero() || in.Since.Before(f.eldest)) {
		f.eldest = in.Since
	}
	flavor := f.flavorOf(in.Flavor)
	if v := f.victims[flavor]; v == nil || in.open() < v.open() || in.open() == v.open() && in.Rate < v.Rate {
		f.victims[flavor] = in
	}
	if !in.Known {
		f.unknown++
		return
	}
	f.rate += in.Rate
	f.good += in.Rate * in.Success
	f.served = f.served || in.Served
	if in.CPUKnown {
		f.cpu += in.CPU
		f.metered++
	}
	if !in.Failing {
		f.sound += in.Rate
		f.soundGood += in.Rate * in.Success
	} else if f.worst == nil || in.Success < f.worst.Success {
		f.worst = in
	}
	slow := f.Objective.P99 > 0 && in.P99 > f.Objective.P99
	if slow {
		f.slow += in.Rate
		if f.slowest == nil || in.P99 > f.slowest.P99 {
			f.slowest = in
		}
	}
	if slow || in.Success < f.Objective.Success {
		f.strained += in.Rate
		f.bearable += capacity
	}
}

// allCPU returns the sum of the CPU use of all Active instances. The mean of the known ones stands for
// the others.
func (f *fleet) allCPU() float64 {
	return f.cpu * float64(f.states[Active]) / float64(max(f.metered, 1))
}

// existing counts the instances that count against the type's maximum. One lost instance does not, or a type
// at its maximum could not replace it.
func (f *fleet) existing() int {
	return f.serving() + f.states[Draining] + f.states[Drained] + max(0, len(f.lost)-1)
}

// serving counts the Starting, Warming and Active instances.
func (f *fleet) serving() int { return f.states[Starting] + f.states[Warming] + f.states[Active] }

// usable converts capacity by the profile to a rate to plan with: it applies the trust in the
// profile and the headroom.
func (f *fleet) usable(profile float64) float64 { return profile * f.mem.Faith * (1 - f.Headroom) }

// nominal is the inverse of usable.
func (f *fleet) nominal(rate float64) float64 { return rate / (f.mem.Faith * (1 - f.Headroom)) }

// success returns the success ratio of all arriving transactions, including refused ones.
func (f *fleet) success() float64 { return share(f.good, f.rate+f.Refused) }

// share returns part/all; 1 if all is 0.
func share(part, all float64) float64 {
	if all <= 0 {
		return 1
	}
	return part / all
}

// seemsBroken reports whether the type as a whole does not meet its objective: too few
// transactions succeed, or the instances that are too slow serve at least half of them.
func (f *fleet) seemsBroken() bool {
	return f.success() < f.Objective.Success && !f.failsInPart() || f.slow > 0 && f.slow >= f.rate/2
}

// failsInPart reports whether some instances are Failing, with less than half of the traffic, and the success
// ratio is met without them. A wrong profile would make the others fail too.
func (f *fleet) failsInPart() bool {
	return f.worst != nil && f.sound > f.rate/2 && share(f.soundGood, f.sound+f.Refused) >= f.Objective.Success
}

// broken reports whether the type as a whole does not meet its objective, and chance does not explain it.
func (f *fleet) broken() bool { return f.seemsBroken() && !f.Chance }

// uneven reports whether the instances that do not meet the objective get clearly more than they carry by
// the profile. If the type's capacity suffices, the traffic does not follow the weights, or not yet: known
// UEs and sessions stay at their instance. That does not show that the profile is wrong, and new instances
// would get none of that traffic.
func (f *fleet) uneven() bool {
	const most = 1.1 // load relative to capacity that noise and the balance of keys explain
	return f.strained > most*f.bearable
}

// Parameters of judge.
const (
	patience   = int(2 * Window / tick) // seconds of a broken objective that show that the profile is wrong; one bad second shows for half of them
	leastDoubt = 0.5                    // lowest Faith; below this share of the profile's capacity the cause lies elsewhere
	step       = 1.1                    // factor of capacity added after each finding
	regain     = 0.1 / 21600            // Faith regained per second while the objective holds: 0.1 in six hours
)

// judge checks the profile against the objective. The profile is wrong if the objective is
// broken for patience seconds although, by the profile, the active instances are enough for the
// rate, and the load is not uneven. Then judge reduces Faith, the trusted share of the profile's
// capacity.
func (f *fleet) judge() {
	// Headroom is for noise: only noise above the whole trusted capacity explains a broken objective.
	enough := f.usable(f.active) >= f.mem.Sight.Level && f.active*f.mem.Faith >= f.Rate
	starts := f.serving() > f.states[Active]
	switch {
	case !enough || starts || !f.seemsBroken():
		f.mem.Broken = 0
	case !f.Chance: // otherwise the second is evidence for neither side
		f.mem.Broken++
	}
	if !f.broken() {
		f.mem.Faith = min(1, f.mem.Faith+regain)
		return
	}
	if !f.elsewhere() || f.uneven() {
		return
	}
	doubted := f.mem.Sight.Level / (1 - f.Headroom) / (f.profile * step)
	if doubted >= leastDoubt && doubted < f.mem.Faith {
		f.mem.Faith, f.mem.Broken = doubted, 0
	}
}

// elsewhere reports whether the objective has been broken for long enough although the active instances are
// enough. After judge, more capacity would not fix the reason.
func (f *fleet) elsewhere() bool { return f.mem.Broken >= patience }

// measure sets the shortfall. While the rate is unknown it keeps the last known capacity, so
// that dead instances are replaced.
func (f *fleet) measure() {
	if f.mem.Held == 0 {
		f.mem.Held = f.profile
	}
	wanted := f.mem.Held
	if f.Known {
		wanted = f.nominal(f.wanted())
	}
	f.shortfall = wanted - f.profile
	// Ignore rounding errors.
	if !(f.shortfall > 1e-9*f.profile) {
		f.shortfall = 0
	}
}

// wanted returns the rate to provide capacity for.
func (f *fleet) wanted() float64 { return max(f.mem.Sight.Level, f.mem.Sight.Forecast) }
