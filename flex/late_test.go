package flex

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/unit"
)

// A lateRunner lists its units late.
type lateRunner struct {
	*fakeRunner
	late time.Duration
}

func (r lateRunner) Units(ctx context.Context) ([]unit.Unit, error) {
	time.Sleep(r.late)
	return r.fakeRunner.Units(ctx)
}

// A lateDirector counts late.
type lateDirector struct {
	*fakeDirector
	late time.Duration
}

func (d lateDirector) Instances(ctx context.Context) ([]client.Instance, error) {
	time.Sleep(d.late)
	return d.fakeDirector.Instances(ctx)
}

// TestALateAnswerIsNoBurst checks that a steady rate does not seem to jump when the store, the holder
// or a director begins to answer late.
func TestALateAnswerIsNoBurst(t *testing.T) {
	const late = 1500 * time.Millisecond
	for name, delay := range map[string]func(*rig){
		"store": func(r *rig) {
			r.Store = func(ctx context.Context, _ string) (StoreHealth, error) {
				<-ctx.Done()
				return StoreHealth{}, ctx.Err()
			}
		},
		"holder":   func(r *rig) { r.Runner = lateRunner{r.runner, late} },
		"director": func(r *rig) { r.Directors = []Director{lateDirector{r.director, late}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := newStoreRig(t, memberless, "redis")
				r.director.rate = 30
				for range 30 {
					r.step(t.Context())
					time.Sleep(period)
				}
				starts := len(r.runner.starts)
				if n := r.inState(decide.Active); n != 2 {
					t.Fatalf("got %d instances for 30/s at 20/s each, want 2: %+v", n, r.Events())
				}
				delay(r)
				r.run(time.Minute)
				if n := len(r.runner.starts) - starts; n > 0 {
					t.Errorf("got %d more starts under a steady rate: %+v", n, r.Events())
				}
			})
		})
	}
}

// TestStatusDuringTheFirstStep checks that a restarted orchestrator tells of its instances, and can drain
// them, while its first step waits for a director.
func TestStatusDuringTheFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.run(10 * time.Second)
		r.restart()
		r.Directors = []Director{lateDirector{r.director, period / 2}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		if s := r.Status(); len(s.Types) != 1 || len(s.Instances) != 1 {
			t.Errorf("got %+v, want one type and one instance", s)
		}
		if err := r.Drain("registration-1"); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestStepsAreAPeriodApart checks that a long step does not make two of the next ones follow closely.
func TestStepsAreAPeriodApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		var at []time.Time
		r.Policy = func(v decide.View, _ *decide.Memory) []decide.Action {
			if at = append(at, v.Now); len(at) == 5 {
				time.Sleep(1900 * time.Millisecond)
			}
			return nil
		}
		r.run(20 * time.Second)
		for i := range at[1:] {
			if apart := at[i+1].Sub(at[i]); apart < period {
				t.Errorf("steps %d and %d are %v apart, want at least %v", i, i+1, apart, period)
			}
		}
	})
}

// TestLeaveAfterAMissingAnswer checks that all instances leave a director whose last answer is missing,
// as after a signal during the last step.
func TestLeaveAfterAMissingAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 50
		r.run(30 * time.Second)
		before := len(r.director.all)
		r.director.err = context.Canceled
		r.step(t.Context())
		r.director.err = nil
		delete(r.director.all, "registration-2") // its removal is answered with 404
		r.Leave(t.Context())
		if before != 3 || len(r.director.all) != 0 {
			t.Errorf("the director has %+v of %d instances, want none of 3", r.director.all, before)
		}
	})
}

// A mutedDirector registers instances, but its answer is lost.
type mutedDirector struct{ *fakeDirector }

func (d mutedDirector) Put(ctx context.Context, in vitrine.Instance) (client.Instance, error) {
	_, _ = d.fakeDirector.Put(ctx, in) // the answer is lost
	return client.Instance{}, context.Canceled
}

// TestLeaveAfterALostRegistration checks that an instance leaves a director whose answer to its
// registration was lost, as after a signal at that moment.
func TestLeaveAfterALostRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.Directors = []Director{mutedDirector{r.director}}
		for i := 0; i < 10 && len(r.director.all) == 0; i++ {
			time.Sleep(period)
			r.step(t.Context())
		}
		before := len(r.director.all)
		r.Leave(t.Context())
		if before != 1 || len(r.director.all) != 0 {
			t.Errorf("the director has %+v of %d instances, want none of 1", r.director.all, before)
		}
	})
}

// TestLeaveSparesForeignInstances checks that another orchestrator's instance of the same name stays
// in a director that has never answered.
func TestLeaveSparesForeignInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.err = errors.New("no route to host")
		r.run(10 * time.Second)
		other := r.meetForeign()
		r.Leave(t.Context())
		if r.director.all[other.Name] == nil {
			t.Error("the instance of another orchestrator was removed")
		}
	})
}

// A hungDirector does not answer to removals.
type hungDirector struct{ *fakeDirector }

func (hungDirector) Remove(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestAHungDirectorDelaysLeaveOnce lets a director hang while several instances leave it. Together they
// must not take longer than one time limit.
func TestAHungDirectorDelaysLeaveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 50
		r.run(30 * time.Second)
		r.Directors = []Director{hungDirector{r.director}}
		began := time.Now()
		r.Leave(t.Context())
		if took := time.Since(began); took != callLimit {
			t.Errorf("leaving took %v, want %v", took, callLimit)
		}
	})
}

// TestWarmIsPartOfAStart checks that the expected time of a start has the same end as the times that are
// measured later: the instance is active.
func TestWarmIsPartOfAStart(t *testing.T) {
	for more, want := range map[string]time.Duration{
		"    boot: 3s\n":                3 * time.Second,
		"    warm: 30s\n    boot: 3s\n": 33 * time.Second,
		"    warm: 30s\n":               34 * time.Second,
	} {
		types, err := Types(newRig(t, more).File, func(_ *config.Type, f config.Flavor) (Capacity, error) {
			return Capacity{Rate: f.Rate, Boot: 4 * time.Second}, nil
		})
		if err != nil || types[0].Boot != want {
			t.Errorf("%q: got %+v, %v, want a start of %v", more, types, err, want)
		}
	}
	if got, want := newRig(t, "    warm: 30s\n").Types[0].Boot, decide.DefaultBoot+30*time.Second; got != want {
		t.Errorf("without a profile: got a start of %v, want %v", got, want)
	}
}
