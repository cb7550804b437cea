package sprout

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

	"vitrine/reference/ims"
	"vitrine/store/client"
)

// A storeConfig holds the flags of the store.
type storeConfig struct {
	access  client.Access
	space   string
	timeout time.Duration
	calls   int
}

func (k *storeConfig) flags(c *ims.Command) {
	c.StringVar(&k.access.URL, "store", "", "keep registrations, challenges and timers in the store at http://HOST:PORT or https://HOST:PORT, in place of --peers")
	c.StringVar(&k.access.TokenFile, "store-token-file", "", "file with the token for the store, on the first line that is not empty and not a # comment")
	c.StringVar(&k.access.Authorities, "store-ca", "", "PEM file of the authorities that certify the store")
	c.StringVar(&k.access.Certificate, "store-cert", "", "PEM file of the certificate to show to the store")
	c.StringVar(&k.access.Key, "store-key", "", "PEM file of the certificate's key")
	c.StringVar(&k.space, "store-space", "sprout", "namespace of the keys; Sprouts with the same one serve the same users")
	c.DurationVar(&k.timeout, "store-timeout", time.Second, "how long the store's answer may take")
	c.IntVar(&k.calls, "store-calls", 64, "calls to the store at the same time; others wait")
	c.Positive("store-timeout", "store-calls")
}

// check returns an error for flags that contradict each other.
func (k *storeConfig) check(c *ims.Command, cluster ims.Cluster) error {
	switch {
	case k.access.URL != "" && len(cluster.Peers) > 0:
		return c.Bad("--store and --peers", "give one of them: with a store, Sprouts do not know each other")
	case k.access.URL == "" && (k.access != client.Access{}):
		return c.Bad("--store-token-file, --store-ca, --store-cert or --store-key without --store", "give the URL of the store")
	}
	return nil
}

const (
	probeEvery = 100 * time.Millisecond // while the store does not answer
	pollEvery  = 250 * time.Millisecond // for due timers
	duePage    = 32                     // timers read at once
	dueWorkers = 8                      // timers handled at the same time
	// keepOverdue is how long a record with a timer stays after its expiry, so that
	// an outage of all Sprouts loses no NOTIFY.
	keepOverdue = time.Hour
)

// A store is the keeper that has its records in a store (docs/store.md).
//
// A timer is a key due/TIME/KEY, written in one atomic batch with its record, and
// every Sprout reads the keys that are due. So a timer is there exactly while its
// record needs it, whatever ends between two calls. Neither of the store's own
// timers can do that: a timer of Nudsf_Timer cannot be changed together with a
// record, and an expiry that is watched is lost if nobody watches.
type store struct {
	client  *client.Client
	kv      *client.KV
	timeout time.Duration
	slots   chan struct{} // one for each call
	log     *slog.Logger

	answered atomic.Uint64 // calls that the store answered
	away     atomic.Bool   // the store does not answer

	failed, conflicts, timers prometheus.Counter
	seconds                   *prometheus.HistogramVec
}

func newStore(k storeConfig, log *slog.Logger, registry *prometheus.Registry) (*store, error) {
	config, err := k.access.Config()
	if err != nil {
		return nil, err
	}
	config.Conns = k.calls
	c, err := client.New(config)
	if err != nil {
		return nil, err
	}
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(registry).NewCounter(prometheus.CounterOpts{Name: "sprout_store_" + name + "_total", Help: help})
	}
	s := &store{
		client: c, kv: c.KV(k.space), timeout: k.timeout, slots: make(chan struct{}, k.calls), log: log,
		failed:    counter("failed", "Calls to the store that failed."),
		conflicts: counter("conflicts", "Writes refused by the store because the record had changed."),
		timers:    counter("timers", "Due timers read from the store; every Sprout reads them."),
		seconds: promauto.With(registry).NewHistogramVec(prometheus.HistogramOpts{
			Name: "sprout_store_seconds", Help: "How long calls to the store took.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1},
		}, []string{"call"}),
	}
	addGauge(registry, "store_up", "1 while the store answers.", func() float64 {
		if s.Ready() {
			return 1
		}
		return 0
	})
	addGauge(registry, "store_calls", "Calls to the store at present.", func() float64 { return float64(len(s.slots)) })
	return s, nil
}

// Ready reports whether the store answers.
func (s *store) Ready() bool { return !s.away.Load() }

// Get reads the record.
func (s *store) Get(ctx context.Context, key string) (record, error) {
	var r record
	err := s.call(ctx, "get", func(ctx context.Context) error {
		v, err := s.kv.Get(ctx, key, client.Conditions{})
		if err == nil {
			r = record{value: v.Data, tag: v.ETag}
		}
		return err
	})
	if client.NotFound(err) {
		return record{}, nil
	}
	return r, err
}

const contentType = "application/json"

