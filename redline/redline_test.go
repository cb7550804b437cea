package redline

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/latency"
)

// TestFindsTheCapacity checks that the interval contains the capacity, that the objective is broken
// for less than a step, and that the base weights come back.
func TestFindsTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 2, three(160)...)
		o := w.options()
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != Within || r.Low > 160 || r.High < 160 || r.Rate < 145 || r.Rate > 175 {
			t.Errorf("%s", &r)
		}
		if w.broken == 0 || w.broken >= o.Step {
			t.Errorf("the objective was broken for %s, want less than the step of %s", w.broken, o.Step)
		}
		if r.Restored > 2 || r.Fell == nil || *r.Fell > 5 {
			t.Errorf("weights restored after %gs, load fell after %v", r.Restored, r.Fell)
		}
		if first := r.Steps[0]; first.Rate < 95 || first.Rate > 105 || first.Others < 190 || first.Neighbours < first.Others {
			t.Errorf("first step: got %+v", first)
		}
		w.checkRestored(t)
	})
}

// TestTheClockIsSetDuringAMeasurement checks that the length of a measurement is not a difference of wall clock times.
func TestTheClockIsSetDuringAMeasurement(t *testing.T) {
	now := time.Now()
	r := &run{began: now, result: Result{Verdict: Aborted, Begun: now.Add(-time.Hour).UTC()}} // as if the clock had been set forward since
	r.conclude()
	if got := r.result.Seconds; got < 0 || got > 60 {
		t.Errorf("got %g s, want the time since the begin", got)
	}
}

// TestRingingIsNotLate checks that calls that ring for longer than the objective do not count as late.
func TestRingingIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(160)...)
		find(w, "a").ringing = 200
		r, err := Run(t.Context(), w.options())
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != Within || r.Low > 160 || r.High < 160 {
			t.Errorf("%s", &r)
		}
		w.checkRestored(t)
	})
}

// TestLateShareWhileCallsRing checks that the share of late responses is that of all responses. At
// the begin of the traffic, no call has ended yet.
func TestLateShareWhileCallsRing(t *testing.T) {
	var s client.Span
	s.Latencies.Add(latency.Bucket(10_000), 995)
	s.Latencies.Add(latency.Bucket(900_000), 5)
	o := Objective{Success: 0.99, Latency: 100 * time.Millisecond, Quantile: 0.99}
	got := o.tally(s, 0)
	if budget := o.budget(got); o.isBroken(got) || budget < 0.49 || budget > 0.51 {
		t.Errorf("5 of 1000 responses are late: got a budget of %g, broken %t; want 0.5, false", budget, o.isBroken(got))
	}
}

// TestResetInTheFirstStep restarts one of two directors in the step at the present rate. The other
// one has counted for long. The step must be repeated, because its sums mean nothing.
func TestResetInTheFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 2, three(160)...)
		w.directors[1].before = 10_000_000
		begin, reset := time.Now(), false
		w.on = func(w *world) {
			if reset || w.at.Sub(begin) < 2*time.Second {
				return
			}
			reset = true
			w.reset()
		}
		r, err := Run(t.Context(), w.options())
		if err != nil {
			t.Fatal(err)
		}
		if first := r.Steps[0]; !reset || first.Rate < 95 || first.Rate > 105 || r.Verdict != Within || r.Low > 160 || r.High < 160 {
			t.Errorf("reset %t, the first step at %g/s: %s", reset, first.Rate, &r)
		}
		w.checkRestored(t)
	})
}

// TestResetInALaterStep restarts the director while load is shifted. The step must be repeated with the
// same weight, because its rates mean nothing, but not for ever.
func TestResetInALaterStep(t *testing.T) {
	for name, c := range map[string]struct {
		resets  int
		verdict Verdict
		why     string
	}{
		"once":            {1, Within, ""},
		"again and again": {100, AtLeast, "could not be measured: a director reset its counters"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(300, 1, three(160)...)
				begin, resets := time.Now(), 0
				w.on = func(w *world) {
					if resets == c.resets || w.at.Sub(begin) < 15*time.Second+time.Duration(resets)*3*time.Second {
						return
					}
					resets++
					w.reset()
				}
				r, err := Run(t.Context(), w.options())
				if err != nil || r.Verdict != c.verdict || !strings.Contains(r.Why, c.why) || len(r.Steps) < 2 || !strings.Contains(r.Steps[1].line(), "does not count: a director") {
					t.Errorf("%s, %v; steps: %+v", &r, err, r.Steps)
				}
				set := w.directors[0].set
				for i := 1; i < len(set); i++ {
					if set[i]["a"] > 1.3*set[i-1]["a"] {
						t.Errorf("the weight rose from %g to %g in one step", set[i-1]["a"], set[i]["a"])
					}
				}
				w.checkRestored(t)
			})
		})
	}
}

