package flex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/unit"
)

// A holdKey names the Holds of a type for one cause.
type holdKey struct {
	typeName string
	cause    decide.Cause
}

// sameHold is how long a Hold may be absent and still be the same one. At the edge of a limit, noise
// in the rate ends and renews a Hold every few seconds.
const sameHold = time.Minute

// hold adds an event for a Hold, unless the same one is on record.
func (o *Orchestrator) hold(now time.Time, a decide.Action) {
	key := holdKey{a.Type, a.Cause}
	if last, known := o.holds[key]; !known || now.Sub(last) > sameHold {
		o.events.add(Event{Kind: decide.Hold.String(), Type: a.Type, Cause: a.Cause, Reason: a.Reason})
	}
	o.holds[key] = now
}

// holdAll says in the status why nothing is decided: the runner does not answer.
func (o *Orchestrator) holdAll() {
	clear(o.why)
	for _, t := range o.Types {
		o.why[t.Name] = []string{fmt.Sprintf("%s: runner: the runner of instances does not answer, so everything stays as it is", decide.Hold)}
	}
	for _, in := range o.instances { // the runner measures their CPU and memory use
		in.unit.Use, in.unit.Members = nil, slices.Clone(in.unit.Members) // a published Status shares the old slice
		for i := range in.unit.Members {
			in.unit.Members[i].CPU, in.unit.Members[i].Memory = nil, nil
		}
	}
}

// carryOut carries out the actions.
func (o *Orchestrator) carryOut(ctx context.Context, now time.Time, actions []decide.Action) {
	clear(o.why)
	var orders []*instance
	for _, a := range actions {
		if a.Kind == decide.Start {
			if in := o.enlist(now, a); in != nil {
				orders = append(orders, in)
			} else {
				a.Kind, a.Cause = decide.Hold, decide.CauseMaximum
				a.Reason += "; the directors have no free ID for another instance of the type"
			}
		}
		why := fmt.Sprintf("%s: %s: %s", a.Kind, a.Cause, a.Reason)
		if a.Kind == decide.Hold && slices.Contains(o.why[a.Type], why) {
			continue // one Hold stands for all starts without an ID
		}
		o.why[a.Type] = append(o.why[a.Type], why)
		if a.Kind == decide.Hold {
			o.hold(now, a)
			continue
		}
		o.counted.actions.WithLabelValues(a.Type, a.Kind.String(), string(a.Cause)).Inc()
		in := o.instances[a.Instance]
		if in == nil {
			continue
		}
		switch {
		case a.Kind == decide.Drain && in.State == decide.Active:
			o.enter(in, decide.Draining, now)
		case a.Kind == decide.Resume && in.State == decide.Draining && !in.Manual:
			o.enter(in, decide.Active, now)
		case a.Kind == decide.Stop && in.State != decide.Stopping:
			o.enter(in, decide.Stopping, now)
		default:
			continue
		}
		o.event(in, a.Kind.String(), a.Cause, a.Reason)
	}
	o.start(ctx, now, orders)
	o.register(ctx) // before stop, so that no director sends to an instance that stops
	o.stop(ctx)
}

// enlist adds an instance, which start then orders. It returns nil if no number is free for it.
func (o *Orchestrator) enlist(now time.Time, a decide.Action) *instance {
	number := o.freeNumber(o.types[a.Type].highest)
	if number == 0 {
		return nil
	}
	o.next[a.Type]++
	in := &instance{Name: fmt.Sprintf("%s-%d", a.Type, o.next[a.Type]), Type: a.Type, Size: a.Flavor, ID: number, ordered: now}
	o.instances[in.Name] = in
	o.enter(in, decide.Starting, now)
	o.event(in, EventStart, a.Cause, a.Reason)
	return in
}

// start orders the instances. It saves the state before it calls the runner, so that no
// instance runs without a record in the state file. One save serves all, because a burst that
// is saved instance by instance would delay the next readings.
func (o *Orchestrator) start(ctx context.Context, now time.Time, all []*instance) {
	if len(all) == 0 {
		return
	}
	o.save(now, true)
	var hangs error // why the runner gets no more orders in this step: each would wait as long
	for _, in := range all {
		err := hangs
		if err == nil {
			err = o.startOne(ctx, in)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			hangs = err
		}
		if err != nil {
			o.fail(in, now, err.Error())
			o.forget(in)
		}
	}
}

func (o *Orchestrator) startOne(ctx context.Context, in *instance) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return o.Runner.Start(ctx, o.order(o.File.Type(in.Type), in))
}

// order returns the order for an instance.
func (o *Orchestrator) order(t *config.Type, in *instance) unit.Order {
	d := o.File.DeploymentOf(t)
	return unit.Order{
		Name: in.Name, Type: t.Name, Path: d.Resolve(filepath.Base(d.Path)), Deployment: string(d.Raw), Size: in.Size, Members: t.Members,
		Number: in.ID, Environment: maps.Clone(t.Environment), Deadline: t.StartDeadline,
	}
}

// stop removes the Stopping instances from the runner. It repeats the requests in each step until
// the instances are gone. One time limit holds for all of them, because a runner that hangs does so
// for each instance.
func (o *Orchestrator) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	for _, in := range o.instances {
		if in.State != decide.Stopping || in.unit.State == unit.Removing {
			continue
		}
		if err := o.Runner.Remove(ctx, in.Name); err != nil {
			o.Log.Warn("cannot stop an instance; retrying", "instance", in.Name, "error", err)
		}
	}
}
