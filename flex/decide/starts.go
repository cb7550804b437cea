package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"vitrine"
)

// fill starts the missing instances of all types. To share the limits fairly, each start goes
// to the type with the lowest covered share.
func (d *decision) fill(fleets []fleet) {
	for i := range fleets {
		d.revive(&fleets[i])
		d.plan(&fleets[i])
	}
	for {
		var next *fleet
		for i := range fleets {
			if f := &fleets[i]; f.left() > 0 && (next == nil || f.covered() < next.covered()) {
				next = f
			}
		}
		if next == nil {
			return
		}
		d.start(next)
	}
}

// left counts the remaining starts of the plan.
func (f *fleet) left() (n int) {
	for _, k := range f.plan {
		n += k
	}
	return n
}

// covered returns the share of the wanted capacity that the type has. For a type below its
// minimum it is negative, so that fill serves this type first.
func (f *fleet) covered() float64 {
	if have := f.serving() + f.started; have < f.Min {
		return float64(have)/float64(f.Min) - 1
	}
	return f.profile / (f.profile + f.shortfall)
}

// revive resumes draining instances while capacity is missing, first the one that began to drain
// last: they are ready, while a new instance must boot first.
func (d *decision) revive(f *fleet) {
	slices.SortStableFunc(f.revivable, func(a, b *Instance) int { return b.Since.Compare(a.Since) })
	for _, in := range f.revivable {
		if f.Leased || f.serving() >= f.Max || f.shortfall == 0 && f.serving() >= f.Min {
			return
		}
		cause, why := f.why()
		d.actions = append(d.actions, Action{Kind: Resume, Type: f.Name, Instance: in.Name, Cause: cause,
			Reason: fmt.Sprintf("%s: it has not gone yet, and a start takes %v", why, f.boot.Round(tick/10))})
		capacity := f.CapacityOf(in.Flavor, in.Was)
		f.states[Draining]--
		f.states[Active]++
		f.profile += capacity
		f.shortfall = max(0, f.shortfall-capacity)
	}
}

// plan chooses the starts of one type, or adds a Hold.
func (d *decision) plan(f *fleet) {
	below := f.Min - f.serving()
	if f.shortfall == 0 && below <= 0 {
		return
	}
	f.cause, f.reason = f.why()
	if n := len(f.lost); n > 0 {
		f.reason += fmt.Sprintf("; active instances that carry nothing, because all directors find them away: %d", n)
	}
	if f.Leased {
		d.hold(f, CauseLease, "redline measures an instance: nothing is started, although %s", f.reason)
		return
	}
	room := f.Max - f.existing()
	f.plan = cover(f.shortfall, f.Flavors, room)
	if more := below - f.left(); more > 0 {
		f.plan[f.cheapest()] += max(0, min(more, room-f.left()))
	}
	missing := f.shortfall
	for i, n := range f.plan {
		missing -= float64(n) * f.Flavors[i].Capacity
	}
	if missing > 1e-9*f.shortfall && f.left() >= room {
		d.hold(f, CauseMaximum, "%s; the maximum of %d instances is reached", f.reason, f.Max)
	}
	d.backOff(f)
}

// cheapest returns the flavor with the fewest CPUs, then the least capacity.
func (f *fleet) cheapest() int {
	best := 0
	for i := range f.Flavors {
		a, b := &f.Flavors[i], &f.Flavors[best]
		if cmp.Or(cmp.Compare(a.CPUs, b.CPUs), cmp.Compare(a.Capacity, b.Capacity)) < 0 {
			best = i
		}
	}
	return best
}

// why returns why the type needs more instances.
func (f *fleet) why() (Cause, string) {
	s := &f.mem.Sight
	carried := f.usable(f.profile)
	can := vitrine.Digits(carried) + "/s can be carried"
	if f.Headroom > 0 {
		can += fmt.Sprintf(" with %.3g%% headroom", 100*f.Headroom)
	}
	switch {
	case f.shortfall == 0:
		return CauseMinimum, fmt.Sprintf("%d instances run or start, below the minimum of %d", f.serving(), f.Min)
	case !f.Known:
		return CauseFailed, "instances died, and the rate is not known: the capacity is kept as it was"
	case f.mem.Faith < 1 && carried/f.mem.Faith >= f.wanted():
		return CauseProfile, fmt.Sprintf("only %.0f%% of the profile's capacity is trusted, because the objective was broken at a rate that should have been carried: %s/s are expected, %s",
			100*f.mem.Faith, vitrine.Digits(f.wanted()), can)
	case s.Level > carried:
		return CauseRate, fmt.Sprintf("%s/s arrive, %s", vitrine.Digits(s.Level), can)
	default:
		return CauseForecast, fmt.Sprintf("%s/s arrive, %s/s are expected when a start of %v is over, %s", vitrine.Digits(s.Level), vitrine.Digits(s.Forecast), f.boot.Round(tick/10), can)
	}
}

