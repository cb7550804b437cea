// Package due does what falls due in the store: records, subscriptions and timers
// whose time is over, and notifications that wait to be sent. All of it is in the
// engine, so that it outlives the process, and another service over the same engine
// takes it over.
//
// What is due is found by a tag, so planning something costs no write of its own.
// Each step is one conditional write: of several services over one engine exactly
// one takes it. A notification is kept until the receiver has taken or refused it, or it is
// given up: it is sent at least once, and sent again when the process ends between the
// answer and its being noted.
package due

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
)

// tagDue is the tag that holds when a record falls due. Tags of consumers have no
// control characters.
const tagDue = "\x01due"

// registry is the space that names the spaces with something due.
const registry = "nudsf"

// ErrSpaces says that something falls due in as many storages as are allowed.
var ErrSpaces = errors.New("due: too many storages have timers, times to live or subscriptions: delete some, or raise the limit")

// At makes the tag of a record that falls due at a time.
func At(t time.Time) store.Tag {
	return store.Tag{Name: tagDue, Value: stamp(t)}
}

// stamp writes a time so that stamps compare as times do.
func stamp(t time.Time) string { return fmt.Sprintf("%016x", max(0, store.Milliseconds(t))) }

// Is says whether a tag is At's.
func Is(t store.Tag) bool { return t.Name == tagDue }

// Reached says whether a record has fallen due.
func Reached(r *store.Record, now time.Time) bool {
	for _, t := range r.Tags {
		if Is(t) {
			return t.Value <= stamp(now.Truncate(time.Millisecond))
		}
	}
	return false
}

// A Handler does what is due of one record. It must check that the record still is,
// and change it by a conditional write; a *store.Conflict means that another did it.
type Handler func(ctx context.Context, space string, r *store.Record) error

// Config of an Agenda. Zero values give the defaults.
type Config struct {
	Engine  store.Engine
	Sender  *callback.Sender
	Clock   func() time.Time
	Log     *slog.Logger
	Workers int           // handlers at once; 32
	Spaces  int           // storages with something due, at most; 10,000
	Poll    time.Duration // of an engine that other services write to; 1 s
	Lease   time.Duration // a notification is another service's so long after it was taken for sending; 30 s
	Backoff time.Duration // of a notification's second try; doubles; 1 s
	Longest time.Duration // backoff at most; 5 min
	GiveUp  time.Duration // age at which a notification is dropped; 1 h
}

// Counters of an Agenda since it began.
type Counters struct {
	Handled   uint64 `json:"handled"`   // records that fell due
	Errors    uint64 `json:"errors"`    // handlers that failed; tried again
	Delivered uint64 `json:"delivered"` // notifications taken by their receiver
	Postponed uint64 `json:"postponed"` // tries put off, the receiver not answering
	Refused   uint64 `json:"refused"`   // notifications refused for good, or not allowed
	GivenUp   uint64 `json:"given_up"`  // notifications dropped at GiveUp
}

// An Agenda finds and does what is due, while Run runs.
type Agenda struct {
	Config
	handlers map[string]Handler // by service and kind: "nudsf-dr\x00r/"
	began    time.Time          // of Run, or since the clock was set back

	handled, failed, delivered, postponed, refused, givenUp atomic.Uint64

	mu     sync.Mutex
	spaces map[string]time.Time // when next something is due; zero: look now
	wake   chan struct{}
}

// kindOutbox begins the names of notifications that wait to be sent.
const kindOutbox = "o/"

// New makes an agenda.
func New(config Config) *Agenda {
	config.Workers = cmp.Or(config.Workers, 32)
	config.Spaces = cmp.Or(config.Spaces, 10_000)
	config.Poll = cmp.Or(config.Poll, time.Second)
	config.Lease = cmp.Or(config.Lease, 30*time.Second)
	config.Backoff = cmp.Or(config.Backoff, time.Second)
	config.Longest = cmp.Or(config.Longest, 5*time.Minute)
	config.GiveUp = cmp.Or(config.GiveUp, time.Hour)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Agenda{Config: config, handlers: map[string]Handler{}, spaces: map[string]time.Time{}, wake: make(chan struct{}, 1)}
}

