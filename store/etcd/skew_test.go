package etcd_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/etcd"
)

// A host has a wrong clock.
type host struct {
	ahead atomic.Int64 // nanoseconds
	*etcd.Engine
}

func openOn(t *testing.T, endpoint string, ahead time.Duration) *host {
	t.Helper()
	h := &host{}
	h.ahead.Store(int64(ahead))
	h.Engine = open(t, etcd.Config{Endpoints: []string{endpoint}, Now: func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }})
	return h
}

// off is the largest error of a store's clock, because members answer in whole seconds.
const off = time.Second

// TestWrongClocks checks that records expire at the right time at every store, whichever store
// wrote them, although the clocks of two hosts are wrong by a minute.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	const life = 3 * time.Second
	hosts := []*host{openOn(t, endpoint, time.Minute), openOn(t, endpoint, 0), openOn(t, endpoint, -time.Minute)}
	for i, h := range hosts {
		written := time.Now()
		o := store.Op{Action: store.Put, Name: fmt.Sprint(i), Expires: store.ClockOf(h, time.Now)().Add(life)}
		if err := h.Write(t.Context(), "s", o); err != nil {
			t.Fatal(err)
		}
		for j, reader := range hosts {
			if gone(t, reader, o.Name) && time.Since(written) < life-off {
				t.Errorf("store %d cannot read what store %d wrote %s ago with a lifetime of %s", j, i, time.Since(written), life)
			}
		}
		for _, reader := range hosts {
			// Without a correction one of the stores would keep the record for a minute.
			hosttest.Until(t, 20*time.Second, "the record expires", func() bool { return gone(t, reader, o.Name) })
			if lived := time.Since(written); lived < life-off {
				t.Errorf("a record with a lifetime of %s expired after %s", life, lived)
			}
		}
	}
}

// gone reports whether a store no longer finds a record.
func gone(t *testing.T, e store.Engine, name string) bool {
	t.Helper()
	var r store.Record
	err := e.Get(t.Context(), store.Key{Space: "s", Name: name}, &r)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return err != nil
}

// TestSweptByWrongClock checks that a store whose host's clock is ahead sweeps an expired record,
// and sweeps no record early.
func TestSweptByWrongClock(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	ahead := openOn(t, endpoint, time.Minute) // the only store, so that it sweeps
	began := time.Now()
	ops := []store.Op{
		{Action: store.Put, Name: "later", Expires: began.Add(50 * time.Second)},
		{Action: store.Put, Name: "soon", Expires: began.Add(3 * time.Second)},
	}
	for v, err := range ahead.Watch(t.Context(), "s", "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch v.Change {
		case store.Started:
			if err := ahead.Write(t.Context(), "s", ops...); err != nil {
				t.Fatal(err)
			}
		case store.Expired, store.Deleted:
			if lived := time.Since(began); v.Change != store.Expired || v.Record.Key.Name != "soon" || lived < 3*time.Second-off {
				t.Errorf("%s: got change %d after %s", v.Record.Key.Name, v.Change, lived)
			}
			return
		}
	}
}

// TestClockJumps checks that a store follows the members when its host's clock is set.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	h := openOn(t, serve(t), 0)
	for _, ahead := range []time.Duration{time.Minute, -time.Hour, 0} {
		h.ahead.Store(int64(ahead))
		hosttest.Until(t, 20*time.Second, "the clock is right again", func() bool { return time.Until(h.Now()).Abs() <= off })
	}
}
