// Package nudsf is the Unstructured Data Storage Function (3GPP TS 29.598): both of its
// services over one engine, with the agenda and the sender of callbacks that they share.
// The service of records is here, the one of timers is package timer.
package nudsf

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/timer"
	"vitrine/store/nudsf/wire"
)

// Config of the function. What is zero has a default, but Engine and Clock.
type Config struct {
	Engine        store.Engine
	Clock         func() time.Time
	Log           *slog.Logger     // nil: none
	Limits        wire.Limits      // zero: wire.DefaultLimits
	Storages      []string         // "realm/storage"; none: every one is there
	Subscriptions int              // of one storage, at most; 1000
	APIRoot       string           // "https://store.example:8443"; empty: URIs in answers and notifications are paths
	Allow         []string         // hosts that callbacks may go to, see callback.ParseTargets; none: every host that is not denied
	Own           []netip.AddrPort // listeners of this product, where callbacks never go
	Callbacks     callback.Config  // Targets is taken from Allow
	Due           due.Config       // Engine, Sender, Clock and Log are the ones here
}

// A Function serves Root and timer.Root.
type Function struct {
	Records *API
	Timers  *timer.API
	Sender  *callback.Sender
	Agenda  *due.Agenda
}

// Counters of a function since it began.
type Counters struct {
	Records struct {
		Notified uint64 `json:"notified"` // notifications of changes that were queued
		Dropped  uint64 `json:"dropped"`  // notifications of changes that found their receiver's queue full
	} `json:"records"`
	Callbacks callback.Counters `json:"callbacks"`
	Due       due.Counters      `json:"due"`
}

// New makes the function. The error is about Storages or Allow.
func New(c Config) (*Function, error) {
	targets, err := callback.ParseTargets(c.Allow)
	if err != nil {
		return nil, err
	}
	storages, err := rest.ParseStorages(c.Storages)
	if err != nil {
		return nil, err
	}
	if c.Limits == (wire.Limits{}) {
		c.Limits = wire.DefaultLimits()
	}
	if c.Subscriptions == 0 {
		c.Subscriptions = 1000
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	f := &Function{}
	c.Callbacks.Targets, c.Callbacks.Log = targets.Without(c.Own...), c.Log
	f.Sender = callback.New(c.Callbacks)
	c.Due.Engine, c.Due.Sender, c.Due.Clock, c.Due.Log = c.Engine, f.Sender, c.Clock, c.Log
	f.Agenda = due.New(c.Due)
	shared := rest.Config{
		Engine: c.Engine, Agenda: f.Agenda, Sender: f.Sender, Clock: c.Clock, Log: c.Log,
		Limits: c.Limits, Storages: storages, APIRoot: c.APIRoot,
	}
	f.Records, f.Timers = newAPI(shared, c.Subscriptions), timer.New(shared)
	return f, nil
}

// Mount adds both services to a mux.
func (f *Function) Mount(mux *http.ServeMux) {
	mux.Handle(Root+"/", f.Records)
	mux.Handle(timer.Root+"/", f.Timers)
}

// Run lets timers, records and subscriptions expire and sends notifications, until ctx ends.
// The engine must not be closed before it has returned.
func (f *Function) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.Sender.Run(ctx) })
	group.Go(func() error { return f.Agenda.Run(ctx) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("UDSF: %w", err)
	}
	return nil
}

// Counters gives the counters as they are now.
func (f *Function) Counters() Counters {
	c := Counters{Callbacks: f.Sender.Counters(), Due: f.Agenda.Counters()}
	c.Records.Notified, c.Records.Dropped = f.Records.notified.Load(), f.Records.dropped.Load()
	return c
}