// backOff limits the plan of a type in a crash loop, and of one that the directors may not reach: no starts
// during the back-off, and then a single instance on trial.
func (d *decision) backOff(f *fleet) {
	if f.mem.Failures < 2 && !f.cutOff || f.left() == 0 {
		return
	}
	until := f.mem.wait()
	tried := f.states[Starting]+f.states[Warming] > 0 || f.cutOff && f.states[Active] > 0
	if !tried && !d.Now.Before(until) {
		keep := f.largestPlanned()
		clear(f.plan)
		f.plan[keep] = 1
		f.reason += fmt.Sprintf("; one on trial after %d failures", f.mem.Failures)
		return
	}
	clear(f.plan)
	what := fmt.Sprintf("instances died %d times in a row (%s)", f.mem.Failures, f.mem.Died)
	next := "when the one on trial is active"
	if f.cutOff {
		what, next = "no active instance shows that the directors reach the type", "when one does"
	}
	if d.Now.Before(until) {
		next = "in " + until.Sub(d.Now).Round(time.Second).String()
	}
	d.hold(f, CauseBackOff, "%s; %s: the next start is %s", f.reason, what, next)
}

// largestPlanned returns the planned flavor with the highest capacity.
func (f *fleet) largestPlanned() int {
	best := -1
	for i, n := range f.plan {
		if n > 0 && (best < 0 || f.Flavors[i].Capacity > f.Flavors[best].Capacity) {
			best = i
		}
	}
	return best
}

// start starts one planned instance, or an instance of a smaller flavor if only that fits the
// host. If nothing fits, it clears the plan and adds a Hold.
func (d *decision) start(f *fleet) {
	planned := f.largestPlanned()
	if full := d.full(); full != "" {
		clear(f.plan)
		cause := CauseTotal
		if d.Limits.Starting > 0 && d.used.Starting >= d.Limits.Starting {
			cause = CauseStarts
		}
		d.hold(f, cause, "%s; %s", f.reason, full)
		return
	}
	flavor := d.fitting(f, planned)
	if flavor < 0 {
		clear(f.plan)
		d.hold(f, CauseTotal, "%s; the limits leave %s, too little for an instance of size %s or a smaller one", f.reason, d.Limits.left(d.used), f.Flavors[planned].Name)
		return
	}
	f.plan[planned]--
	chosen := &f.Flavors[flavor]
	d.used.Add(chosen)
	d.used.Starting++
	f.started++
	f.profile += chosen.Capacity
	f.shortfall = max(0, f.shortfall-chosen.Capacity)
	d.actions = append(d.actions, Action{Kind: Start, Type: f.Name, Flavor: chosen.Name, Cause: f.cause, Reason: f.reason})
}

// full describes the limit on the number of instances that is reached. Empty: none.
func (d *decision) full() string {
	switch l := &d.Limits; {
	case l.Instances > 0 && d.used.Instances >= l.Instances:
		return fmt.Sprintf("all types together have reached the limit of %d instances", l.Instances)
	case l.Starting > 0 && d.used.Starting >= l.Starting:
		return fmt.Sprintf("%d instances start already, and at most %d may at the same time", d.used.Starting, l.Starting)
	}
	return ""
}

// fitting returns the planned flavor if it fits the free CPUs and memory of the host, or else
// the largest smaller flavor that fits. -1: none fits.
func (d *decision) fitting(f *fleet, planned int) int {
	fits := func(i int) bool { return d.Limits.hold(d.used, &f.Flavors[i]) }
	if fits(planned) {
		return planned
	}
	order := make([]int, 0, len(f.Flavors))
	for i := range f.Flavors {
		if f.Flavors[i].Capacity < f.Flavors[planned].Capacity && fits(i) {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return -1
	}
	return slices.MaxFunc(order, func(a, b int) int { return cmp.Compare(f.Flavors[a].Capacity, f.Flavors[b].Capacity) })
}
