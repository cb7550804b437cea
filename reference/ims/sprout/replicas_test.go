package sprout

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/keep"
)

// TestTimersInTheWrongOrderAreSetAgain writes the timers of two registrations of one user in
// another order than the registrations, as two Sprouts may. The later registration's timer is due
// all the same.
func TestTimersInTheWrongOrderAreSetAgain(t *testing.T) {
	for name, c := range map[string]struct{ due, last time.Duration }{
		"the timer that stays is too early": {due: 2 * time.Second, last: time.Second},
		"the timer that stays is too late":  {due: time.Second, last: 2 * time.Second},
		"the registration has no timer":     {last: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const key = "reg/sip:a@ims.test"
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				r := newReplicas(config{copies: 1}, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				var reg registration
				if c.due > 0 {
					reg.Due = began.Add(c.due).UnixMilli()
				}
				value, err := json.Marshal(reg)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Put(ctx, key, keep.Record{Value: value, Expires: began.Add(time.Hour)}, keep.Move{To: reg.timer()}); err != nil {
					t.Fatal(err)
				}
				if err := r.moveTimer(ctx, key, keep.Move{To: began.Add(c.last)}, nil); err != nil {
					t.Fatal(err)
				}
				fired := make(chan time.Time, 10)
				ended := make(chan error, 1)
				go func() {
					ended <- r.Run(ctx, func(ctx context.Context, of string, at time.Time) {
						if of != key {
							t.Errorf("got a timer of the other key %s", of)
						}
						fired <- at
						if at.UnixMilli() != reg.Due {
							return
						}
						have, err := r.Get(ctx, key)
						if err == nil {
							err = r.Delete(ctx, key, have.Tag, keep.Move{From: at}) // as expire does
						}
						if err != nil {
							t.Error(err)
						}
					})
				}()
				time.Sleep(time.Minute)
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				close(fired)
				var got []time.Duration
				for at := range fired {
					got = append(got, at.Sub(began.Truncate(time.Millisecond)))
				}
				want := []time.Duration{c.last}
				if c.due > 0 {
					want = append(want, c.due)
				}
				if !slices.Equal(got, want) {
					t.Errorf("timers were due at %v, want %v", got, want)
				}
			})
		})
	}
}
