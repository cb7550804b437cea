// Package udsf is the Unstructured Data Storage Function (3GPP TS 29.598): both of its
// services over one engine, with the agenda and the sender of callbacks that they share.
package udsf

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/store"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
	"vitrine/store/timer"
)

// Config of the function. What is zero has a default, but Engine and Clock.
type Config struct {
	Engine        store.Engine
	Clock         func() time.Time
	Log           *slog.Logger
	Limits        wire.Limits
	Storages      []string        // "realm/storage"; none: every one is there
	Subscriptions int             // of one storage, at most
	APIRoot       string          // "https://store.example:8443"; empty: URIs in answers and notifications are paths
	Allow         []string        // hosts that callbacks may go to, see callback.ParseTargets; none: every host
	Callbacks     callback.Config // Targets is taken from Allow
	Due           due.Config      // Engine, Sender, Clock and Log are the ones here
}

// A Function serves nudsf.Root and timer.Root.
type Function struct {
	Records *nudsf.API
	Timers  *timer.API
	Sender  *callback.Sender
	Agenda  *due.Agenda
}

// Counters of a function since it began.
type Counters struct {
	Records   nudsf.Counters    `json:"records"`
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
	f := &Function{}
	c.Callbacks.Targets, c.Callbacks.Log = targets, c.Log
	f.Sender = callback.New(c.Callbacks)
	c.Due.Engine, c.Due.Sender, c.Due.Clock, c.Due.Log = c.Engine, f.Sender, c.Clock, c.Log
	f.Agenda = due.New(c.Due)
	f.Records = nudsf.New(nudsf.Config{
		Engine: c.Engine, Agenda: f.Agenda, Sender: f.Sender, Clock: c.Clock, Log: c.Log,
		Limits: c.Limits, Storages: storages, APIRoot: c.APIRoot, Subscriptions: c.Subscriptions,
	})
	f.Timers = timer.New(timer.Config{
		Engine: c.Engine, Agenda: f.Agenda, Sender: f.Sender, Clock: c.Clock, Log: c.Log,
		Limits: c.Limits, Storages: storages, APIRoot: c.APIRoot,
	})
	return f, nil
}

// Mount adds both services to a mux.
func (f *Function) Mount(mux *http.ServeMux) {
	mux.Handle(nudsf.Root+"/", f.Records)
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
	return Counters{Records: f.Records.Counters(), Callbacks: f.Sender.Counters(), Due: f.Agenda.Counters()}
}
