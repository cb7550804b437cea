// Package due handles the work that falls due in the store: records, subscriptions and
// timers that expire, and notifications to send. The engine keeps all of it. So it survives
// the process, and another service over the same engine can take it over.
//
// A tag holds the time at which a record falls due, so planning costs no extra write. Each step is one
// conditional write, so exactly one of several services over an engine performs it. A
// notification is kept until its receiver accepts or refuses it, or until it is too old. It
// is sent at least once: if the process ends after the answer but before it records the
// answer, the notification is sent again.
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

// tagDue is the tag with the time at which a record falls due. Consumers' tags hold no control
// characters, so they cannot collide with tagDue.
const tagDue = "\x01due"

// visits bounds the concurrent visits of spaces. A visit mostly waits for the engine. checks bounds the
// spaces without known due work that one round checks, so that due work waits for few checks.
const visits, checks = 16, 64

// At returns the tag of a record that falls due at a time.
func At(t time.Time) store.Tag {
	return store.Tag{Name: tagDue, Value: stamp(t)}
}

// stamp formats a time so that stamps sort like times.
func stamp(t time.Time) string { return fmt.Sprintf("%016x", max(0, store.Milliseconds(t))) }

// parse returns the time of a stamp, or the zero time if the text is not a stamp.
func parse(text string) time.Time {
	var ms int64
	if _, err := fmt.Sscanf(text, "%x", &ms); err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Is reports whether At made the tag.
func Is(t store.Tag) bool { return t.Name == tagDue }

// Reached reports whether a record has fallen due.
func Reached(r *store.Record, now time.Time) bool {
	for _, t := range r.Tags {
		if Is(t) {
			return t.Value <= stamp(now.Truncate(time.Millisecond))
		}
	}
	return false
}

// A Handler handles one due record. It must check that the record is still due, and change it by a
// conditional write. A *store.Conflict means that another service handled it.
type Handler func(ctx context.Context, space string, r *store.Record) error

// Config of an Agenda. Zero values mean the defaults.
type Config struct {
	Engine  store.Engine
	Sender  *callback.Sender
	Clock   func() time.Time
	Log     *slog.Logger
	Spaces  int           // storages with due records, at most; 10,000
	Poll    time.Duration // interval of checks for the writes of other services; 1 s
	Lease   time.Duration // how long a notification belongs to the service that claimed it; then others may send it; 30 s
	Backoff time.Duration // wait before a notification's second try; doubles; 1 s
	Longest time.Duration // longest backoff; 5 min
}

// Counters are the counts since the Agenda was created.
type Counters struct {
	Handled   uint64 `json:"handled"`   // due records that were handled
	Errors    uint64 `json:"errors"`    // failed handlers, which are tried again
	Delivered uint64 `json:"delivered"` // notifications that their receiver accepted
	Postponed uint64 `json:"postponed"` // tries put off because the receiver does not answer
	Refused   uint64 `json:"refused"`   // notifications refused with a final status, or not allowed
	GivenUp   uint64 `json:"given_up"`  // notifications dropped at age giveUp
}

// An Agenda finds and handles due records while Run runs.
type Agenda struct {
	Config
	handlers map[string]Handler // by service and kind: "nudsf-dr\x00r/"

	handled, failed, delivered, postponed, refused, givenUp atomic.Uint64

	mu      sync.Mutex
	began   time.Time // when Run began, or when the clock was last set back
	spaces  map[string]plan
	wake    chan struct{}
	workers chan struct{} // holds one element per handler that runs
}

// A plan is what the agenda knows about a registered space.
type plan struct {
	next   time.Time // when it has due work next, as far as known; zero: check now
	named  time.Time // when a service registered it last, as far as known
	look   bool      // check soon, because other services may have planned work
	outbox bool      // the next visit also handles letters that are not due
	busy   bool      // a visit runs, and its end wakes the agenda
}

// kindOutbox is the prefix of the names of notifications to send.
const kindOutbox = "o/"

// giveUp is the age at which a notification is dropped.
const giveUp = time.Hour

// maxHandlers bounds the handlers that run at the same time.
const maxHandlers = 32

// New returns an agenda.
func New(config Config) *Agenda {
	config.Spaces = cmp.Or(config.Spaces, 10_000)
	config.Poll = cmp.Or(config.Poll, time.Second)
	config.Lease = cmp.Or(config.Lease, 30*time.Second)
	config.Backoff = cmp.Or(config.Backoff, time.Second)
	config.Longest = cmp.Or(config.Longest, 5*time.Minute)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Agenda{
		Config: config, handlers: map[string]Handler{}, spaces: map[string]plan{},
		wake: make(chan struct{}, 1), workers: make(chan struct{}, maxHandlers),
	}
}

// Handle sets the handler for a service's records with names that begin with kind ("t/"). Call it
// before Run.
func (a *Agenda) Handle(service, kind string, h Handler) { a.handlers[service+"\x00"+kind] = h }

// Counters returns the current counters.
func (a *Agenda) Counters() Counters {
	return Counters{
		Handled: a.handled.Load(), Errors: a.failed.Load(), Delivered: a.delivered.Load(),
		Postponed: a.postponed.Load(), Refused: a.refused.Load(), GivenUp: a.givenUp.Load(),
	}
}

// Planned tells the agenda that a record in space falls due at a time.
func (a *Agenda) Planned(space string, at time.Time) {
	a.mu.Lock()
	p, known := a.spaces[space]
	if known && !p.next.After(at) {
		a.mu.Unlock()
		return
	}
	p.next = at
	a.spaces[space] = p
	a.mu.Unlock()
	if !p.busy { // else the end of the visit wakes the agenda
		a.wakeUp()
	}
}

func (a *Agenda) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run handles due records until ctx ends.
func (a *Agenda) Run(ctx context.Context) error {
	shared := a.Engine.Promises().Shared
	looked, loaded := a.Clock(), a.Clock()
	back := rewind{wall: looked.Round(0)}
	a.setBegan(looked)
	if err := a.load(ctx); err != nil {
		return err
	}
	if !shared { // only the previous process can have started to send the outbox, so send it again at once
		a.lookAgain(true)
	}
	var group errgroup.Group
	group.SetLimit(visits)
	defer func() { _ = group.Wait() }() // visits return no errors
	for ctx.Err() == nil {
		if back.mustLook(a) {
			a.lookAgain(true)
		}
		// This comes before the round. After it, the round at the end of a visit would check every space again.
		if now := a.Clock(); shared && now.Sub(looked).Abs() >= a.poll() {
			a.lookAgain(false)
			looked = now
		}
		wait := a.round(ctx, &group)
		if shared {
			now := a.Clock()
			wait = min(wait, a.poll()-now.Sub(looked).Abs())
			if now.Sub(loaded).Abs() >= 30*a.Poll {
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

// A rewind detects that the clock was set back.
type rewind struct {
	wall    time.Time // the clock's time in the last round
	suspect time.Time // until then, letters stamped by the old clock may still be written, in host time
	again   time.Time // when to look for such letters next
}

// mustLook reports whether to check now for letters stamped before the clock was set back.
func (r *rewind) mustLook(a *Agenda) bool {
	wall, now := a.Clock().Round(0), time.Now()
	if wall.Before(r.wall.Add(-time.Second)) {
		a.Log.Warn("the clock was set back: waiting notifications are sent now", "by", r.wall.Sub(wall))
		a.setBegan(wall)
		r.suspect, r.again = now.Add(a.Lease), now
	}
	r.wall = wall
	if !now.Before(r.suspect) || now.Before(r.again) {
		return false
	}
	r.again = now.Add(time.Second) // a check wakes the agenda, which would otherwise check again at once
	return true
}

// setBegan notes that letters from before a time were written by another process or by a wrong clock.
func (a *Agenda) setBegan(began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = began
}

// clockCheck bounds the agenda's sleep, because the clock may be changed meanwhile.
const clockCheck = 5 * time.Second

// poll returns the interval between checks for the writes of other services: Poll, but at
// least 1 ms per space.
func (a *Agenda) poll() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.Poll, time.Duration(len(a.spaces))*time.Millisecond)
}

// lookAgain makes the agenda check every space soon, also those that are visited now. With outbox, it
// also handles letters that are not due.
func (a *Agenda) lookAgain(outbox bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for space, p := range a.spaces {
		p.look = true
		p.outbox = p.outbox || outbox
		a.spaces[space] = p
	}
}

// round begins the visits of all spaces with due work, and of some spaces to check, except of those
// that are visited now. It returns the time until something is due in a space that is not visited. It
// does not wait for the visits: the visit of a space with very much work must not delay others.
func (a *Agenda) round(ctx context.Context, group *errgroup.Group) time.Duration {
	type visit struct {
		space  string
		outbox bool
	}
	const idle = time.Hour
	now := a.Clock().Round(0) // a monotonic reading would hide that the clock was set forward
	var ready, looks []visit
	a.mu.Lock()
	for space, p := range a.spaces {
		switch {
		case p.busy:
			continue
		case !p.next.After(now):
			ready = append(ready, visit{space, p.outbox})
		case p.look && len(looks) < checks:
			looks = append(looks, visit{space, p.outbox})
		default:
			continue
		}
		a.spaces[space] = plan{next: now.Add(idle), named: p.named, busy: true} // Planned lowers next for records planned from here on
	}
	a.mu.Unlock()
	for _, v := range append(ready, looks...) { // known work first
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			a.visit(ctx, v.space, v.outbox)
			return nil
		})
	}
	now = a.Clock().Round(0)
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := idle
	for _, p := range a.spaces {
		switch {
		case p.busy:
		case p.look:
			wait = 0
		default:
			wait = min(wait, p.next.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// visit handles what is due in a space and plans the next visit.
func (a *Agenda) visit(ctx context.Context, space string, outbox bool) {
	began := a.Clock()
	var err error
	if outbox {
		err = a.do(ctx, store.Query{Space: space, Prefix: kindOutbox})
	}
	if err == nil {
		err = a.do(ctx, store.Query{Space: space, Match: &store.Match{Tag: tagDue, Op: store.LessOrEqual, Value: stamp(began.Truncate(time.Millisecond))}})
	}
	later := false
	if err == nil {
		later, err = a.next(ctx, space, began)
	}
	if err == nil && !later { // a space with later work stays registered
		var gone bool
		if gone, err = a.forget(ctx, space); gone {
			return // if a service has registered it again, another visit may run already
		}
	}
	if err != nil && ctx.Err() == nil {
		a.failed.Add(1)
		a.Log.Error("cannot handle a due record; trying again", "storage", space, "error", err)
		a.Planned(space, a.Clock().Add(max(time.Second, a.Clock().Sub(began))))
	}
	a.visited(space, outbox && err != nil)
}

// visited notes that the visit of a space has ended. With outbox, the next visit handles its letters again.
func (a *Agenda) visited(space string, outbox bool) {
	a.mu.Lock()
	p := a.spaces[space]
	p.busy = false
	p.outbox = p.outbox || outbox
	a.spaces[space] = p
	a.mu.Unlock()
	a.wakeUp()
}

// next plans the next visit for when the first later record falls due, and reports whether there is one.
func (a *Agenda) next(ctx context.Context, space string, began time.Time) (later bool, err error) {
	q := store.Query{Space: space, Limit: 1, Match: &store.Match{Tag: tagDue, Op: store.Greater, Value: stamp(began.Truncate(time.Millisecond))}}
	for r, err := range a.Engine.Scan(ctx, q) {
		if err != nil {
			return false, err
		}
		later = true
		for _, t := range r.Tags {
			if at := parse(t.Value); Is(t) && !at.IsZero() {
				a.Planned(space, at)
			}
		}
	}
	return later, nil
}

// do passes the records that q selects to their handlers, several at a time.
func (a *Agenda) do(ctx context.Context, q store.Query) error {
	var group sync.WaitGroup
	var again atomic.Bool
	service, _, _ := strings.Cut(q.Space, "/")
	everything := q.Match == nil
	for r, err := range a.Engine.Scan(ctx, q) {
		if err != nil {
			if _, ok := errors.AsType[*store.Late](err); ok { // the scan had no time for all due records, so scan again
				a.Planned(q.Space, time.Time{})
				break
			}
			group.Wait()
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
		a.workers <- struct{}{}
		group.Go(func() {
			defer func() { <-a.workers }()
			if !a.handle(ctx, store.Key{Space: q.Space, Name: name}, handler) {
				again.Store(true)
			}
		})
	}
	group.Wait()
	if again.Load() {
		a.Planned(q.Space, a.Clock().Add(time.Second))
	}
	return ctx.Err()
}

// handle reads the current record and passes it to its handler. It returns false if the
// caller must try again.
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
	case errors.Is(err, store.ErrNotFound), errors.As(err, &conflict): // another service handled it
	case ctx.Err() != nil:
	default:
		a.failed.Add(1)
		a.Log.Error("cannot handle a due record; trying again", "storage", key.Space, "record", key.Name, "error", err)
		return false
	}
	return true
}