// TestSaysAtLeast checks the result if the traffic is too low to reach the capacity. No step may
// exceed the allowed share.
func TestSaysAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(2000)...)
		o := w.options()
		o.Share = 0.6
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != AtLeast || r.Rate < 160 || r.Rate > 185 || r.High != 0 || !strings.Contains(r.String(), "at least") {
			t.Errorf("%s", &r)
		}
		for _, s := range r.Steps {
			if share := s.Rate / (s.Rate + s.Others); share > 0.61 {
				t.Errorf("got a share of %g of the traffic, want at most 0.6", share)
			}
		}
		if w.broken > 0 {
			t.Errorf("the objective was broken for %s, want 0", w.broken)
		}
		w.checkRestored(t)
	})
}

// TestFaultAborts checks that redline sheds the load of a stopped instance within 2 s, reports no
// capacity, and restores the weights.
func TestFaultAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 2, three(500)...)
		var stopped, gated time.Time
		begin := time.Now()
		w.on = func(w *world) {
			if w.at.Sub(begin) > 25*time.Second && stopped.IsZero() {
				find(w, "a").stopped, stopped = true, w.at
			}
			if !stopped.IsZero() && gated.IsZero() && w.shares()["a"] == 0 {
				gated = w.at
			}
		}
		r, err := Run(t.Context(), w.options())
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != Aborted || r.Rate != 0 || !strings.Contains(r.Why, "fault") {
			t.Errorf("%s", &r)
		}
		if took := gated.Sub(stopped); gated.IsZero() || took > 3500*time.Millisecond {
			t.Errorf("the instance got new requests for %s after it stopped", took)
		}
		if r.Restored > 2 || r.Fell != nil {
			t.Errorf("weights restored after %gs, load fell after %v, although the instance does not answer", r.Restored, r.Fell)
		}
		w.checkRestored(t)
	})
}

// TestSlowInstanceHasNoCapacity checks that a delay that remains after the load has fallen gives no
// capacity.
func TestSlowInstanceHasNoCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(500)...)
		begin := time.Now()
		w.on = func(w *world) {
			if w.at.Sub(begin) > 30*time.Second {
				find(w, "a").base = 300 * time.Millisecond
			}
		}
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != Aborted || !strings.Contains(r.Why, "fault") {
			t.Errorf("%s, %v", &r, err)
		}
		w.checkRestored(t)
	})
}

// TestBelow checks that no load is shifted if the objective is already broken.
func TestBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(90)...)
		time.Sleep(10 * time.Second)
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != Below || len(r.Steps) != 1 {
			t.Errorf("%s, %v", &r, err)
		}
		w.checkRestored(t)
	})
}

// TestNotIdentifiable checks the verdict if steps would take too long. The cause is a long holding
// time, or a low number of transactions.
func TestNotIdentifiable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(500)...)
		o := w.options()
		o.Holding = 2 * time.Minute
		r, err := Run(t.Context(), o)
		if err != nil || r.Verdict != NotIdentifiable || !strings.Contains(r.Why, "holding time") {
			t.Errorf("%s, %v", &r, err)
		}
		w.rate = 3
		o = w.options()
		o.MaxStep = time.Minute
		r, err = Run(t.Context(), o)
		if err != nil || r.Verdict != NotIdentifiable || !strings.Contains(r.Why, "too few") {
			t.Errorf("%s, %v", &r, err)
		}
		w.checkRestored(t)
	})
}

