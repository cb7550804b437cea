// Package keep keeps the state of reference functions in a store (docs/store.md), so
// that any instance serves the next transaction. Writes are versioned. A record may
// have a timer, which one of the instances handles.
package keep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/reference/ims"
	"vitrine/store/client"
)

// A Record is a value that all instances of a function share.
type Record struct {
	Value   []byte
	Tag     string    // version that was read; empty: there is no record
	Expires time.Time // when the record expires; Get then no longer returns it
}

// A Move changes the timer of a record. A zero time means no timer.
type Move struct{ From, To time.Time }

// The errors of writes and reads.
var (
	ErrChanged = errors.New("the record has changed since it was read")
	ErrAway    = errors.New("the store does not answer")
)

const (
	probeEvery = 100 * time.Millisecond // while the store does not answer
	pollEvery  = 250 * time.Millisecond // for due timers
	duePage    = 32                     // timers read per page
	dueWorkers = 8                      // concurrent calls for due timers
	checkEvery = time.Second            // for the clocks
	// keepOverdue is how long a record with a timer is kept after it expires, so that
	// an outage of all instances loses no timer.
	keepOverdue = time.Hour
	// tolerance is the difference from the store's clock up to which this host's clock counts. The
	// difference is known to about a second.
	tolerance = 5 * time.Second
)

// A Store keeps records in a store. Its methods may be called concurrently. Each call
// ends within the timeout.
//
// A timer is a key due/TIME/KEY. One atomic batch writes the timer and its record, and
// every instance polls for keys that are due. So a record and its timer always match,
// even if an instance fails between two calls. The store's own timers cannot do that: a
// batch cannot change a record together with a timer of Nudsf_Timer, and a watched
// expiry is lost if no instance watches.
type Store struct {
	client  *client.Client
	kv      *client.KV
	timeout time.Duration
	slots   chan struct{} // limits the concurrent calls
	log     *slog.Logger

	answered atomic.Uint64 // number of calls that the store answered
	away     atomic.Bool   // the store does not answer

	failed, conflicts, timers prometheus.Counter
	seconds                   *prometheus.HistogramVec
}

// New returns a store whose counters' names begin with prefix. The caller runs Run. The
// error is a *vitrine.BadInput if a file or the URL is wrong.
func New(k Config, prefix string, log *slog.Logger, registry *prometheus.Registry) (*Store, error) {
	config, err := k.Access.Config()
	if err != nil {
		return nil, err
	}
	config.Conns, config.Wrap = k.Calls, k.Messages.Mark
	c, err := client.New(config)
	if err != nil {
		return nil, &vitrine.BadInput{File: "--store", Found: err.Error(), Want: "the URL of a store"}
	}
	counter := ims.Counters(registry, prefix+"_store")
	s := &Store{
		client: c, kv: c.KV(k.Space), timeout: k.Timeout, slots: make(chan struct{}, k.Calls), log: log,
		failed:    counter("failed", "Calls to the store that failed."),
		conflicts: counter("conflicts", "Writes refused by the store because the record had changed."),
		timers:    counter("timers", "Due timers read from the store; every instance reads them."),
		seconds: promauto.With(registry).NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_store_seconds", Help: "How long calls to the store took.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1},
		}, []string{"call"}),
	}
	gauge := ims.Gauges(registry, prefix+"_store")
	gauge("up", "1 while the store answers.", func() float64 {
		if s.Connected() {
			return 1
		}
		return 0
	})
	gauge("calls", "Calls to the store at present.", func() float64 { return float64(len(s.slots)) })
	gauge("clock_ahead_seconds", "How far this host's clock is ahead of the store's, to about a second; negative if it is behind.",
		func() float64 { return c.ClockAhead().Seconds() })
	return s, nil
}

// Now returns the time by which to judge whether something in the store has expired: that of this
// host, or that of the store if it is earlier by more than the tolerance. So if one of the two clocks
// is ahead, this instance ends nothing early. What it writes has times by this host's clock, because
// the store's may be set forward later.
func (s *Store) Now() time.Time {
	now := time.Now()
	if ahead := s.client.ClockAhead(); ahead > tolerance {
		return now.Add(-ahead)
	}
	return now
}

// Ready reports whether the store answered the last calls, or none was made. If not, the other
// methods fail at once with ErrAway.
func (s *Store) Ready() bool { return !s.away.Load() }

// Connected reports whether the store has answered a call, and still does.
func (s *Store) Connected() bool { return s.answered.Load() > 0 && s.Ready() }

