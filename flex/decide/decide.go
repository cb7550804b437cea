// Package decide says how many instances of each aggregate type there should be. It
// is pure: no clock, no input, no output, no goroutine. The caller hands it a View
// of everything each second, and carries out the Actions.
//
// docs/flex.md explains the rules. The tests name what users report of other
// autoscalers and what the rules answer to that.
package decide

import (
	"fmt"
	"time"
)

// Decide returns what to do in this second, and updates the memory. Types must be
// valid: 1 <= Min <= Max, at least one flavor, capacities above 0. Decide keeps
// nothing of the view.
func Decide(v View, m *Memory) []Action {
	m.advance(&v)
	fleets := gather(&v, m)
	d := decision{View: &v, used: Used(&v), actions: Clear(&v)}
	for i := range fleets {
		f := &fleets[i]
		f.settle(v.Now)
		f.measure()
		d.explain(f)
	}
	d.fill(fleets)
	for i := range fleets {
		d.shrink(&fleets[i])
		fleets[i].keep()
	}
	return d.actions
}

// A decision is the actions of one second.
type decision struct {
	*View
	used    Limits // by all instances, those that are started in this second included
	actions []Action
}

func (d *decision) hold(f *fleet, cause Cause, format string, args ...any) {
	d.actions = append(d.actions, Action{Kind: Hold, Type: f.Name, Cause: cause, Reason: fmt.Sprintf(format, args...)})
}

// Clear stops the instances that nothing needs any more: those that are drained, and what
// is left of those that failed.
func Clear(v *View) (actions []Action) {
	for i := range v.Instances {
		switch in := &v.Instances[i]; in.State {
		case Drained:
			actions = append(actions, Action{Kind: Stop, Type: in.Type, Instance: in.Name, Cause: CauseDrained, Reason: "drained: nothing is in flight"})
		case Failed:
			actions = append(actions, Action{Kind: Stop, Type: in.Type, Instance: in.Name, Cause: CauseFailed, Reason: "a member died or did not get ready: what is left of it is removed"})
		}
	}
	return actions
}

// settle takes in the metrics and judges the profile by them.
func (f *fleet) settle(now time.Time) {
	if f.survivor.After(f.mem.Failed) {
		f.mem.Failures, f.mem.Died = 0, ""
	}
	f.mem.Sight.Boot = f.boot
	if f.Known {
		f.mem.see(f.TypeView, now, f.boot)
	}
	if f.Known && f.unknown == 0 {
		f.judge()
		return
	}
	f.mem.Known = time.Time{}
	f.mem.Broken, f.mem.Suffices = 0, 0
}

// keep remembers what was decided.
func (f *fleet) keep() {
	f.mem.Sight.Capacity = f.usable(f.profile)
	if f.Known {
		f.mem.Held = f.profile
	}
}

// explain says what of a type's metrics stands in the way of scaling it.
func (d *decision) explain(f *fleet) {
	switch {
	case !f.Known:
		d.hold(f, CauseMetrics, "the rate is not known: the type stays as it is; instances that die are replaced")
	case f.unknown > 0:
		d.hold(f, CauseMetrics, "%d of %d active instances have no fresh metrics: nothing is drained", f.unknown, f.states[Active])
	case f.elsewhere():
		d.hold(f, CauseElsewhere, "%s at %.4g/s, %.0f%% of what the active instances carry by the profile: more instances would not help; look at what they depend on",
			f.ailment(), f.mem.Sight.Level, 100*f.mem.Sight.Level/f.active)
	}
}

// ailment describes what is wrong with the objective; empty: nothing.
func (f *fleet) ailment() string {
	if s := f.success(); f.Objective.Success > 0 && s < f.Objective.Success {
		return fmt.Sprintf("the success ratio is %.4g, below %.4g", s, f.Objective.Success)
	}
	if f.slowest != nil {
		return fmt.Sprintf("the 99th percentile of %s is %v, above %v", f.slowest.Name, f.slowest.P99.Round(time.Millisecond), f.Objective.P99)
	}
	return ""
}