// TestStepsLastThreeHoldingTimes checks that no complete step is shorter than three holding times.
func TestStepsLastThreeHoldingTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(120)...)
		o := w.options()
		o.Holding = 20 * time.Second
		r, err := Run(t.Context(), o)
		if err != nil || r.Verdict != Within {
			t.Fatalf("%s, %v", &r, err)
		}
		for _, s := range r.Steps {
			if !s.Stopped && s.Seconds < 60 {
				t.Errorf("got a step of %g s, want at least 60 s", s.Seconds)
			}
		}
	})
}

// TestStopsBeforeTheCPUIsUsedUp checks that the CPU limit ends a measurement before the objective
// breaks.
func TestStopsBeforeTheCPUIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(160)...)
		o := w.options()
		rate := 0.0
		last, at := 0.0, time.Now()
		w.on = func(w *world) {
			if since := w.at.Sub(at); since >= time.Second {
				a := find(w, "a")
				rate, last, at = (a.answered-last)/since.Seconds(), a.answered, w.at
			}
		}
		o.CPULimit = 1
		o.CPU = func(_, _ time.Time) (float64, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return rate / 150, true
		}
		r, err := Run(t.Context(), o)
		if err != nil || r.Verdict != AtLeast || !strings.Contains(r.Why, "CPUs") || r.Rate < 120 || r.Rate > 150 || w.broken > 0 {
			t.Errorf("got %s, error %v; the objective was broken for %s", &r, err, w.broken)
		}
		w.checkRestored(t)
	})
}

// TestShortHotStepDoesNotCount stops the second step of each measurement by CPU use. Its few Poisson
// arrivals must not raise the lower bound above the rate at which the CPU is used up.
func TestShortHotStepDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const measurements, limit = 200, 24 // limit: rate that uses up the CPU
		above := 0
		for seed := range uint64(measurements) {
			w := newWorld(40, 1, three(1000)[:2]...)
			w.random = rand.New(rand.NewPCG(seed, 0))
			o := w.options()
			o.Precision, o.Increase, o.CPULimit = 0.5, 5, 1
			o.CPU = func(_, _ time.Time) (float64, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				shares := w.shares()
				return w.rate * shares["a"] / (shares["a"] + shares["b"]) / limit, true
			}
			r, err := Run(t.Context(), o)
			if err != nil || r.Verdict != AtLeast || r.Low <= 0 || len(r.Steps) < 2 {
				t.Errorf("seed %d: %s, %v", seed, &r, err)
			}
			if r.Low > limit {
				above++
			}
		}
		if above > measurements/20 {
			t.Errorf("%d of %d lower bounds are above %d/s, want at most 5%%", above, measurements, limit)
		}
	})
}

// TestHotAtThePresentRate checks that the first step is complete although the CPU is nearly used up,
// and that nothing is shifted then.
func TestHotAtThePresentRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(160)...)
		o := w.options()
		o.CPULimit = 1
		o.CPU = func(_, _ time.Time) (float64, bool) { return 0.97, true }
		r, err := Run(t.Context(), o)
		if err != nil || r.Verdict != AtLeast || !strings.Contains(r.Why, "CPUs") || r.Low < 95 || r.Low > 105 || len(r.Steps) != 1 {
			t.Fatalf("%s, %v", &r, err)
		}
		if first := r.Steps[0]; first.Ended < o.Objective.enough() || first.Stopped || first.Invalid != "" || len(w.directors[0].set) > 0 {
			t.Errorf("first step: got %+v; weights set: %v", first, w.directors[0].set)
		}
		w.checkRestored(t)
	})
}

// TestInterruptRestores checks that Run restores the weights when the context ends. The instance must keep
// getting new work, because the objective was met.
func TestInterruptRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 2, three(500)...)
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(30*time.Second, func() { cancel(why) })
		r, err := Run(ctx, w.options())
		if !errors.Is(err, why) || r.Verdict != Aborted || r.Restored > 2 || r.Fell != nil || len(r.Steps) < 2 || w.directors[0].gated() {
			t.Errorf("%s, %v; restored after %gs, load fell after %v, weights set: %v", &r, err, r.Restored, r.Fell, w.directors[0].set)
		}
		w.checkRestored(t)
	})
}

// TestInterruptAfterAnOverload checks that an interrupt before the instance has met the objective again
// gives no capacity: a fault may have broken the objective.
func TestInterruptAfterAnOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(160)...)
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		w.on = func(w *world) {
			if w.shares()["a"] == 0 {
				cancel(why)
			}
		}
		r, err := Run(ctx, w.options())
		if !errors.Is(err, why) || r.Verdict != Aborted || r.Rate != 0 {
			t.Errorf("%s, %v", &r, err)
		}
		w.checkRestored(t)
	})
}