// Put writes the record, and its timer if that moves.
func (s *store) Put(ctx context.Context, key string, r record, timer move) error {
	life := time.Until(r.expires)
	if !timer.to.IsZero() {
		life += keepOverdue
	}
	life = max(life, time.Millisecond)
	if timer.to.Equal(timer.from) {
		return s.call(ctx, "put", func(ctx context.Context) error {
			when := client.Conditions{IfMatch: r.tag}
			if r.tag == "" {
				when.IfNoneMatch = "*"
			}
			_, err := s.kv.Put(ctx, key, r.value, contentType, life, when)
			return err
		})
	}
	change := client.Change{Op: "put", Key: key, Value: r.value, ContentType: contentType, TTL: life.String(), IfMatch: r.tag}
	if r.tag == "" {
		change.IfNoneMatch = "*"
	}
	return s.batch(ctx, key, change, timer, life)
}

// Delete removes the record and its timer.
func (s *store) Delete(ctx context.Context, key, tag string, timer move) error {
	if tag == "" {
		return nil // there is no record
	}
	return s.batch(ctx, key, client.Change{Op: "delete", Key: key, IfMatch: tag}, timer, 0)
}

// batch changes a record and its timer, or neither. The keys of both live for
// life.
func (s *store) batch(ctx context.Context, key string, change client.Change, timer move, life time.Duration) error {
	changes := []client.Change{change}
	if !timer.from.IsZero() {
		changes = append(changes, client.Change{Op: "delete", Key: dueKey(key, timer.from)})
	}
	if !timer.to.IsZero() {
		changes = append(changes, client.Change{Op: "put", Key: dueKey(key, timer.to), ContentType: contentType, TTL: life.String()})
	}
	return s.call(ctx, "batch", func(ctx context.Context) error {
		_, err := s.kv.Batch(ctx, changes...)
		return err
	})
}

// call makes one call to the store, unless the store is unreachable.
func (s *store) call(ctx context.Context, name string, do func(context.Context) error) error {
	if s.away.Load() {
		return errAway
	}
	return s.try(ctx, name, do)
}

// try makes one call to the store within the deadline. The store is unreachable
// if a call fails and no other was answered meanwhile, until a call is answered.
func (s *store) try(caller context.Context, name string, do func(context.Context) error) error {
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
			return errChanged
		}
		return err
	case caller.Err() != nil: // says nothing about the store
		return fmt.Errorf("%w: %s: %w", errAway, name, err)
	}
	s.failed.Inc()
	if s.answered.Load() == answered && !s.away.Swap(true) {
		s.log.Warn("the store does not answer: requests are refused until it does", "error", err)
	}
	return fmt.Errorf("%w: %s: %w", errAway, name, err)
}

// answers reports whether err is the store's answer to this one call, such as an
// unmet condition, and not a sign that it would refuse others as well.
func answers(err error) bool {
	var e *client.Error
	if !errors.As(err, &e) || e.Status >= http.StatusInternalServerError {
		return false
	}
	return e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden && e.Status != http.StatusTooManyRequests
}

// Run calls due for due timers, and probes the store while it is unreachable.
func (s *store) Run(ctx context.Context, due func(ctx context.Context, key string, at time.Time)) error {
	defer s.client.Close()
	var group sync.WaitGroup
	group.Go(func() { every(ctx, probeEvery, func() { s.probe(ctx) }) })
	group.Go(func() { every(ctx, pollEvery, func() { s.fire(ctx, due) }) })
	group.Wait()
	return nil
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

func (s *store) probe(ctx context.Context) {
	if s.Ready() {
		return
	}
	_ = s.try(ctx, "probe", func(ctx context.Context) error { // try notes the result
		_, err := s.kv.Get(ctx, "probe", client.Conditions{})
		return err
	})
}

const duePrefix = "due/"

// dueKey returns the key of a record's timer. Keys are in the order of their
// times, which have milliseconds.
func dueKey(key string, at time.Time) string {
	return fmt.Sprintf("%s%013d/%s", duePrefix, at.UnixMilli(), key)
}

// parseDueKey returns the record and the time of a timer.
func parseDueKey(due string) (key string, at time.Time, ok bool) {
	ms, key, ok := strings.Cut(strings.TrimPrefix(due, duePrefix), "/")
	n, err := strconv.ParseInt(ms, 10, 64)
	return key, time.UnixMilli(n), ok && err == nil
}

// fire reads all timers that are due and calls due for each.
func (s *store) fire(ctx context.Context, due func(ctx context.Context, key string, at time.Time)) {
	var group errgroup.Group
	group.SetLimit(dueWorkers)
	defer func() { _ = group.Wait() }()
	now := time.Now()
	for after := ""; ; {
		var page client.Page
		err := s.call(ctx, "list", func(ctx context.Context) (err error) {
			page, err = s.kv.Page(ctx, duePrefix, after, duePage, false)
			return err
		})
		if err != nil {
			return // try notes it
		}
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