// Get returns a record. If there is none, its value is nil.
func (s *Store) Get(ctx context.Context, key string) (Record, error) {
	var r Record
	err := s.call(ctx, "get", func(ctx context.Context) error {
		v, err := s.kv.Get(ctx, key, client.Conditions{})
		if err == nil {
			r = Record{Value: v.Data, Tag: v.ETag}
		}
		return err
	})
	if client.NotFound(err) {
		return Record{}, nil
	}
	return r, err
}

const contentType = "application/json"

// Put writes a record and moves its timer. If the record no longer has the tag of r,
// Put writes nothing and returns ErrChanged. After any other error, the write may have
// been made, or may be made later.
func (s *Store) Put(ctx context.Context, key string, r Record, timer Move) error {
	_, err := s.Write(ctx, key, r, timer)
	return err
}

// Write is like Put, but makes the further changes in the same atomic batch. These
// expire together with the record. Write returns the record's new tag.
func (s *Store) Write(ctx context.Context, key string, r Record, timer Move, further ...client.Change) (tag string, err error) {
	life := r.Expires.Sub(s.Now())
	if !timer.To.IsZero() {
		life += keepOverdue
	}
	life = max(life, time.Millisecond)
	change := client.Change{Op: "put", Key: key, Value: r.Value, ContentType: contentType, IfMatch: r.Tag}
	if r.Tag == "" {
		change.IfNoneMatch = "*"
	}
	changes := withTimer(append([]client.Change{change}, further...), key, timer)
	if len(changes) > 1 {
		return s.batch(ctx, changes, life)
	}
	err = s.call(ctx, "put", func(ctx context.Context) (err error) {
		tag, err = s.kv.Put(ctx, key, r.Value, contentType, life, client.Conditions{IfMatch: change.IfMatch, IfNoneMatch: change.IfNoneMatch})
		return err
	})
	return tag, err
}

// Delete removes a record and its timer. The tag must match, as in Put.
func (s *Store) Delete(ctx context.Context, key, tag string, timer Move) error {
	return s.Remove(ctx, key, tag, timer)
}

// Remove is like Delete, but makes the further changes in the same atomic batch.
func (s *Store) Remove(ctx context.Context, key, tag string, timer Move, further ...client.Change) error {
	if tag == "" {
		return nil // there is no record
	}
	changes := append([]client.Change{{Op: "delete", Key: key, IfMatch: tag}}, further...)
	_, err := s.batch(ctx, withTimer(changes, key, timer), 0)
	return err
}

// withTimer appends the changes that move the timer of a record.
func withTimer(changes []client.Change, key string, timer Move) []client.Change {
	if timer.To.Equal(timer.From) {
		return changes
	}
	if !timer.From.IsZero() {
		changes = append(changes, client.Change{Op: "delete", Key: dueKey(key, timer.From)})
	}
	if !timer.To.IsZero() {
		changes = append(changes, client.Change{Op: "put", Key: dueKey(key, timer.To), ContentType: contentType})
	}
	return changes
}

// batch makes all changes or none. What it writes expires after life. It returns the
// new tag of the first change.
func (s *Store) batch(ctx context.Context, changes []client.Change, life time.Duration) (tag string, err error) {
	for i := range changes {
		if changes[i].Op == "put" {
			changes[i].TTL = life.String()
		}
	}
	err = s.call(ctx, "batch", func(ctx context.Context) error {
		results, err := s.kv.Batch(ctx, changes...)
		if err == nil && len(results) > 0 {
			tag = results[0].ETag
		}
		return err
	})
	return tag, err
}

// call makes one call to the store, or returns ErrAway at once while the store does not
// answer.
func (s *Store) call(ctx context.Context, name string, do func(context.Context) error) error {
	if s.away.Load() {
		return ErrAway
	}
	return s.try(ctx, name, do)
}

