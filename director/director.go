// Package director is the service in front of the aggregates (Contain-ed,
// section 3.2): it classifies each message by its type of transaction, picks an
// instance of the aggregate that serves it, and keeps every message of a
// transaction there while instances come, drain and go, and while it is itself
// restarted.
//
// The messages are handled by packages sip and gtpc, by the tables of package
// table. This package is everything around them: the configuration file, what
// outlives a restart, the change from epoch to epoch, health, overload, and the
// control interface.
package director

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
)

// Options say what a Director runs with.
type Options struct {
	Path     string // of the configuration file
	Clock    Clock
	Log      *slog.Logger
	Reload   <-chan struct{} // asks to read the configuration file again; may be nil
	Restart  <-chan struct{} // asks to hand over to a new process; may be nil
	Handover *Handover       // nil: no hand-over, and Restart is refused
}

// A Director is the running service.
type Director struct {
	options Options
	log     *slog.Logger
	now     func() time.Duration

	config    atomic.Pointer[Config] // in force
	roster    *roster
	meter     *meter.Meter
	epochs    *table.Epochs
	watch     *watch
	protocols []*protocol

	control    net.Listener
	local      net.Listener  // of control, at a unix socket; nil: none
	socket     string        // where that is
	socketFile fs.FileInfo   // of the socket; nil: this director has none there
	madeSocket bool          // this process did, and took none over
	restarts   chan struct{} // asked for by REST

	publishing sync.Mutex // over what follows
	state      state
	published  uint64 // the roster's version
	gates      map[string]*overload.Gate
	frozen     bool // amid a hand-over

	tokens  atomic.Pointer[tokens]
	keys    atomic.Pointer[[]key]
	reloads reloads
	counts  struct{ epochs, publications, stateFailures atomic.Uint64 }
	busy    atomic.Pointer[map[string]bool] // instances that bounded load takes for full

	begun time.Time
}

// New reads the configuration and opens the listeners; Run serves. Whoever calls
// New closes the Director.
func New(ctx context.Context, o Options) (_ *Director, err error) {
	c, err := Load(o.Path)
	if err != nil {
		return nil, err
	}
	d := &Director{options: o, log: o.Log, now: o.Clock.Now, roster: newRoster(), gates: map[string]*overload.Gate{}, restarts: make(chan struct{}, 1), begun: o.Clock.Wall()}
	d.config.Store(c)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	d.meter = meter.New(c.Memory.Transactions, time.Duration(c.Transition))
	d.watch = newWatch(d.now, o.Log)
	if err := d.restore(c); err != nil {
		return nil, err
	}
	inherited, err := o.Handover.inherited(c)
	if err != nil {
		return nil, err
	}
	defer closeAll(inherited)
	keys, err := loadKeys(c, nil, o.Clock.Wall())
	if err != nil {
		return nil, err
	}
	d.keys.Store(&keys)
	d.makeGates(c)
	if err := d.openProtocols(c, inherited); err != nil {
		return nil, err
	}
	if err := d.openControl(ctx, c); err != nil {
		return nil, err
	}
	if err := d.openLocal(c); err != nil {
		return nil, err
	}
	return d, o.Handover.keep(d)
}

// restore publishes the first table: that of the state file, unless the
// configuration file has changed since, which then counts, as in a reload.
func (d *Director) restore(c *Config) error {
	old, err := readState(c.State)
	if err != nil {
		return err
	}
	err = d.roster.edit(func(draft *draft) error {
		draft.apply(c)
		if old == nil || !sameTypes(c, old.Current.Types) {
			return nil
		}
		before := old.instances()
		if old.Digest == c.Digest() {
			draft.instances, draft.rules, draft.rooms = before, old.Rules, old.Current.Rooms
			return nil
		}
		draft.keepIDs(before)
		return nil
	})
	if err != nil {
		return err
	}
	fresh, rules, version := d.roster.snapshot()
	d.published = version
	d.state = state{Version: stateVersion, Digest: c.Digest(), Rules: rules, Current: fresh, Starts: 1}
	if old != nil {
		d.state.Starts = old.Starts + 1
	}
	d.state.noteUpgrade(old, d.options.Clock.Wall())
	return d.firstTable(c, old)
}

// firstTable publishes the first table of this process. With a state file, the
// one before it counts for transactions that are amid a change.
func (d *Director) firstTable(c *Config, old *state) error {
	s, age := &d.state, time.Duration(0)
	clock := d.options.Clock
	s.Boot, s.Changed, s.Wall = clock.Boot, d.now(), clock.Wall()
	s.Current.Epoch = 1
	if old != nil && sameTypes(c, old.Current.Types) {
		if s.Current.sameAs(&old.Current) {
			age = old.age(clock)
			s.Current.Epoch, s.Previous = old.Current.Epoch, old.Previous
			s.Boot, s.Changed, s.Wall = old.Boot, old.Changed, old.Wall
		} else {
			s.Current.Epoch, s.Previous = old.Current.Epoch+1, &old.Current
		}
	}
	t, err := s.Current.table()
	if err != nil {
		return err
	}
	var previous *table.Table
	if s.Previous != nil && age < time.Duration(c.Transition) {
		if previous, err = s.Previous.table(); err != nil {
			return fmt.Errorf("the table before epoch %d: %w", s.Current.Epoch, err)
		}
	}
	if err := d.meter.Register(t); err != nil {
		return err
	}
	d.epochs = table.Restore(time.Duration(c.Transition), d.now(), t, previous, age, d.condition)
	d.watch.follow(t, c)
	return s.write(c.State)
}

// Run serves until ctx is done, or until a new process has taken over. A
// Director is run once.
func (d *Director) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.serveControl(ctx) })
	g.Go(func() error { return d.publishChanges(ctx) })
	g.Go(func() error { return d.watch.run(ctx) })
	g.Go(func() error { return d.tick(ctx) })
	g.Go(func() error { return d.listenToFile(ctx) })
	g.Go(func() error { return d.listenToRestart(ctx, stop) })
	if err := d.options.Handover.ready(d); err != nil {
		stop(err)
	}
	d.log.Info("serving", "control", d.control.Addr().String(), "epoch", d.epochs.View().Table.Epoch())
	g.Go(func() error {
		// What the workers remember is handed over as soon as they stop: until
		// then the new process lets messages wait.
		return errors.Join(d.runProtocols(ctx), d.options.Handover.finish(d))
	})
	if err := g.Wait(); !errors.Is(err, errHandedOver) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Close closes the listeners; Run must have returned.
func (d *Director) Close() error {
	var err error
	if d.control != nil {
		err = d.control.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil // serving it closed it
		}
	}
	if d.madeSocket && !d.options.Handover.isDone() {
		d.removeSocket() // Run did, unless it never ran
	}
	if d.local != nil {
		_ = d.local.Close() // serving it closed it, mostly
	}
	return errors.Join(err, d.closeProtocols())
}

// tick does what is done once or several times a second.
func (d *Director) tick(ctx context.Context) error {
	fast := time.NewTicker(100 * time.Millisecond)
	defer fast.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-fast.C:
		}
		d.adjustGates()
		if n%10 == 0 {
			d.meter.Expire(d.now())
			d.turnKeys()
			d.boundLoad()
		}
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // duplicates; what was taken over is open elsewhere
	}
}
