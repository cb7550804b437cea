// Package flex implements the orchestrator. It scales the instances of each aggregate type
// with the load (Contain-ed, section 2, "AA Flex Orchestrator"). In each step, once a second,
// it reads the directors and the instances, asks a policy (package decide) for actions, and
// carries them out. It starts and stops instances through a Runner and does not know where
// they run.
//
// The goroutine that calls step owns all state. Other goroutines read the Status that it
// publishes.
package flex

import (
	"context"
	"log/slog"
	"net/netip"
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

// A Runner runs units. Package flex/hold implements it on a testbed. All calls return
// without waiting for the unit and are idempotent: Start of an existing unit and Remove of a
// missing unit return nil.
type Runner interface {
	// Units lists all units, including failed units and units under removal.
	Units(ctx context.Context) ([]unit.Unit, error)
	// Start begins to start a unit.
	Start(ctx context.Context, o unit.Order) error
	// Remove begins to stop a unit. Units lists the unit until all its resources are freed.
	Remove(ctx context.Context, name string) error
}

// A Director steers transactions to instances. Package director/client implements it.
type Director interface {
	Types(ctx context.Context) ([]client.Type, error)
	Instances(ctx context.Context) ([]client.Instance, error)
	Leases(ctx context.Context) ([]client.Lease, error)
	Release(ctx context.Context, typeName string, token uint64) (client.Lease, error)
	Put(ctx context.Context, in vitrine.Instance) (client.Instance, error)
	Alter(ctx context.Context, name string, change client.Change) (vitrine.Instance, error)
	Remove(ctx context.Context, name string) error
}

// Options configure an Orchestrator.
type Options struct {
	File      *config.Config
	Types     []decide.Type // in the order of File.Types, with the capacities of their flavors
	Limits    decide.Limits
	Runner    Runner
	Directors []Director // in the order of File.Directors
	// Store queries the store at an address: File.Store, or a member of it. nil: there is no
	// store.
	Store func(ctx context.Context, url string) (StoreHealth, error)
	// Redline measures instances of the types with a redline section in the file. nil: no
	// measurements.
	Redline Measurer
	Costs   map[string]map[string]Cost // CPU cost from the profiles in the file, by type and size
	Log     *slog.Logger
	Version string // for the status and /metrics
	// Policy decides, and PolicyName is its name. nil: package decide. Other policies exist
	// for comparisons.
	Policy     policy.Policy
	PolicyName string
}

// An Orchestrator runs aggregates.
type Orchestrator struct {
	Options
	events *Events
	status atomic.Pointer[Status]

	asked   sync.Mutex // guards drains
	drains  []string   // instances that users asked to drain, until the next step
	counted *counters

	// Only the goroutine that calls step may use the fields below.

	instances map[string]*instance
	next      map[string]int            // number in the name of the newest instance, by type
	number    uint16                    // last instance number that freeNumber chose in turn
	gone      map[string]netip.AddrPort // addresses of removed instances, which directors may have or get back; invalid: not known
	memory    decide.Memory
	services  map[string]*service
	directors []reading
	admitted  []bool // by director: an answer had no foreign instances
	types     map[string]*typeReading
	booted    []decide.Booted
	died      []decide.Died
	holds     map[holdKey]time.Time // when each Hold was last decided
	why       map[string][]string   // by type: reasons of the actions in the last step
	away      map[string]string     // unreachable components, with the error
	store     storeWatch
	profiles  map[string]*Profile  // by type
	measuring *measurement         // nil: no measurement is under way
	digests   map[[2]string]string // digests of orders from the present files, by type and size
	saved     time.Time
	changed   bool // the state file is out of date
}

// New returns an orchestrator that continues from the state in File.State. Without a state
// file it starts from nothing.
func New(o Options) (*Orchestrator, error) {
	f := &Orchestrator{
		Options: o, instances: map[string]*instance{}, next: map[string]int{}, gone: map[string]netip.AddrPort{}, services: map[string]*service{},
		directors: make([]reading, len(o.Directors)), admitted: make([]bool, len(o.Directors)), types: map[string]*typeReading{}, holds: map[holdKey]time.Time{},
		why: map[string][]string{}, away: map[string]string{}, profiles: map[string]*Profile{}, digests: map[[2]string]string{},
		store: storeWatch{silent: map[string]*silence{}}, counted: newCounters(),
	}
	if f.Policy == nil {
		f.Policy, f.PolicyName = decide.Decide, policy.Flex
	}
	var err error
	if f.events, err = openEvents(o.File.State, o.Log); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(o.Types)
	for _, t := range f.Types {
		f.counted.begin(t.Name)
	}
	if err := f.restore(); err != nil {
		return nil, err
	}
	f.status.Store(&Status{Types: []TypeStatus{}, Instances: []InstanceStatus{}})
	return f, nil
}

// Close closes the log of events.
func (o *Orchestrator) Close() error { return o.events.close() }

// period is the time between two steps. Package decide counts in seconds.
const period = time.Second

// Run decides until ctx ends. The instances keep running after Run returns.
func (o *Orchestrator) Run(ctx context.Context) error {
	o.publish(time.Now()) // the first step may wait for a director
	for {
		// A ticker would let two steps follow a long one closely. Rates over so short a time are noise.
		next := time.After(period)
		o.step(ctx)
		select {
		case <-ctx.Done():
			o.endRedline()
			o.save(time.Now(), true)
			return context.Cause(ctx)
		case <-next:
		}
	}
}

// callLimit bounds the calls to the directors, the runner and the store, so that one hung
// peer does not block the step.
const callLimit = 2 * time.Second

// step reads everything, decides and acts once.
func (o *Orchestrator) step(ctx context.Context) {
	now := time.Now()
	defer o.publish(now)
	all := o.readAll(ctx, now)
	o.watchStore(now, all.stores)
	o.note("the runner of instances", all.failed)
	if all.failed != nil { // the running units are unknown
		o.takeReadings(all.directors, all.at)
		o.holdAll()
		return
	}
	o.observe(now, all.units)
	ready := o.runServices(ctx, now, all.units)
	// Before a director has answered, it may be a service that has not started. It is not away then.
	if ready || slices.Contains(o.admitted, true) {
		o.takeReadings(all.directors, all.at)
	}
	if !ready {
		return
	}
	o.obeyDrains(now)
	o.advance(now)
	o.endLeases(ctx)
	o.register(ctx)
	o.beginReadings(all.at)
	view := o.view(now)
	began := time.Now()
	actions := o.Policy(view, &o.memory)
	o.counted.decided(time.Since(began))
	o.booted, o.died = nil, nil
	o.carryOut(ctx, now, actions)
	o.runRedline(ctx, now, actions)
	o.save(now, false)
}

// answers are what a step has read.
type answers struct {
	stores    []storeAnswer        // none: no query was due
	units     map[string]unit.Unit // by name
	failed    error                // why the units are unknown
	directors []reading
	at        time.Time // time of the directors' counts
}

// readAll reads the stores, the runner and the directors at the same time. Otherwise a store that
// hangs would delay the directors' counts, and the rate would seem to jump. The three reads change
// no state.
func (o *Orchestrator) readAll(ctx context.Context, now time.Time) (all answers) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { all.stores = o.askStores(ctx, now) })
	group.Go(func() { all.units, all.failed = o.listUnits(ctx) })
	group.Go(func() { all.directors, all.at = o.readDirectors(ctx) })
	group.Wait()
	return all
}

