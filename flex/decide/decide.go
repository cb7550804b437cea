// Package decide decides how many instances of each aggregate type should run. It is pure: no
// clock, no I/O, no goroutines. Each second, the caller passes a View of the whole system and
// carries out the returned Actions.
//
// docs/flex.md explains the rules. reports_test.go shows problems that users reported about
// other autoscalers, and how the rules avoid them.
package decide

import (
	"fmt"
	"time"

	"vitrine"
)

// Decide returns the actions for this second, and updates the memory. Types must be valid:
// 1 <= Min <= Max, at least one flavor, capacities above 0. Decide does not retain the view.
func Decide(v View, m *Memory) []Action {
	m.advance(&v)
	fleets := gather(&v, m)
	d := decision{View: &v, used: Used(&v), actions: Clear(&v)}
	for i := range fleets {
		f := &fleets[i]
		f.settle(&v)
		f.measure()
		d.explain(f)
	}
	d.fill(fleets)
	for i := range fleets {
		if f := &fleets[i]; !d.retire(f) {
			d.shrink(f)
		}
		fleets[i].keep()
	}
	return d.actions
}

// A decision collects the actions of one second.
type decision struct {
	*View
	used    Limits // use by all instances, including the starts of this second
	actions []Action
}

func (d *decision) hold(f *fleet, cause Cause, format string, args ...any) {
	d.actions = append(d.actions, Action{Kind: Hold, Type: f.Name, Cause: cause, Reason: fmt.Sprintf(format, args...)})
}

// Clear returns Stop actions for the Drained and the Failed instances.
func Clear(v *View) (actions []Action) {
	for i := range v.Instances {
		switch in := &v.Instances[i]; in.State {
		case Drained:
			actions = append(actions, Action{Kind: Stop, Type: in.Type, Instance: in.Name, Cause: CauseDrained, Reason: "its drain has ended: it is stopped"})
		case Failed:
			actions = append(actions, Action{Kind: Stop, Type: in.Type, Instance: in.Name, Cause: CauseFailed, Reason: "a member died or did not become ready: what is left of it is removed"})
		}
	}
	return actions
}

// settle adds the metrics of this second to the memory, and judges the profile by them.
func (f *fleet) settle(v *View) {
	quiet := v.Now.Sub(f.mem.Failed) > lapse && f.states[Starting]+f.states[Warming] == 0
	if quiet || f.survivor.After(f.mem.Failed) {
		f.mem.Failures, f.mem.Died = 0, ""
	}
	f.miss(v.Now)
	f.mem.Sight.Boot = f.boot
	if f.Known {
		f.mem.see(f.TypeView, v.Now, f.boot)
	}
	sure := f.Known && f.unknown == 0 && !v.StoreAway
	if !sure {
		f.mem.Known = time.Time{}
	}
	if !sure || v.StoreSlow || f.isDisturbed() {
		f.mem.Broken = 0
		return
	}
	f.judge()
}

// isDisturbed reports whether a broken objective shows nothing about the profile: redline overloads an
// instance on purpose, or calls fail at an instance that hangs.
func (f *fleet) isDisturbed() bool { return f.Leased || f.suspect }

// keep stores the decided capacity in the memory.
func (f *fleet) keep() {
	f.mem.Sight.Capacity = f.usable(f.profile)
	if f.Known {
		f.mem.Held = f.profile
	}
}

// explain adds a Hold if the metrics of a type, or the store, prevent scaling.
func (d *decision) explain(f *fleet) {
	switch {
	case !f.Known:
		d.hold(f, CauseMetrics, "the rate is not known, because a director does not answer or has just begun to: the type stays as it is; instances that die are replaced")
	case f.unknown > 0:
		d.hold(f, CauseMetrics, "%d of %d active instances have no fresh metrics: nothing is drained", f.unknown, f.states[Active])
	case d.StoreAway:
		d.hold(f, CauseStore, "no store answers, so a low rate does not show a low load: nothing is drained; instances start as the rate asks for it")
	case f.cutOff:
		d.hold(f, CauseAway, "active instances that all directors find away: %d, and no other one shows that the directors reach the type: they may hang, or the network is broken; one at a time is started on trial, and only those that were on trial are drained", len(f.lost))
	case d.StoreSlow && f.broken():
		d.hold(f, CauseStore, "%s, and the store is past its threshold: that shows no wrong profile, so only the rate starts instances", f.ailment())
	case f.elsewhere() && f.uneven():
		d.hold(f, CauseElsewhere, "%s: the instances that do not meet the objective get %s/s and carry %s/s by the profile, and the others have room: the traffic does not follow the weights, so more instances would not help",
			f.ailment(), vitrine.Digits(f.strained), vitrine.Digits(f.bearable))
	case f.elsewhere():
		d.hold(f, CauseElsewhere, "%s at %s/s, %.0f%% of what the active instances carry by the profile: more instances would not help; look at what they depend on",
			f.ailment(), vitrine.Digits(f.mem.Sight.Level), 100*f.mem.Sight.Level/f.active)
	case f.success() < f.Objective.Success && f.failsInPart() && !f.isDisturbed():
		d.hold(f, CauseElsewhere, "%s: %s fails %.3g%% of its transactions, and without such instances the objective is met: more instances would not help; look at its log, or replace it with vitrine flex drain",
			f.ailment(), f.worst.Name, 100*(1-f.worst.Success))
	}
}

// ailment describes how the objective is broken, be it by chance. Empty: it is met.
func (f *fleet) ailment() string {
	if s := f.success(); f.Objective.Success > 0 && s < f.Objective.Success {
		return fmt.Sprintf("the success ratio is %.6g, below the objective of %.6g", s, f.Objective.Success)
	}
	if f.slowest != nil {
		return fmt.Sprintf("the 99th percentile of %s is %v, above the objective of %v", f.slowest.Name, f.slowest.P99.Round(time.Microsecond), f.Objective.P99)
	}
	return ""
}
