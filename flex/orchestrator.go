// Package flex is the orchestrator: it keeps as many instances of each aggregate type
// running as the load needs (Contain-ed, section 2, "AA Flex Orchestrator"). Each second it
// reads the directors and the instances, asks a policy (package decide) what to do, and
// does it. It starts and
// stops instances by a Runner and never knows where they run.
//
// One goroutine owns all state; see step. Others read the Status that it publishes.
package flex

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/policy"
	"vitrine/flex/unit"
)

// A Runner runs units: flex/hold does, on a testbed. All calls return at once, and may be
// repeated: Start of a unit that exists, and Remove of one that does not, are no errors.
type Runner interface {
	// Units lists all units, those that failed or are being removed included.
	Units(ctx context.Context) ([]unit.Unit, error)
	// Start begins to start a unit.
	Start(ctx context.Context, o unit.Order) error
	// Remove begins to stop a unit, and forgets it when nothing of it is left.
	Remove(ctx context.Context, name string) error
}

// A Director steers transactions to instances: director/client does.
type Director interface {
	Types(ctx context.Context) ([]client.Type, error)
	Instances(ctx context.Context) ([]client.Instance, error)
	Put(ctx context.Context, in vitrine.Instance) (client.Instance, error)
	Alter(ctx context.Context, name string, change client.Change) (client.Instance, error)
	Remove(ctx context.Context, name string) error
}

// Options are what an Orchestrator works with.
type Options struct {
	File      *config.Config
	Types     []decide.Type // of the file, in its order, with the capacities of their flavors
	Limits    decide.Limits
	Runner    Runner
	Directors []Director // of the file, in its order
	// Store returns the operations of the store that are past their threshold; nil: there
	// is no store.
	Store func(ctx context.Context) ([]string, error)
	// Redline measures instances of the types whose file says so; nil: nothing is measured.
	Redline Measurer
	Costs   map[string]map[string]Cost // CPU by the file's profiles, by type and size
	Log     *slog.Logger
	// Policy decides, and PolicyName is its name; nil: package decide. Others are for
	// comparisons.
	Policy     policy.Policy
	PolicyName string
}

// An Orchestrator runs aggregates.
type Orchestrator struct {
	Options
	events *Events
	kept   *stateFile
	status atomic.Pointer[Status]

	asked   sync.Mutex // guards drains
	drains  []string   // instances that users asked to drain
	counted counters

	// The fields below are of the goroutine that calls step.

	instances map[string]*instance
	next      map[string]int // number of the next instance, by type
	number    uint16         // the one given last
	gone      map[string]bool
	memory    decide.Memory
	services  map[string]*service
	directors []reading
	types     map[string]*typeReading
	booted    []decide.Booted
	died      []decide.Died
	holds     map[string]decide.Cause // by type: what the last step held for
	why       map[string][]string     // by type: the reasons of the last step
	away      map[string]string       // what is away, and why
	store     storeWatch
	profiles  map[string]*Profile // by type
	measuring *measurement        // nil: none is under way
	saved     time.Time
	changed   bool // the state file is outdated
}

// New takes up the state in the file's folder. A folder without state is a first start.
func New(o Options) (*Orchestrator, error) {
	f := &Orchestrator{
		Options: o, instances: map[string]*instance{}, next: map[string]int{}, gone: map[string]bool{}, services: map[string]*service{},
		directors: make([]reading, len(o.Directors)), types: map[string]*typeReading{}, holds: map[string]decide.Cause{},
		why: map[string][]string{}, away: map[string]string{}, profiles: map[string]*Profile{},
	}
	if f.Policy == nil {
		f.Policy, f.PolicyName = decide.Decide, policy.Flex
	}
	var err error
	if f.events, err = openEvents(o.File.State); err != nil {
		return nil, err
	}
	f.kept, f.Types = newStateFile(o.File.State), slices.Clone(o.Types)
	if err := f.restore(); err != nil {
		return nil, err
	}
	f.status.Store(&Status{})
	return f, nil
}

// Close closes the log of events.
func (o *Orchestrator) Close() error { return o.events.close() }

// Run decides until ctx ends. What runs goes on running.
func (o *Orchestrator) Run(ctx context.Context) error {
	tick := time.NewTicker(o.File.Every)
	defer tick.Stop()
	for {
		o.step(ctx)
		select {
		case <-ctx.Done():
			o.endRedline()
			o.save(time.Now(), true)
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// callLimit bounds each question to a director or the runner, so that one that hangs does
// not stop the others.
const callLimit = 2 * time.Second

// step reads everything, decides and acts once.
func (o *Orchestrator) step(ctx context.Context) {
	now := time.Now()
	defer o.publish(now)
	o.watchStore(ctx, now)
	units, ok := o.listUnits(ctx)
	if !ok {
		return // hold: nobody knows what runs
	}
	o.observe(now, units)
	if !o.runServices(ctx, now, units) {
		return
	}
	o.readDirectors(ctx, now)
	o.obeyDrains(now)
	o.advance(now)
	o.register(ctx)
	o.beginReadings(now)
	view := o.view(now)
	began := time.Now()
	actions := o.Policy(view, &o.memory)
	o.counted.decided(time.Since(began))
	o.booted, o.died = nil, nil
	o.carryOut(ctx, now, actions)
	o.runRedline(ctx, now, actions)
	o.save(now, false)
}

// listUnits asks the runner what runs.
func (o *Orchestrator) listUnits(ctx context.Context) (map[string]unit.Unit, bool) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	all, err := o.Runner.Units(ctx)
	o.note("the runner of instances", err)
	if err != nil {
		return nil, false
	}
	byName := make(map[string]unit.Unit, len(all))
	for _, u := range all {
		byName[u.Name] = u
	}
	return byName, true
}

// note records that something is away, or back.
func (o *Orchestrator) note(what string, err error) {
	was := o.away[what]
	switch {
	case err != nil && was == "":
		o.away[what] = err.Error()
		o.events.add(Event{Kind: EventAway, Reason: what + " is away: " + err.Error() + "; what runs goes on running"})
	case err != nil:
		o.away[what] = err.Error()
	case was != "":
		delete(o.away, what)
		o.events.add(Event{Kind: EventBack, Reason: what + " is back"})
	}
}

// Drain asks for an instance to be drained and stopped. Another one takes its place if it is
// needed.
func (o *Orchestrator) Drain(name string) error {
	for _, in := range o.Status().Instances {
		if in.Name == name {
			o.asked.Lock()
			defer o.asked.Unlock()
			if len(o.drains) < len(o.Status().Instances) {
				o.drains = append(o.drains, name)
			}
			return nil
		}
	}
	return &Absent{Instance: name}
}

// An Absent is the error for an instance that does not exist.
type Absent struct{ Instance string }

func (e *Absent) Error() string { return "no instance " + e.Instance }

// obeyDrains drains the instances that users asked for.
func (o *Orchestrator) obeyDrains(now time.Time) {
	o.asked.Lock()
	names := o.drains
	o.drains = nil
	o.asked.Unlock()
	for _, name := range names {
		in := o.instances[name]
		if in == nil || in.Manual || in.State == decide.Failed || in.State == decide.Stopping {
			continue
		}
		in.Manual = true
		switch in.State {
		case decide.Starting, decide.Warming:
			o.enter(in, decide.Drained, now)
		case decide.Active:
			o.enter(in, decide.Draining, now)
		}
		o.event(in, EventDrain, "asked", "a user asked for it")
	}
}