// Handle names the handler of the records of a service whose names begin with kind ("t/").
// To be called before Run.
func (a *Agenda) Handle(service, kind string, h Handler) { a.handlers[service+"\x00"+kind] = h }

// Counters gives the counters as they are now.
func (a *Agenda) Counters() Counters {
	return Counters{
		Handled: a.handled.Load(), Errors: a.failed.Load(), Delivered: a.delivered.Load(),
		Postponed: a.postponed.Load(), Refused: a.refused.Load(), GivenUp: a.givenUp.Load(),
	}
}

// Register notes durably that something falls due in a space ("service/realm/storage").
// To be called before the first such record is written.
func (a *Agenda) Register(ctx context.Context, space string) error {
	a.mu.Lock()
	_, known := a.spaces[space]
	full := len(a.spaces) >= a.Spaces
	a.mu.Unlock()
	if known {
		return nil
	}
	if full {
		return ErrSpaces
	}
	err := a.Engine.Write(ctx, registry, store.Op{Action: store.Put, Name: space, If: store.Condition{Absent: true}})
	var conflict *store.Conflict
	if err != nil && !errors.As(err, &conflict) {
		return fmt.Errorf("register storage %s: %w", space, err)
	}
	a.learn(space)
	a.rouse()
	return nil
}

func (a *Agenda) learn(space string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.spaces[space]; !known {
		a.spaces[space] = time.Time{}
	}
}

// Planned tells that a record was written that falls due at a time.
func (a *Agenda) Planned(space string, at time.Time) {
	a.mu.Lock()
	next, known := a.spaces[space]
	if known && !next.After(at) {
		a.mu.Unlock()
		return
	}
	a.spaces[space] = at
	a.mu.Unlock()
	a.rouse()
}

func (a *Agenda) rouse() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run does what is due until ctx ends.
func (a *Agenda) Run(ctx context.Context) error {
	shared := a.Engine.Promises().Shared
	a.began = a.Clock()
	if err := a.load(ctx); err != nil {
		return err
	}
	first := !shared // no other service can be sending what this one's predecessor began
	looked, loaded := a.Clock(), a.Clock()
	back := rewind{wall: a.began.Round(0)}
	for ctx.Err() == nil {
		if back.look(a) {
			a.lookAgain()
			first = true
		}
		wait := a.round(ctx, first)
		first = false
		if shared {
			poll := a.poll()
			wait = min(wait, poll)
			if now := a.Clock(); now.Sub(looked).Abs() >= poll {
				a.lookAgain()
				looked = now
			}
			if now := a.Clock(); now.Sub(loaded).Abs() >= 30*a.Poll {
				if err := a.load(ctx); err != nil && ctx.Err() == nil {
					a.Log.Error("look for storages of other services", "error", err)
				}
				loaded = now
			}
		}
		timer := time.NewTimer(min(wait, clockCheck))
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// A rewind is how the agenda knows that the clock was set back.
type rewind struct {
	wall    time.Time // by the clock, a round ago
	suspect time.Time // until then something may be written by the clock as it was
	again   time.Time // when to look for that
}

// look says whether to look now for what was written by the clock as it was.
func (r *rewind) look(a *Agenda) bool {
	wall, now := a.Clock().Round(0), time.Now()
	if wall.Before(r.wall.Add(-time.Second)) {
		a.Log.Warn("the clock was set back: what waits to be sent does not wait for it", "by", r.wall.Sub(wall))
		a.began, r.suspect, r.again = wall, now.Add(a.Lease), now
	}
	r.wall = wall
	if !now.Before(r.suspect) || now.Before(r.again) {
		return false
	}
	r.again = now.Add(time.Second) // a look wakes the agenda, which would go round and round
	return true
}

// clockCheck is how long the agenda sleeps at most: the clock may have been set meanwhile.
const clockCheck = 5 * time.Second

// load learns the spaces that are registered.
func (a *Agenda) load(ctx context.Context) error {
	for r, err := range a.Engine.Scan(ctx, store.Query{Space: registry}) {
		if err != nil {
			return fmt.Errorf("read the storages with something due: %w", err)
		}
		a.learn(r.Key.Name)
	}
	return nil
}

// poll gives how often to look at what other services write.
func (a *Agenda) poll() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.Poll, time.Duration(len(a.spaces))*time.Millisecond)
}

