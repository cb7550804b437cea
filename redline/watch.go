package redline

import (
	"context"
	"fmt"
	"time"

	"vitrine/director/client"
)

const (
	tick      = 250 * time.Millisecond // time between two readings
	guardTime = 2 * time.Second        // span that judge looks at
	silence   = 3 * time.Second        // longest time without a reading
	// headroom is the share of the CPU limit at which a measurement stops even if the objective
	// holds.
	headroom = 0.95
)

// A watch takes the readings of a measurement, and judges the last seconds.
type watch struct {
	*fleet
	objective Objective
	min       int // fewest healthy other instances
	cpu       func(from, to time.Time) (cpus float64, ok bool)
	cpuLimit  float64

	all      []reading  // the last readings, oldest first; forget drops older ones
	renewing chan error // receives the result of the renewal under way; nil: there is none
	asked    time.Time  // begin of the renewal under way
}

// A fault is the error of a measurement that ended for another reason than load. Such a
// measurement has no capacity.
type fault struct{ why string }

func (e *fault) Error() string { return e.why }

// next waits for a tick, takes a reading, and renews the lease when needed. It returns a *fault
// if the measurement cannot continue.
func (w *watch) next(ctx context.Context) (reading, error) {
	select {
	case <-ctx.Done():
		return reading{}, context.Cause(ctx)
	case <-time.After(tick):
	}
	r, err := w.read(ctx)
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil && len(w.all) > 0 && now.Sub(w.last().own.At) < silence:
		return w.next(ctx)
	case err != nil:
		return r, &fault{"no reading for " + silence.String() + ": " + err.Error()}
	}
	if r.restarted {
		w.all = nil // a difference to counts from before the reset means nothing
	}
	w.all = append(w.all, r) // also before a fault, because restore looks at it
	w.forget()
	switch {
	case r.trouble != "":
		return r, &fault{"instance " + w.instance + " cannot be measured: " + r.trouble}
	case r.healthy < w.min:
		return r, &fault{fmt.Sprintf("%d other healthy instances, want at least %d", r.healthy, w.min)}
	}
	return r, w.keepLease(ctx, now)
}

// keepLease renews the lease in a goroutine after a quarter of leaseTime. It returns a *fault if
// renewals have failed for half of leaseTime. A renewal has no weights, because a late renewal
// could undo a change of weights.
func (w *watch) keepLease(ctx context.Context, now time.Time) error {
	select {
	case err := <-w.renewing:
		w.renewing = nil
		if err == nil {
			w.renewed = w.asked
		} else if now.Sub(w.renewed) > leaseTime/2 {
			return &fault{err.Error()}
		}
	default:
	}
	if w.token == 0 || w.renewing != nil || now.Sub(w.renewed) < leaseTime/4 {
		return nil
	}
	done := make(chan error, 1)
	w.renewing, w.asked = done, now
	fleet := *w.fleet // a copy, because renew sets the time of renewal
	go func() { done <- fleet.renew(ctx, client.LeaseChange{}) }()
	return nil
}

// settle waits for a renewal that is under way.
func (w *watch) settle() {
	if w.renewing != nil {
		if err := <-w.renewing; err == nil {
			w.renewed = w.asked
		}
		w.renewing = nil
	}
}

func (w *watch) last() *reading { return &w.all[len(w.all)-1] }

// forget drops readings that neither judge nor overdue needs. A reading has the counts of all instances,
// so those of a long step would take hundreds of megabytes.
func (w *watch) forget() {
	keep := w.last().own.At.Add(-guardTime - w.objective.Latency - tick)
	for len(w.all) > 1 && w.all[1].own.At.Before(keep) {
		w.all = w.all[1:]
	}
}

// before returns the latest reading at least as old as age, or the oldest reading.
func (w *watch) before(age time.Duration) *reading {
	at := w.last().own.At.Add(-age)
	for i := len(w.all) - 1; i > 0; i-- {
		if !w.all[i].own.At.After(at) {
			return &w.all[i]
		}
	}
	return &w.all[0]
}

// overdue returns a lower bound on the number of transactions that wait for a response for longer
// than Objective.Latency. It is 0 while the readings do not span that time.
func (w *watch) overdue() uint64 {
	now, then := w.last(), w.before(w.objective.Latency)
	if now.own.At.Sub(then.own.At) < w.objective.Latency {
		return 0
	}
	return now.own.Overdue(then.own)
}

// span returns the traffic since a reading, and its tally including overdue transactions.
func (w *watch) span(since *reading) (client.Span, tally) {
	s := w.last().own.Since(since.own)
	return s, w.objective.tally(s, w.overdue())
}

// A verdict is the result of judge.
type verdict int

const (
	good    verdict = iota
	broken          // the objective does not hold
	stalled         // nothing is answered
	hot             // the CPU is nearly used up, and the objective holds
)

// judge judges the readings of the last guardTime.
func (w *watch) judge() verdict {
	then := w.before(guardTime)
	s, t := w.span(then)
	const few = 5
	switch {
	case s.Duration >= time.Second && s.Completed() == 0 && t.overdue >= few:
		return stalled
	case w.objective.isBroken(t):
		return broken
	}
	if cpus, ok := w.used(then.own.At, w.last().own.At); ok && s.Duration >= guardTime && w.isHot(cpus) {
		return hot
	}
	return good
}

// isHot reports whether a CPU use is too close to the limit to shift more traffic.
func (w *watch) isHot(cpus float64) bool { return w.cpuLimit > 0 && cpus >= headroom*w.cpuLimit }

// used returns the mean CPU use of the instance, in CPUs, if it is known.
func (w *watch) used(from, to time.Time) (cpus float64, ok bool) {
	if w.cpu == nil {
		return 0, false
	}
	return w.cpu(from, to)
}