// try makes one call to the store within the timeout. If the call fails and no
// concurrent call was answered, the store counts as away until it answers a call.
func (s *Store) try(caller context.Context, name string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(caller, s.timeout)
	defer cancel()
	answered, began := s.answered.Load(), time.Now()
	var err error
	select {
	case s.slots <- struct{}{}:
		err = do(ctx)
		<-s.slots
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.seconds.WithLabelValues(name).Observe(time.Since(began).Seconds())
	unmet := client.Unmet(err)
	switch {
	case err == nil || answers(err):
		s.answered.Add(1)
		if s.away.Swap(false) {
			s.log.Info("the store is back")
		}
		if unmet {
			s.conflicts.Inc()
			return ErrChanged
		}
		return err
	case caller.Err() != nil: // the caller gave up, which says nothing about the store
		return fmt.Errorf("%w: %s: %w", ErrAway, name, err)
	}
	s.failed.Inc()
	if s.answered.Load() == answered && !s.away.Swap(true) {
		s.log.Warn("the store does not answer: requests are refused until it does", "error", err)
	}
	return fmt.Errorf("%w: %s: %w", ErrAway, name, err)
}

// answers reports whether err is the store's answer to this one call, such as an unmet
// condition. Other errors would meet other calls too.
func answers(err error) bool {
	var e *client.Error
	if !errors.As(err, &e) || e.Status >= http.StatusInternalServerError {
		return false
	}
	return e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden && e.Status != http.StatusTooManyRequests
}

// Run calls due for each due timer, and probes the store while it does not answer,
// until ctx is done. Several instances may get the same due timer, and get it again
// until the timer is moved. If due is nil, timers are not read. The first call to the
// store is made at once, so that Connected needs no request.
func (s *Store) Run(ctx context.Context, due func(ctx context.Context, key string, at time.Time)) error {
	defer s.client.Close()
	var group sync.WaitGroup
	group.Go(func() {
		if due == nil { // otherwise the timers are read at once
			s.probe(ctx)
		}
		every(ctx, probeEvery, func() {
			if !s.Ready() {
				s.probe(ctx)
			}
		})
	})
	if due != nil {
		group.Go(func() {
			s.fire(ctx, due)
			every(ctx, pollEvery, func() { s.fire(ctx, due) })
		})
	}
	group.Go(func() {
		differ := false
		every(ctx, checkEvery, func() { differ = s.checkClock(differ) })
	})
	group.Wait()
	return nil
}

// checkClock logs when this host's clock and the store's begin or cease to differ, and reports
// whether they differ. differed is the last result.
func (s *Store) checkClock(differed bool) bool {
	switch ahead := s.client.ClockAhead(); {
	case !differed && ahead.Abs() > tolerance:
		s.log.Warn("the clocks of this host and of the store differ, so records may expire late or early: synchronize both, as by chrony",
			"ahead", ahead.Round(time.Second))
		return true
	case differed && ahead.Abs() < tolerance/2: // half, so that a difference near the tolerance is logged once
		s.log.Info("the clocks of this host and of the store agree again")
		return false
	}
	return differed
}

// every calls do after each period until ctx is done.
func every(ctx context.Context, period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

func (s *Store) probe(ctx context.Context) {
	_ = s.try(ctx, "probe", func(ctx context.Context) error { // try records the result
		_, err := s.kv.Get(ctx, "probe", client.Conditions{})
		return err
	})
}

const duePrefix = "due/"

// dueKey returns the key of a record's timer. The keys sort by time, in milliseconds.
func dueKey(key string, at time.Time) string {
	return fmt.Sprintf("%s%013d/%s", duePrefix, at.UnixMilli(), key)
}

// parseDueKey returns the key of the record and the time of a timer.
func parseDueKey(due string) (key string, at time.Time, ok bool) {
	ms, key, ok := strings.Cut(strings.TrimPrefix(due, duePrefix), "/")
	n, err := strconv.ParseInt(ms, 10, 64)
	return key, time.UnixMilli(n), ok && err == nil
}

// fire reads all timers that are due and calls due for each. A read that has begun ends even
// if ctx is done, so that the store does not answer into a closed connection.
func (s *Store) fire(ctx context.Context, due func(ctx context.Context, key string, at time.Time)) {
	var group errgroup.Group
	group.SetLimit(dueWorkers)
	defer func() { _ = group.Wait() }()
	for after := ""; ; {
		var page client.Page
		err := s.call(context.WithoutCancel(ctx), "list", func(ctx context.Context) (err error) {
			page, err = s.kv.Page(ctx, duePrefix, after, duePage, false)
			return err
		})
		if err != nil || ctx.Err() != nil {
			return // try has recorded the error
		}
		now := s.Now() // only after an answer, because the first one tells the store's clock
		for _, e := range page.Records {
			key, at, ok := parseDueKey(e.Key)
			if at.After(now) {
				return
			}
			if ok {
				s.timers.Inc()
				group.Go(func() error { due(ctx, key, at); return nil })
			}
		}
		if page.Next == "" {
			return
		}
		after = page.Next
	}
}