// lookAgain lets the next round look at every space.
func (a *Agenda) lookAgain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for space := range a.spaces {
		a.spaces[space] = time.Time{}
	}
}

// round does what is due in every space, and gives how long there is nothing to do.
func (a *Agenda) round(ctx context.Context, first bool) time.Duration {
	const idle = time.Hour
	now := a.Clock()
	var ready []string
	a.mu.Lock()
	for space, next := range a.spaces {
		if !next.After(now) {
			ready = append(ready, space)
			a.spaces[space] = now.Add(idle) // what is planned from here on comes before it
		}
	}
	a.mu.Unlock()
	for _, space := range ready {
		if ctx.Err() != nil {
			break
		}
		a.visit(ctx, space, first)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := idle
	for _, next := range a.spaces {
		wait = min(wait, next.Sub(a.Clock()))
	}
	return max(wait, time.Millisecond)
}

// visit does what is due in a space and plans the next visit.
func (a *Agenda) visit(ctx context.Context, space string, first bool) {
	began := a.Clock()
	var err error
	if first {
		err = a.do(ctx, store.Query{Space: space, Prefix: kindOutbox})
	}
	if err == nil {
		err = a.do(ctx, store.Query{Space: space, Match: &store.Match{Tag: tagDue, Op: store.LessOrEqual, Value: stamp(began.Truncate(time.Millisecond))}})
	}
	if err == nil {
		err = a.next(ctx, space, began)
	}
	if err != nil && ctx.Err() == nil {
		a.failed.Add(1)
		a.Log.Error("do what is due; trying again", "storage", space, "error", err)
		a.Planned(space, a.Clock().Add(max(time.Second, a.Clock().Sub(began))))
	}
}

// next plans the visit at which the first record that is not due yet is.
func (a *Agenda) next(ctx context.Context, space string, began time.Time) error {
	q := store.Query{Space: space, Limit: 1, Match: &store.Match{Tag: tagDue, Op: store.Greater, Value: stamp(began.Truncate(time.Millisecond))}}
	for r, err := range a.Engine.Scan(ctx, q) {
		if err != nil {
			return err
		}
		for _, t := range r.Tags {
			var ms int64
			if _, err := fmt.Sscanf(t.Value, "%x", &ms); Is(t) && err == nil {
				a.Planned(space, time.UnixMilli(ms))
			}
		}
	}
	return nil
}

// do hands the records that q chooses to their handlers, several at once.
func (a *Agenda) do(ctx context.Context, q store.Query) error {
	var group errgroup.Group
	group.SetLimit(a.Workers)
	var again atomic.Bool
	service, _, _ := strings.Cut(q.Space, "/")
	everything := q.Match == nil
	for r, err := range a.Engine.Scan(ctx, q) {
		if err != nil {
			_ = group.Wait()
			return err
		}
		name := r.Key.Name
		kind, _, _ := strings.Cut(name, "/")
		handler := a.handlers[service+"\x00"+kind+"/"]
		if kind+"/" == kindOutbox {
			handler = func(ctx context.Context, space string, r *store.Record) error {
				return a.claim(ctx, space, r, everything)
			}
		}
		if handler == nil {
			continue
		}
		group.Go(func() error {
			if !a.handle(ctx, store.Key{Space: q.Space, Name: name}, handler) {
				again.Store(true)
			}
			return nil
		})
	}
	_ = group.Wait()
	if again.Load() {
		a.Planned(q.Space, a.Clock().Add(time.Second))
	}
	return ctx.Err()
}

// handle reads a record as it is now and hands it to its handler; false when that is
// to be tried again.
func (a *Agenda) handle(ctx context.Context, key store.Key, h Handler) bool {
	var r store.Record
	err := a.Engine.Get(ctx, key, &r)
	if err == nil {
		err = h(ctx, key.Space, &r)
	}
	var conflict *store.Conflict
	switch {
	case err == nil:
		a.handled.Add(1)
	case errors.Is(err, store.ErrNotFound), errors.As(err, &conflict): // done by another
	case ctx.Err() != nil:
	default:
		a.failed.Add(1)
		a.Log.Error("do what is due; trying again", "storage", key.Space, "record", key.Name, "error", err)
		return false
	}
	return true
}
