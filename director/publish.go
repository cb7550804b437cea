package director

import (
	"context"
	"maps"
	"slices"
	"time"

	"vitrine"
	"vitrine/director/table"
)

// gather is how long changes of weights alone are collected for one epoch.
const gather = time.Second

// publishChanges makes epochs from the changes of the roster, and publishes the findings
// of the watch. It builds tables in its own goroutine, so workers do not wait.
func (d *Director) publishChanges(ctx context.Context) error {
	last := d.now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.roster.changed:
			if !d.roster.isUrgent() {
				timer.Reset(max(0, last+gather-d.now()))
				continue
			}
		case <-d.watch.changed:
		case <-timer.C:
		}
		wait, err := d.publish()
		switch {
		case err != nil:
			d.log.Error("cannot make a new epoch; the current one stays in force", "error", err)
		case wait > 0:
			timer.Reset(wait)
		default:
			last = d.now()
		}
	}
}

// publish puts the changes of the roster and the watch in force, or returns how long to
// wait first.
func (d *Director) publish() (wait time.Duration, err error) {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	if d.frozen {
		return gather, nil
	}
	if wait := d.epochs.Wait(d.now()); wait > 0 {
		return wait, nil
	}
	v := d.epochs.View()
	fresh, rules, version := d.roster.snapshot()
	next := v.Table
	if version != d.published {
		fresh.Epoch = d.state.Current.Epoch + 1
		if !fresh.sameAs(&d.state.Current) {
			if next, err = fresh.table(); err != nil {
				return 0, err
			}
			if err := d.meter.Register(next); err != nil {
				return 0, err
			}
		}
	}
	if next == v.Table {
		d.keepTerms(d.state.Dialogs)
	} else {
		d.recordEpoch(fresh, rules)
		d.watch.follow(next, d.config.Load())
		d.counts.epochs.Add(1)
	}
	d.published = version
	d.roster.applied(version)
	d.counts.publications.Add(1)
	panicking := d.inPanic(next)
	wait = d.epochs.Publish(d.now(), next, d.conditionBut(panicking))
	if wait == 0 {
		d.notePanic(panicking)
	}
	return wait, nil
}

// recordEpoch writes the new epoch to disk before it is in force. The director continues if
// that fails or takes too long: only a restart would miss the change.
func (d *Director) recordEpoch(fresh epochState, rules []Rule) {
	s := &d.state
	before := s.Current
	clock := d.options.Clock
	s.Previous, s.Current, s.Rules, s.Terms = &before, fresh, rules, d.roster.allTerms()
	s.Boot, s.Changed, s.Wall = clock.Boot, d.now(), clock.Wall()
	d.save()
	d.drains = fresh.drains(d.now(), d.drains) // the epoch comes into force now, and a slow disk may have taken a second
}

// save writes the state file. If that fails or takes too long, saveTerms tries again. The log has the first
// failure only.
func (d *Director) save() {
	was := d.unsaved
	d.unsaved = d.state.writeBy(d.disk.write, d.config.Load().State)
	switch {
	case d.unsaved != nil:
		d.counts.stateFailures.Add(1)
		if was == nil {
			d.log.Error("cannot save the state; a restart would lose the last change", "epoch", d.state.Current.Epoch, "error", d.unsaved)
		}
	case was != nil:
		d.log.Info("the state is saved again", "epoch", d.state.Current.Epoch)
	}
}

// conditionBut returns condition for all types but those in panic, whose instances all count as up.
func (d *Director) conditionBut(panicking map[string]bool) func(*table.Target) table.Condition {
	return func(t *table.Target) table.Condition {
		if panicking[t.TypeName()] {
			return table.Up
		}
		return d.condition(t)
	}
}

// condition returns the condition of an instance as this director sees it.
func (d *Director) condition(t *table.Target) table.Condition {
	if d.watch.away(t.Name) {
		return table.Away
	}
	if busy := d.busy.Load(); busy != nil && (*busy)[t.Name] {
		return table.Full
	}
	return table.Up
}

// minBounded is the number of transactions in flight up to which an instance never counts
// as full. Shares of so few transactions are noise.
const minBounded = 16

// boundLoad finds the instances that have more than their share of the transactions in
// flight, if bounded_load is set.
func (d *Director) boundLoad() {
	bound := d.config.Load().Bounded
	busy := map[string]bool{}
	if bound > 0 {
		busy = beyondBound(d.epochs.View().Table, d.meter.InFlight(), bound)
	}
	was := d.busy.Swap(&busy)
	if was == nil && len(busy) == 0 || was != nil && maps.Equal(*was, busy) {
		return
	}
	d.watch.notify()
}

func beyondBound(t *table.Table, flights map[string]uint64, bound float64) map[string]bool {
	weights, totals := map[table.Type]float64{}, map[table.Type]float64{}
	for i := range int32(t.Len()) {
		if at := t.Target(i); at.State == vitrine.Active {
			weights[at.Type] += at.Weight
			totals[at.Type] += float64(flights[at.Name])
		}
	}
	busy := map[string]bool{}
	for i := range int32(t.Len()) {
		at := t.Target(i)
		most := max(minBounded, bound*totals[at.Type]*at.Weight/weights[at.Type])
		if at.State == vitrine.Active && float64(flights[at.Name]) > most {
			busy[at.Name] = true
		}
	}
	return busy
}

func (e *epochState) sameAs(o *epochState) bool {
	return slices.Equal(e.Types, o.Types) && slices.Equal(e.Instances, o.Instances) && slices.Equal(e.Rooms, o.Rooms) &&
		slices.EqualFunc(e.Leases, o.Leases, lease.sameAs)
}

// drains returns since when the instances drain that drain in this epoch, by name. before has those that
// drain already; the others drain since now.
func (e *epochState) drains(now time.Duration, before map[string]time.Duration) map[string]time.Duration {
	all := map[string]time.Duration{}
	for i := range e.Instances {
		if e.Instances[i].State != vitrine.Draining {
			continue
		}
		name := e.Instances[i].Name
		since, drains := before[name]
		if !drains {
			since = now
		}
		all[name] = since
	}
	return all
}

// instancesOf returns the instances of a state file, by name. It leaves out those whose address the
// director refuses elsewhere: an older version accepted it, or its listener is no longer configured.
func (d *Director) instancesOf(s *state, c *Config) map[string]vitrine.Instance {
	all := make(map[string]vitrine.Instance, len(s.Current.Instances))
	for _, in := range s.Current.Instances {
		if t := c.Type(in.Type); !isPlace(in.Address) || t != nil && !c.Listen.sendsTo(t, in.Address.Addr()) {
			d.log.Warn("an instance of the state file is left out, because its address is not allowed", "instance", in.Name, "type", in.Type, "address", in.Address.String())
			continue
		}
		all[in.Name] = in
	}
	return all
}

// sameTypes reports whether the types of the configuration begin with the given types, in
// order. Then the type numbers are the same in both.
func sameTypes(c *Config, types []string) bool {
	return len(types) <= len(c.Types) && slices.Equal(types, c.typeNames()[:len(types)])
}

// keepIDs gives instances without an ID the ID that they had before, if their type still has it.
func (d *draft) keepIDs(before map[string]vitrine.Instance) {
	for name, in := range d.instances {
		if old, ok := before[name]; ok && in.ID == 0 && old.Type == in.Type && old.ID <= highestOf(d.types, in.Type) {
			in.ID = old.ID
			d.instances[name] = in
		}
	}
}