// TestPartialLeaseIsReleased checks that a measurement does not begin if one director
// refuses the lease. No other director may keep the lease.
func TestPartialLeaseIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 3, three(500)...)
		w.directors[1].refuse = true
		if r, err := Run(t.Context(), w.options()); err == nil || !strings.Contains(err.Error(), "director 1") {
			t.Errorf("%s, %v", &r, err)
		}
		w.checkRestored(t)
	})
}

// TestLostLeaseAborts checks that the measurement ends at all directors if one of them no longer
// renews the lease.
func TestLostLeaseAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 2, three(500)...)
		begin := time.Now()
		w.on = func(w *world) {
			if d := w.directors[1]; w.at.Sub(begin) > 20*time.Second && !d.refuse {
				d.refuse = true
				d.until = time.Now()
			}
		}
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != Aborted || !strings.Contains(r.Why, "lease") && !strings.Contains(r.Why, "digests") {
			t.Errorf("%s, %v", &r, err)
		}
		if d := w.directors[0]; d.lease.Holder != "" {
			t.Error("the other director still holds the lease")
		}
	})
}

// TestFewHealthyOthersAbort checks that the measurement ends if too few other instances are
// healthy, before or after load is shifted. The healthy one must not get all of the load.
func TestFewHealthyOthersAbort(t *testing.T) {
	for after, shifted := range map[time.Duration]bool{5 * time.Second: false, 20 * time.Second: true} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(300, 1, three(500)...)
				w.loseAfter(after, "b")
				o := w.options()
				o.Min = 2
				r, err := Run(t.Context(), o)
				if err != nil || r.Verdict != Aborted || !strings.Contains(r.Why, "1 other healthy") {
					t.Errorf("%s, %v", &r, err)
				}
				set := w.directors[0].set
				if len(set) > 0 != shifted || w.directors[0].gated() {
					t.Errorf("weights set: got %v, want some only after %s, and none of 0", set, 20*time.Second)
				}
				w.checkRestored(t)
			})
		})
	}
}

// TestFaultAtThePresentRateShiftsNothing checks that an instance that goes away before load is shifted
// keeps its weight.
func TestFaultAtThePresentRateShiftsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(500)...)
		w.loseAfter(5*time.Second, "a")
		r, err := Run(t.Context(), w.options())
		if set := w.directors[0].set; err != nil || r.Verdict != Aborted || !strings.Contains(r.Why, "its health is away") || len(set) > 0 {
			t.Errorf("%s, %v; weights set: %v", &r, err, set)
		}
		w.checkRestored(t)
	})
}

// TestOnlyInstanceKeepsItsWork checks that the measured instance still gets new work when the only
// other instance goes away. Nothing else could take that work.
func TestOnlyInstanceKeepsItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(200, 1, three(500)[:2]...)
		w.loseAfter(20*time.Second, "b")
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != Aborted || !strings.Contains(r.Why, "0 other healthy") {
			t.Errorf("%s, %v", &r, err)
		}
		set := w.directors[0].set
		if len(set) == 0 || w.directors[0].gated() {
			t.Errorf("weights set: got %v, want some, and none of 0", set)
		}
		w.checkRestored(t)
	})
}

// shedding stops instance a after a time, so that redline sheds its load. It calls act while the instance has
// had weight 0 for longer than patience. shed returns how long the instance had weight 0.
func (w *world) shedding(after, patience time.Duration, act func()) (shed func() time.Duration) {
	begin := time.Now()
	var first, last time.Time // of the time with weight 0
	w.on = func(w *world) {
		find(w, "a").stopped = w.at.Sub(begin) > after
		if w.shares()["a"] > 0 {
			return
		}
		if first.IsZero() {
			first = w.at
		}
		if last = w.at; last.Sub(first) > patience {
			act()
		}
	}
	return func() time.Duration { return last.Sub(first) }
}

