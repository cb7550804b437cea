package sprout

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims"
	"vitrine/reference/ims/replica"
	"vitrine/reference/keep"
)

// replicas is the keeper that replicates records among the Sprouts. It writes a
// timer after the timer's record, so if a Sprout fails between the two writes,
// the timer is lost. The first live replica of a timer deletes it and calls due.
//
// Two Sprouts may write their timers in another order than their records. A
// timer may therefore be due too early or too late; then it is set again.
type replicas struct {
	store *replica.Store
	peers net.Listener // nil if this Sprout is alone
	due   func(ctx context.Context, key string, at time.Time)
	log   *slog.Logger
}

func newReplicas(k config, peers net.Listener, log *slog.Logger, registry *prometheus.Registry) *replicas {
	r := &replicas{peers: peers, log: log}
	r.store = replica.New(replica.Config{
		Self: k.cluster.Self, Peers: k.cluster.Peers, Copies: k.copies, Read: replica.One, Ask: k.peerTimeout,
		OnTimer: r.onTimer, Log: log, Metrics: registry,
	})
	gauge := ims.Gauges(registry, "sprout")
	gauge("records", "Records held here.", func() float64 { return float64(r.store.Held()) })
	gauge("living", "Sprouts that can be reached, including this one.", func() float64 { return float64(r.store.Living()) })
	return r
}

// Run connects the replicas.
func (r *replicas) Run(ctx context.Context, due func(ctx context.Context, key string, at time.Time)) error {
	r.due = due
	return r.store.Run(ctx, r.peers)
}

// Ready returns true: each request finds out which replicas answer.
func (r *replicas) Ready() bool { return true }

// Now returns this host's time.
func (r *replicas) Now() time.Time { return time.Now() }

// Get asks the first live replica that has the record.
func (r *replicas) Get(ctx context.Context, key string) (keep.Record, error) {
	got, err := r.store.Get(ctx, key)
	return keep.Record{Value: got.Value, Tag: strconv.FormatUint(got.Version, 10)}, err
}

// Put writes the record to all replicas.
func (r *replicas) Put(ctx context.Context, key string, rec keep.Record, timer keep.Move) error {
	_, err := r.store.Put(ctx, key, replica.Record{Value: rec.Value, Expires: rec.Expires}, version(rec.Tag))
	return r.moveTimer(ctx, key, timer, err)
}

// Delete removes the record from all replicas.
func (r *replicas) Delete(ctx context.Context, key, tag string, timer keep.Move) error {
	return r.moveTimer(ctx, key, timer, r.store.Delete(ctx, key, version(tag)))
}

// version returns the version of a tag; no tag means that there is no record.
func version(tag string) uint64 {
	v, _ := strconv.ParseUint(tag, 10, 64) // a tag is from Get, or empty
	return v
}

const timerPrefix = "timer/"

// moveTimer moves a timer after its record was written with the result err.
func (r *replicas) moveTimer(ctx context.Context, key string, timer keep.Move, err error) error {
	switch {
	case errors.Is(err, replica.ErrConflict):
		return keep.ErrChanged
	case err != nil || timer.To.Equal(timer.From):
		return err
	case timer.To.IsZero():
		return r.store.Cancel(ctx, timerPrefix+key)
	}
	return r.store.Schedule(ctx, timerPrefix+key, timer.To, dueAt(timer.To))
}

// dueAt returns the value of a timer.
func dueAt(at time.Time) []byte { return strconv.AppendInt(nil, at.UnixMilli(), 10) }

func (r *replicas) onTimer(ctx context.Context, key string, value []byte) {
	at, _ := strconv.ParseInt(string(value), 10, 64) // from dueAt
	of := strings.TrimPrefix(key, timerPrefix)
	r.due(ctx, of, time.UnixMilli(at))
	if err := r.setAgain(ctx, of); err != nil && ctx.Err() == nil {
		r.log.Warn("the timer of a registration was not set again", "key", of, "error", err)
	}
}

// againAfter is the delay of a timer that is set again although it is already
// due.
const againAfter = time.Second

// setAgain sets the timer of a registration whose timer was due, unless another
// Sprout has set it.
func (r *replicas) setAgain(ctx context.Context, key string) error {
	have, err := r.store.Get(ctx, key)
	if err != nil {
		return err
	}
	reg, err := parseRegistration(have.Value)
	if err != nil || reg.Due == 0 {
		return err
	}
	at, now := reg.timer(), time.Now()
	timer := replica.Record{Value: dueAt(at), Expires: at, Timer: true}
	if !at.After(now) {
		timer.Expires = now.Add(againAfter)
	}
	_, err = r.store.Put(ctx, timerPrefix+key, timer, 0)
	if errors.Is(err, replica.ErrConflict) {
		return nil // another Sprout has set it
	}
	return err
}
