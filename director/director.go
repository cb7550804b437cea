// Package director is the service in front of the aggregates (Contain-ed, section 3.2).
// It classifies each message by its type of transaction, and picks an instance of the
// aggregate that serves that type. It keeps every message of a transaction at that
// instance while instances come, drain and go, and across its own restart.
//
// Packages sip, gtpc and s1ap handle the messages, by the tables of package table. This
// package does the rest: the configuration file, the state that survives a restart, the
// change from epoch to epoch, health, overload, and the control interface.
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
	"vitrine/internal/access"
	"vitrine/internal/durable"
)

// Options configure a Director.
type Options struct {
	Path     string // of the configuration file
	Clock    Clock
	Log      *slog.Logger
	Reload   <-chan struct{} // requests to read the configuration file again; may be nil
	Restart  <-chan struct{} // requests to hand over to a new process; may be nil
	Handover *Handover       // nil: no hand-over, and Restart is refused
	// Supervisor is the program that waits for this process and ends its descendants, so that
	// Restart is refused; empty: none.
	Supervisor string
	Version    string // for the status and /metrics
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
	local      net.Listener  // the control interface's unix socket; nil: none
	socket     string        // path of the unix socket
	socketFile fs.FileInfo   // of the unix socket; nil: this director has no file there
	madeSocket bool          // this process created the unix socket and did not take it over
	lostSocket bool          // warnOfLostSocket has logged it
	restarts   chan struct{} // requested by REST

	publishing sync.Mutex // guards the fields down to frozen
	state      state
	published  uint64 // version of the roster
	gates      map[string]*overload.Gate
	feedback   *overload.Feedback         // for SIP clients
	quotas     map[string]*overload.Quota // by protocol
	drains     map[string]time.Duration   // since when an instance drains, by name
	blind      time.Duration              // until then, transactions that only the previous process counted may be in flight
	disk       disk                       // of the state file
	unsaved    error                      // why the state file may lack the state; nil: it has it
	frozen     bool                       // during a hand-over

	tokens    atomic.Pointer[access.TokenFile]
	secure    *access.ServerTLS // of control; nil: no TLS
	keys      atomic.Pointer[[]key]
	reloads   reloads
	handovers failures
	counts    struct{ epochs, publications, stateFailures atomic.Uint64 }
	samples   chan meter.Sample               // of dropped messages, for the log
	busy      atomic.Pointer[map[string]bool] // instances that count as full by bounded load

	panicking atomic.Pointer[map[string]bool] // types in panic, as published

	// While this process takes over:
	numbers   []int // type numbers here by those of the previous process; -1: the type is gone
	reordered bool  // a type has another number than in the previous process

	begun time.Time
}

