package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A clock is this host's clock, corrected by the clocks of the cluster's members. Records
// expire by it, so stores on hosts with different clocks agree on what has expired.
//
// Leases of etcd would need no clock in the store, but they do not fit. A lease lasts whole
// seconds, at least two. A change of leader renews every lease, so a record could live for
// twice its time. Each record would need its own lease, which costs a write by consensus
// and memory at each member. Also, the times of TS 29.598 (ttl, expires) are absolute.
//
// etcd's own protocol carries no time, but members answer HTTP at their client URLs, with a
// Date in whole seconds (RFC 9110 section 6.6.1). Each answer bounds the difference between
// the clocks to one second plus the round-trip time. Answers at other fractions of a second
// narrow the bounds. The clock changes only if it is provably wrong, and by as little as
// possible.
type clock struct {
	host    func() time.Time
	began   time.Time    // of the host's clock
	shift   atomic.Int64 // nanoseconds to add to the host's clock
	members []string     // URLs to ask; none: the host's clock is not checked
	client  *http.Client
	log     *slog.Logger
	logged  time.Duration // the shift that was last logged
	blind   bool          // too few members answered the last look
}

const (
	clockTimeout = 2 * time.Second // for the members' answers
	clockAnswer  = 4 << 10         // bytes of an answer's body that are read
	clockLooks   = 8               // queries of the members after the clock was found wrong
	clockPause   = time.Second / clockLooks
)

// newClock returns a clock that has not been checked yet.
func newClock(c *Config) (*clock, error) {
	k := &clock{host: c.Now, began: c.Now(), log: c.Logger}
	if c.Unchecked {
		return k, nil
	}
	for _, endpoint := range c.Endpoints {
		if !strings.Contains(endpoint, "://") {
			scheme := "http://"
			if c.TLS != nil {
				scheme = "https://"
			}
			endpoint = scheme + endpoint
		}
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, fmt.Errorf("store: etcd: endpoint %q: %w", endpoint, err)
		}
		k.members = append(k.members, u.JoinPath("version").String())
	}
	k.client = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: c.TLS.Clone()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return k, nil
}

// now returns the time by which records expire.
func (k *clock) now() time.Time {
	if k.members == nil {
		return k.host()
	}
	return k.steady().Add(time.Duration(k.shift.Load()))
}

// steady returns the host's time without steps of its clock since the start, because
// time.Time has a monotonic reading.
func (k *clock) steady() time.Time { return k.began.Add(k.host().Sub(k.began)) }

// check corrects the clock. If the clock was wrong, check queries the members several times
// within a second. If ctx ends, one query is enough, because further ones only narrow the
// bounds.
func (k *clock) check(ctx context.Context) error {
	for i := 0; i < clockLooks && k.members != nil; i++ {
		at, err := k.look(ctx)
		if err != nil && i > 0 {
			break
		}
		if err != nil {
			return fmt.Errorf("store: etcd: read the clocks of the members: %w", err)
		}
		before := time.Duration(k.shift.Load())
		after := min(max(before, at.low), at.high)
		k.shift.Store(int64(after))
		if i == 0 && (after-before).Abs() < clockPause {
			break
		}
		select {
		case <-time.After(clockPause):
		case <-ctx.Done():
		}
	}
	if shift := time.Duration(k.shift.Load()); (shift - k.logged).Abs() >= time.Second {
		k.log.Warn("this host's clock is wrong: records expire by the clocks of etcd's members", "ahead", -shift)
		k.logged = shift
	}
	return nil
}

// bounds are the limits of the difference between another clock and this host's.
type bounds struct{ low, high time.Duration }

// look asks all members for their time. A member that does not answer may have any time, so it
// counts against those that do.
func (k *clock) look(ctx context.Context) (bounds, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	answers, failures := make([]bounds, len(k.members)), make([]error, len(k.members))
	var asked sync.WaitGroup
	for i, member := range k.members {
		asked.Go(func() { answers[i], failures[i] = k.ask(ctx, member) })
	}
	asked.Wait()
	silent := 0
	for i, err := range failures {
		if err != nil {
			answers[i] = bounds{math.MinInt64, math.MaxInt64}
			silent++
		}
	}
	if silent == len(k.members) {
		return bounds{}, errors.Join(failures...)
	}
	if blind := 2*silent >= len(k.members); blind != k.blind {
		k.blind = blind
		if blind {
			k.log.Warn("this host's clock cannot be checked, because half of etcd's members or more do not answer; its last correction stays", "error", errors.Join(failures...))
		} else {
			k.log.Info("this host's clock is checked by most of etcd's members again")
		}
	}
	return agree(answers), nil
}

// ask asks one member for its time.
func (k *clock) ask(ctx context.Context, member string) (bounds, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, member, nil)
	if err != nil {
		return bounds{}, err
	}
	sent := k.steady()
	answer, err := k.client.Do(r)
	if err != nil {
		return bounds{}, err
	}
	received := k.steady()
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, clockAnswer)) // so that the connection can be used again
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return bounds{}, fmt.Errorf("%s: header Date: %w", member, err)
	}
	return bounds{low: date.Sub(received), high: date.Add(time.Second).Sub(sent)}, nil
}

// agree returns bounds that hold for the right time if the clocks of more than half of the members
// are right.
func agree(members []bounds) bounds {
	var low, high []time.Duration
	for _, m := range members {
		low, high = append(low, m.low), append(high, m.high)
	}
	slices.Sort(low)
	slices.Sort(high)
	return bounds{low: low[(len(low)-1)/2], high: high[len(high)/2]}
}

// run checks the clock at intervals until ctx ends.
func (k *clock) run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := k.check(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			k.log.Warn("this host's clock cannot be checked; its last correction stays", "error", err)
		case err == nil && failed:
			k.log.Info("this host's clock is checked again")
		}
		failed = err != nil
	}
}