// TestShedEndsWithoutOthers checks that an instance whose load is shed gets new work again when the
// only other instance goes away, and that the reason names that.
func TestShedEndsWithoutOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(200, 1, three(500)[:2]...)
		shed := w.shedding(20*time.Second, 2*time.Second, func() { find(w, "b").health = "away" })
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != Aborted || !strings.Contains(r.Why, "0 other healthy") {
			t.Errorf("%s, %v", &r, err)
		}
		if took := shed(); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("the instance got no new work for %s, want until the other one went away after 2s", took)
		}
		w.checkRestored(t)
	})
}

// TestShedEndsWithTheContext checks that an instance whose load does not fall gets new work again when the
// context ends. The lease must be gone then, because it prevents starts of instances.
func TestShedEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 2, three(500)...)
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		shed := w.shedding(25*time.Second, time.Second, func() { cancel(why) })
		r, err := Run(ctx, w.options())
		if !errors.Is(err, why) || r.Verdict != Aborted || r.Rate != 0 || r.Fell != nil {
			t.Errorf("%s, %v; load fell after %v", &r, err, r.Fell)
		}
		if took := shed(); took < time.Second || took > 2*time.Second {
			t.Errorf("the instance got no new work for %s, want until the context ended after 1s", took)
		}
		w.checkRestored(t)
	})
}

// TestDoesNotBegin checks what redline refuses before it takes the lease.
func TestDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(*world, *Options){
			"unknown type":           func(_ *world, o *Options) { o.Type = "tea" },
			"unknown type beside":    func(_ *world, o *Options) { o.Beside = []string{"tea"} },
			"unknown instance":       func(_ *world, o *Options) { o.Instance = "z" },
			"draining instance":      func(w *world, _ *Options) { find(w, "a").state = vitrine.Draining },
			"instance away":          func(w *world, _ *Options) { find(w, "a").health = "away" },
			"few others":             func(_ *world, o *Options) { o.Min = 3 },
			"no minimum":             func(_ *world, o *Options) { o.Min = 0 },
			"no director":            func(_ *world, o *Options) { o.Directors, o.Names = nil, nil },
			"a share of all traffic": func(_ *world, o *Options) { o.Share = 1 },
			"perfect success":        func(_ *world, o *Options) { o.Objective.Success = 1 },
			"no latency":             func(_ *world, o *Options) { o.Objective.Latency = 0 },
			"percentile 100":         func(_ *world, o *Options) { o.Objective.Quantile = 1 },
			"no precision":           func(_ *world, o *Options) { o.Precision = 0 },
			"short steps":            func(_ *world, o *Options) { o.Step = time.Millisecond },
			"another holder": func(w *world, _ *Options) {
				w.directors[0].lease.Token, w.directors[0].lease.Holder, w.directors[0].until = 5, "x", time.Now().Add(time.Hour)
				w.directors[1].lease, w.directors[1].until = w.directors[0].lease, w.directors[0].until
			},
			"directors with different tables": func(w *world, _ *Options) {
				w.directors[1].lease.Holder, w.directors[1].until = "x", time.Now().Add(time.Hour)
			},
		} {
			w := newWorld(300, 2, three(500)...)
			o := w.options()
			change(w, &o)
			if r, err := Run(t.Context(), o); err == nil {
				t.Errorf("%s: %s", name, &r)
			}
			if l := w.directors[0].lease; l.Token != 0 && l.Holder != "x" {
				t.Errorf("%s: redline took the lease", name)
			}
		}
	})
}

// TestEnough checks the numbers of transactions in docs/redline.md.
func TestEnough(t *testing.T) {
	for success, want := range map[float64]float64{0.95: 500, 0.99: 500, 0.995: 1000, 0.999: 5000} {
		if got := (Objective{Success: success, Quantile: 0.99}).enough(); math.Round(got) != want {
			t.Errorf("success %g and p99: got %g transactions, want %g", success, got, want)
		}
	}
}

// TestDryRunChangesNothing checks that a dry run returns the planned rates and takes no lease.
func TestDryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(500)...)
		o := w.options()
		o.DryRun = true
		r, err := Run(t.Context(), o)
		if err != nil || r.Verdict != Planned || len(r.Rates) < 10 || r.Rates[0] < 95 || w.directors[0].lease.Token != 0 {
			t.Errorf("got plan %s, error %v, lease token %d", &r, err, w.directors[0].lease.Token)
		}
	})
}
