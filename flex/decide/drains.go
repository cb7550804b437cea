package decide

import (
	"fmt"
	"time"

	"vitrine"
)

const (
	spare   = 0.1 // share of the capacity that must stay free after a drain, so that noise does not cause a new start
	drains  = 6   // most drains within the stable time
	busiest = 0.9 // highest expected CPU use of the remaining instances, 0..1
)

// shrink drains one instance if one less would have carried the load for the whole stable
// time, or if the type has more instances than its maximum. Unknown metrics, a missing
// store, a lost path to the directors, a lease, a broken objective or high CPU use prevents the drain.
func (d *decision) shrink(f *fleet) {
	if f.started > 0 || f.serving() > f.states[Active] || f.serving() <= f.Min || !d.paced(f) {
		return
	}
	if !f.Known || f.unknown > 0 || d.StoreAway || f.cutOff {
		return // explain has added the Hold
	}
	excess := f.serving() > f.Max
	victim := d.victim(f, excess)
	if victim == nil {
		return
	}
	remaining := f.profile - f.CapacityOf(victim.Flavor, victim.Was)
	why := "by the profile, one less would do"
	if excess {
		why = fmt.Sprintf("%d instances are above the maximum of %d", f.serving(), f.Max)
	}
	switch left, cpu := float64(f.states[Active]-1), f.allCPU(); {
	case f.Leased:
		d.hold(f, CauseLease, "redline measures an instance: nothing is drained, although %s", why)
		return
	case f.ailment() != "" && !f.Chance:
		d.hold(f, CauseObjective, "%s: nothing is drained, although %s", f.ailment(), why)
		return
	case !f.Polling && cpu > busiest*left && !excess:
		d.hold(f, CauseCPU, "with one less, the others would use %.0f%% of their CPUs, above the limit of %.0f%%: nothing is drained, although %s", 100*cpu/left, 100*busiest, why)
		return
	}
	a := Action{Kind: Drain, Type: f.Name, Instance: victim.Name, Cause: CauseIdle,
		Reason: fmt.Sprintf("at most %s/s were to be carried in the last %v, and the others can carry %s/s; of its size, it has the fewest open transactions and dialogs: %d",
			vitrine.Digits(f.mem.Sight.Peak), f.stable(), vitrine.Digits(f.usable(remaining)), victim.open())}
	if excess {
		a.Cause, a.Reason = CauseMaximum, fmt.Sprintf("%s; of its size, it has the fewest open transactions and dialogs: %d", why, victim.open())
	}
	d.actions = append(d.actions, a)
	f.mem.Drained = d.Now
	f.profile = remaining
}

// paced reports whether enough time has passed since the last drain. Instances drain one at a
// time. A drain longer than the stable time, such as one with long dialogs, does not block the
// next one.
func (d *decision) paced(f *fleet) bool {
	pause := f.stable() / drains
	if f.states[Draining]+f.states[Drained] > 0 {
		pause = f.stable()
	}
	return d.Now.Sub(f.mem.Drained) >= pause
}

// victim returns the instance to drain; nil: none. The other instances must carry the peak rate
// of the stable time and have the spare share left, unless the type is in excess of its
// maximum. Among these, victim chooses the flavor with the most CPUs, and then the instance
// with the fewest open transactions and dialogs.
func (d *decision) victim(f *fleet, excess bool) (best *Instance) {
	known := !f.mem.Known.IsZero() && d.Now.Sub(f.mem.Known) >= f.stable()
	var saved float64
	for i, v := range f.victims {
		z := &f.Flavors[i]
		if v == nil || !excess && (!known || f.usable(f.profile-f.CapacityOf(v.Flavor, v.Was))*(1-spare) < f.mem.Sight.Peak) {
			continue
		}
		if best == nil || z.CPUs > saved || z.CPUs == saved && v.open() < best.open() {
			best, saved = v, z.CPUs
		}
	}
	return best
}

// open returns how much a drain of the instance waits for.
func (in *Instance) open() int { return in.InFlight + in.Dialogs }

// stable returns the stable time: how long the rate must be low before a drain.
func (v *TypeView) stable() time.Duration {
	if v.Stable > 0 {
		return v.Stable
	}
	return DefaultStable
}
