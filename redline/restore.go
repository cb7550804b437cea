package redline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	fallTime    = 15 * time.Second // longest wait for the load to fall; after that the instance gets new work anyway
	recoverTime = 15 * time.Second // longest wait for the instance to meet the objective again
)

// end restores the weights after a measurement that ended with err, and completes the result. It
// returns an error if it could not restore the weights, or if ctx has ended.
func (r *run) end(ctx context.Context, err error) error {
	var restoring error
	if !r.DryRun {
		restoring, err = r.restore(ctx, err)
	}
	if u, ok := errors.AsType[*unidentifiable](err); ok {
		r.result.Verdict, r.result.Why = NotIdentifiable, u.why
	} else if err != nil {
		r.result.Verdict, r.result.Why = Aborted, err.Error()
	}
	r.conclude()
	switch _, isFault := errors.AsType[*fault](err); {
	case restoring != nil:
		return fmt.Errorf("restore the weights: %w", restoring)
	case err != nil && !isFault && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return nil
}

// restore restores the weights after a measurement that ended with err. If the objective broke
// under load and stays broken at the base weight, load was not the cause, and why is a *fault.
// Otherwise why is err. restoring is the error of restoring the weights. If no other instance is
// healthy, the load is not shed, because nothing else could take new work.
func (r *run) restore(ctx context.Context, err error) (restoring, why error) {
	free := context.WithoutCancel(ctx)
	defer r.settle()
	_, isFault := errors.AsType[*fault](err)
	over := err == nil && r.endedOver()
	if !isFault && !over || r.last().healthy == 0 {
		return r.giveBack(free), err
	}
	restoring = r.shed(free)
	if over && restoring == nil && ctx.Err() == nil && !r.recovers(ctx) {
		err = &fault{"the objective stays broken at the present rate, so the cause is a fault and not the load"}
	}
	return restoring, err
}

// endedOver reports whether the last step was at a higher rate and did not meet the objective.
func (r *run) endedOver() bool {
	last := len(r.result.Steps) - 1
	return last > 0 && !r.result.Steps[last].measured.meets(r.objective)
}

// giveBack releases the lease, and waits until all directors apply the base weights.
func (r *run) giveBack(ctx context.Context) error {
	began := time.Now()
	err := r.release(ctx)
	if waiting := r.await(ctx); err == nil {
		err = waiting
	}
	r.result.Restored = time.Since(began).Seconds()
	return err
}

// shed sets the weight of the instance to 0 until its load has fallen, and then releases the
// lease. With weight 0 the instance gets no new work. Without that, its load would stay high for a
// transition time, because known keys stay at the instance.
func (r *run) shed(ctx context.Context) error {
	began := time.Now()
	gated := r.set(ctx, map[string]float64{r.instance: 0})
	if gated != nil {
		r.note("cannot set the weight of the instance to 0: %v", gated)
		return r.giveBack(ctx)
	}
	r.result.Restored = time.Since(began).Seconds()
	r.note("weights restored in %.1fs; the instance gets no new work until its load has fallen", r.result.Restored)
	r.awaitFall(ctx, began)
	err := r.release(ctx)
	if waiting := r.await(ctx); err == nil {
		err = waiting
	}
	return err
}

// awaitFall waits until the instance has no more transactions in flight than before the shift, or
// until no other instance is healthy. A failed reading does not end the wait, because the instance
// may be gone.
func (r *run) awaitFall(ctx context.Context, began time.Time) {
	const deviations = 3
	usual := float64(r.base.span.InFlight)
	usual += deviations * math.Sqrt(max(usual, 1))
	for time.Since(began) < fallTime {
		if now, err := r.read(ctx); err == nil {
			r.all = append(r.all, now)
			if now.healthy == 0 {
				r.note("no other instance is healthy, so the instance gets new work before its load has fallen")
				return
			}
			if float64(now.own.InFlight) <= usual && r.overdue() == 0 {
				fell := time.Since(began).Seconds()
				r.result.Fell = &fell
				r.note("the load fell in %.1fs", fell)
				return
			}
		}
		_ = r.keepLease(ctx, time.Now()) // after an error, the lease expires or is released
		time.Sleep(tick)
	}
	r.note("the load has not fallen in %s", fallTime)
}

// recovers reports whether the instance meets the objective again at its base weight.
func (r *run) recovers(ctx context.Context) bool {
	end := time.Now().Add(recoverTime)
	for time.Now().Before(end) {
		first := *r.last()
		for r.last().own.At.Sub(first.own.At) < guardTime {
			if _, err := r.next(ctx); err != nil {
				return false
			}
		}
		if s, t := r.span(&first); s.Completed() > 0 && !r.objective.isBroken(t) {
			return true
		}
	}
	return false
}
