// Package nudsf is the Unstructured Data Storage Function (3GPP TS 29.598). It serves both services
// over one engine, with a shared agenda and a shared sender of callbacks. This package serves
// records; package timer serves timers.
package nudsf

import (
	"cmp"
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

// Config of the function. Zero fields have defaults, except Engine and Clock.
type Config struct {
	Engine        store.Engine
	Clock         func() time.Time
	Log           *slog.Logger     // nil: none
	Failed        func(status int) // called for each answer of status 500 or more; nil: none
	Storages      []string         // "realm/storage"; none: every storage exists
	Subscriptions int              // per storage, at most; default 1000
	SearchTime    time.Duration    // the longest duration of a search or a deletion by filter; default 1 min
	SearchBytes   int64            // bytes that all searches and deletions by filter hold at the same time; default 256 MiB
	APIRoot       string           // "https://store.example:8443"; empty: URIs in answers and notifications are paths
	Allow         []string         // allowed hosts of callbacks, see callback.ParseTargets; none: every host that is not denied
	Own           []netip.AddrPort // this product's own listeners, which never get callbacks
	Callbacks     callback.Config  // New sets Targets and Log
	Due           due.Config       // New sets Engine, Sender, Clock and Log
}

// A Function serves Root and timer.Root.
type Function struct {
	Records *API
	Timers  *timer.API
	Sender  *callback.Sender
	Agenda  *due.Agenda
}

// Counters are the counts since the function started.
type Counters struct {
	Records struct {
		Notified uint64 `json:"notified"` // notifications of changes that were queued
		Dropped  uint64 `json:"dropped"`  // notifications of changes that were dropped because the receiver's queue was full
	} `json:"records"`
	Callbacks callback.Counters `json:"callbacks"`
	Due       due.Counters      `json:"due"`
}

// New returns a function. It fails if Storages or Allow is invalid.
func New(c Config) (*Function, error) {
	targets, err := callback.ParseTargets(c.Allow)
	if err != nil {
		return nil, err
	}
	storages, err := rest.ParseStorages(c.Storages)
	if err != nil {
		return nil, err
	}
	c.Subscriptions = cmp.Or(c.Subscriptions, 1000)
	c.SearchTime = cmp.Or(c.SearchTime, time.Minute)
	c.SearchBytes = cmp.Or(c.SearchBytes, 256<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Failed == nil {
		c.Failed = func(int) {}
	}
	f := &Function{}
	c.Callbacks.Targets, c.Callbacks.Log = targets.Without(c.Own...), c.Log
	f.Sender = callback.New(c.Callbacks)
	c.Due.Engine, c.Due.Sender, c.Due.Clock, c.Due.Log = c.Engine, f.Sender, c.Clock, c.Log
	f.Agenda = due.New(c.Due)
	shared := rest.Config{
		Engine: c.Engine, Agenda: f.Agenda, Sender: f.Sender, Clock: c.Clock, Log: c.Log, Failed: c.Failed,
		Limits: wire.DefaultLimits(), Storages: storages, APIRoot: c.APIRoot,
		SearchTime: c.SearchTime, Room: rest.NewRoom(c.SearchBytes),
	}
	f.Records, f.Timers = newAPI(shared, c.Subscriptions), timer.New(shared)
	return f, nil
}

// Mount adds both services to a mux.
func (f *Function) Mount(mux *http.ServeMux) {
	mux.Handle(Root+"/", f.Records)
	mux.Handle(timer.Root+"/", f.Timers)
}

// Run expires timers, records and subscriptions and sends notifications until ctx ends. Close the
// engine only after Run returns.
func (f *Function) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.Sender.Run(ctx) })
	group.Go(func() error { return f.Agenda.Run(ctx) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("UDSF: %w", err)
	}
	return nil
}

// Counters returns the current counters.
func (f *Function) Counters() Counters {
	c := Counters{Callbacks: f.Sender.Counters(), Due: f.Agenda.Counters()}
	c.Records.Notified, c.Records.Dropped = f.Records.notified.Load(), f.Records.dropped.Load()
	return c
}
