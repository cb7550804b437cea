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

// restore restores the weights after a measurement that ended with err. restoring is the error of
// restoring them. If the objective broke under load, why is the error of awaitRecovery, and otherwise
// err. The load is shed only if some was shifted, and only onto enough healthy instances. It is not shed after an
// interrupt: the instance met the objective so far, and the others, which may be in a burst, would get all new
// work of the type.
func (r *run) restore(ctx context.Context, err error) (restoring, why error) {
	free := context.WithoutCancel(ctx)
	defer r.settle()
	_, isFault := errors.AsType[*fault](err)
	over := err == nil && r.endedOver()
	if !r.shifted || !isFault && !over || r.last().healthy < r.Min {
		return r.giveBack(free), err
	}
	restoring = r.shed(ctx)
	if over && restoring == nil {
		err = r.awaitRecovery(ctx)
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
	err := errors.Join(r.release(ctx), r.await(ctx))
	r.result.Restored = time.Since(began).Seconds()
	return err
}

// shed sets the weight of the instance to 0 until its load has fallen, and then releases the
// lease. With weight 0 the instance gets no new work. Without that, its load would stay high for a
// transition time, because known keys stay at the instance. If ctx ends, shed does not wait: the type may
// need more instances, and the lease prevents starts.
func (r *run) shed(ctx context.Context) error {
	free := context.WithoutCancel(ctx)
	began := time.Now()
	gated := r.set(free, map[string]float64{r.instance: 0})
	if gated != nil {
		r.note("cannot set the weight of the instance to 0: %v", gated)
		return r.giveBack(free)
	}
	r.result.Restored = time.Since(began).Seconds()
	r.note("weights restored in %.1fs; the instance gets no new work until its load has fallen", r.result.Restored)
	r.awaitFall(ctx, began)
	return errors.Join(r.release(free), r.await(free))
}

// awaitFall waits until the instance has no more transactions in flight than before the shift, until too
// few other instances are healthy, or until ctx ends. A failed reading does not end the wait, because the
// instance may be gone.
func (r *run) awaitFall(ctx context.Context, began time.Time) {
	const deviations = 3
	usual := float64(r.base.span.InFlight)
	usual += deviations * math.Sqrt(max(usual, 1))
	for time.Since(began) < fallTime {
		if now, err := r.read(ctx); err == nil {
			r.all = append(r.all, now)
			if now.healthy < r.Min {
				r.note("%d other instances are healthy, fewer than %d, so the instance gets new work before its load has fallen", now.healthy, r.Min)
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
		select {
		case <-ctx.Done():
			r.note("interrupted, so the instance gets new work before its load has fallen")
			return
		case <-time.After(tick):
		}
	}
	r.note("the load has not fallen in %s", fallTime)
}

// awaitRecovery waits until the instance meets the objective again at its base weight. If it does
// not, the load was not the cause, and the error is a *fault. Its other errors are those of next.
func (r *run) awaitRecovery(ctx context.Context) error {
	end := time.Now().Add(recoverTime)
	for time.Now().Before(end) {
		first := *r.last()
		for r.last().own.At.Sub(first.own.At) < guardTime {
			if _, err := r.next(ctx); err != nil {
				return err
			}
		}
		if s, t := r.span(&first); s.Completed() > 0 && !r.objective.isBroken(t) {
			return nil
		}
	}
	return &fault{"the objective stays broken at the present rate, so the cause is a fault and not the load"}
}