// listUnits returns the runner's units by name.
func (o *Orchestrator) listUnits(ctx context.Context) (map[string]unit.Unit, error) {
	all, err := o.Runner.Units(ctx)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]unit.Unit, len(all))
	for _, u := range all {
		byName[u.Name] = u
	}
	return byName, nil
}

// note records whether a component answers, and adds an event when that changes.
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

// Drain asks the orchestrator to drain and stop an instance. The orchestrator starts a
// replacement if the load needs it.
func (o *Orchestrator) Drain(name string) error {
	for _, in := range o.Status().Instances {
		if in.Name == name {
			o.asked.Lock()
			defer o.asked.Unlock()
			if !slices.Contains(o.drains, name) {
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

// obeyDrains drains the instances that users asked for, or leaves them to advance.
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
		in.Manual, o.changed = true, true
		why := "a user asked for it"
		switch {
		case in.State <= decide.Warming:
			o.enter(in, decide.Drained, now)
		case o.mayDrain(in, now):
			o.enter(in, decide.Draining, now)
		case in.State == decide.Active:
			why += "; it is drained when another one is active at all directors"
		}
		o.event(in, EventDrain, "asked", why)
	}
}

// mayDrain reports whether an active instance that a user drains can be drained now: another one of its type
// serves, or none will, because the limits leave no room for it.
func (o *Orchestrator) mayDrain(in *instance, now time.Time) bool {
	if in.State != decide.Active {
		return false
	}
	coming := false
	for _, other := range o.instances {
		if other == in || other.Type != in.Type {
			continue
		}
		if other.isServing() {
			return true
		}
		coming = coming || other.State <= decide.Active && other.Lost == 0
	}
	return !coming && now.Sub(o.holds[holdKey{in.Type, decide.CauseTotal}]) < 3*period
}