// New reads the configuration and opens the listeners; Run serves. The caller closes the
// Director.
func New(ctx context.Context, o Options) (_ *Director, err error) {
	c, err := Load(o.Path)
	if err != nil {
		return nil, err
	}
	d := &Director{options: o, log: o.Log, now: o.Clock.Now, roster: newRoster(), feedback: overload.NewFeedback(), restarts: make(chan struct{}, 1), samples: make(chan meter.Sample, 64), begun: o.Clock.Wall()}
	d.config.Store(c)
	d.disk.replace = durable.Replace
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	d.meter = meter.New(c.Memory.Transactions, time.Duration(c.Transition))
	d.meter.OnDrop(func(s meter.Sample) {
		select {
		case d.samples <- s:
		default: // a worker never waits for the log
		}
	})
	d.watch = newWatch(d.now, o.Log)
	d.watch.counter = c.GTPC.RestartCounter
	d.roster.away = d.watch.away
	old, err := d.restore(c)
	if err != nil {
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
	d.makeGates(new(Config), c)
	d.quotas = makeQuotas(nil, c, nil)
	if err := d.openProtocols(c, inherited); err != nil {
		return nil, err
	}
	d.meter.SetDialogs(d.state.Dialogs)
	if err := d.openControl(ctx, c); err != nil {
		return nil, err
	}
	if err := d.openLocal(c); err != nil {
		return nil, err
	}
	if err := o.Handover.registerSockets(d); err != nil {
		return nil, err
	}
	return d, d.saveStart(c, old)
}

// restore publishes the first table, made from the state file, and returns the content of that file,
// or nil if there is none. If the configuration file has changed since the state was written, restore
// takes the parts that have changed from the configuration file, as a reload does.
func (d *Director) restore(c *Config) (old *state, err error) {
	if old, err = readState(c.State); err != nil {
		return nil, err
	}
	if old != nil {
		d.roster.terms = old.termsFor(c, d.options.Clock)
	}
	err = d.roster.edit(func(draft *draft) error {
		if old == nil {
			draft.apply(c)
			return nil
		}
		before := old.Parts
		if old.Digest == c.Digest() {
			before = c.parts() // an older director writes no parts
		}
		draft.instances, draft.rules, draft.rooms = d.instancesOf(old, c), old.Rules, old.Current.Rooms
		draft.update(c, before)
		return nil
	})
	if err != nil {
		return nil, err
	}
	fresh, rules, version := d.roster.snapshot()
	d.published = version
	d.roster.applied(version)
	d.state = state{Version: stateVersion, Digest: c.Digest(), Parts: c.parts(), Rules: rules, Terms: d.roster.allTerms(), Current: fresh, Starts: 1}
	if old != nil {
		d.state.Starts, d.state.Dialogs = old.Starts+1, old.Dialogs
	}
	return old, d.firstTable(c, old)
}

// firstTable publishes the first table of this process. If the last change in the state
// file is younger than a transition, the transactions that began before the change still go
// by the previous table.
func (d *Director) firstTable(c *Config, old *state) error {
	s, age := &d.state, time.Duration(0)
	clock := d.options.Clock
	s.Boot, s.Changed, s.Wall = clock.Boot, d.now(), clock.Wall()
	s.Current.Epoch = 1
	if old != nil && sameTypes(c, old.Current.Types) {
		if s.Current.sameAs(&old.Current) {
			age = old.age(clock)
			s.Current.Epoch, s.Previous = old.Current.Epoch, old.Previous
			s.Changed, s.Wall = d.now()-age, old.Wall // old.Changed counts from another boot, if the host has booted since
		} else {
			s.Current.Epoch, s.Previous = old.Current.Epoch+1, &old.Current
		}
	}
	d.drains = s.Current.drains(s.Changed, nil)
	if old != nil {
		// A key may begin a transaction at a draining instance for a transition, and each takes up to
		// another one. The previous process began none after its end.
		transition := time.Duration(c.Transition)
		d.blind = min(d.now(), s.Changed+transition) + transition
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
	return nil
}

// saveStart writes the state of this start. It is the last step that can fail, because a director that does
// not start must not replace the state of one that serves. If the write fails, as on a full disk, the
// director still starts if the next start makes the same state of the file. With GTP-C it does not, because
// GTP-C needs the number of starts in the file.
func (d *Director) saveStart(c *Config, old *state) error {
	err := d.state.write(c.State)
	if err == nil || len(c.Listen.GTPC) > 0 || !d.state.isIn(old) {
		return err
	}
	d.unsaved = err // saveTerms tries again
	d.counts.stateFailures.Add(1)
	d.log.Error("cannot save the state; the file still has the same instances", "epoch", d.state.Current.Epoch, "error", err)
	return nil
}

// Run serves until ctx is done, or until a new process has taken over. A
// Director is run once.
func (d *Director) Run(ctx context.Context) error {
	until := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, ctx := errgroup.WithContext(ctx)
	// First, because ready takes over the times of the epochs: an epoch that is published meanwhile may never
	// be in force. Without the counts, instances with transactions in flight look drained, so requests wait in
	// the control listener until then.
	if err := d.options.Handover.ready(d); err != nil {
		stop(err)
	}
	g.Go(func() error { return d.publishChanges(ctx) })
	g.Go(func() error { return d.watch.run(ctx) })
	g.Go(func() error { return d.tick(ctx) })
	g.Go(func() error { return d.logDrops(ctx) })
	g.Go(func() error { return d.listenToFile(ctx) })
	g.Go(func() error { return d.rereadFiles(ctx) })
	restarts := make(chan struct{}) // closed when no restart runs or can begin
	g.Go(func() error {
		defer close(restarts)
		return d.listenToRestart(ctx)
	})
	g.Go(func() error { return d.serveControl(ctx) })
	d.log.Info("serving", "control", d.control.Addr().String(), "epoch", d.epochs.View().Table.Epoch())
	g.Go(func() error {
		// Hand over the workers' memories as soon as they stop, because the new process
		// lets messages wait until then.
		err := d.runProtocols(ctx)
		stop(err) // for listenToRestart, if the protocols failed
		return errors.Join(err, d.options.Handover.finish(d, restarts))
	})
	err := g.Wait()
	d.saveLast() // unless a new process has the state file
	if !errors.Is(err, errHandedOver) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.Cause(until)) {
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
			err = nil // its server has closed it
		}
	}
	if d.madeSocket && !d.options.Handover.isDone() {
		d.removeSocket() // Run did this, unless it never ran
	}
	if d.local != nil {
		_ = d.local.Close() // usually its server has closed it
	}
	return errors.Join(err, d.closeProtocols())
}

// tick does the periodic work, ten times or once a second.
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
			d.expireLeases()
			d.updateKeyring()
			d.boundLoad()
		}
		if n%50 == 0 {
			d.saveTerms()
		}
		if n%100 == 0 {
			d.logLosses()
		}
		if n%600 == 0 {
			d.warnOfLostSocket()
		}
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // duplicates; sockets that were taken over stay open elsewhere
	}
}
