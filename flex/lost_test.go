package flex

import (
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/flex/decide"
)

// TestALostInstanceIsReplaced lets the director find the only instance away, whose members go on running. While its
// transactions succeed, as when the director is in panic, it must not count as lost. A restart of the orchestrator
// must not count a lost instance as capacity again.
func TestALostInstanceIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 10
		r.run(10 * time.Second)
		r.director.all["registration-1"].Health, r.director.all["registration-1"].Reason = "away", "no answer"
		r.run(30 * time.Second)
		r.director.rate = 0
		r.run(12 * time.Second)
		if n := len(r.runner.starts); n != 1 || r.has(EventAway, "") {
			t.Errorf("got %d starts, want 1: transactions have succeeded in the last 12 s: %+v", n, r.Events())
		}
		r.run(22 * time.Second)
		if n := r.inState(decide.Active); n != 2 || !r.has(EventAway, "find it away: no answer") || r.Status().Types[0].Capacity != 20 {
			t.Errorf("got %d active instances and %+v, want a second one, which carries 20/s: %+v", n, r.Status().Types[0], r.Events())
		}
		r.restart()
		r.run(3 * time.Second)
		if n := r.Status().Types[0].Capacity; n != 20 || len(r.runner.starts) != 2 {
			t.Errorf("after a restart: got a capacity of %g/s and %d starts, want 20 and 2", n, len(r.runner.starts))
		}
		r.run(3 * time.Minute)
		if r.inState(decide.Active) != 1 || len(r.runner.units) != 1 || r.director.all["registration-2"] == nil || r.has(EventBack, "up again") {
			t.Errorf("got %d units, want the second one alone: %+v", len(r.runner.units), r.Events())
		}
	})
}

// TestOneDirectorAloneLosesNoInstance lets one of two directors find the instance away: that director may be cut off.
func TestOneDirectorAloneLosesNoInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.addDirector()
		r.run(10 * time.Second)
		r.second.all["registration-1"].Health = "away"
		r.run(2 * time.Minute)
		if n := len(r.runner.starts); n != 1 || r.has(EventAway, "") {
			t.Errorf("got %d starts, want 1: %+v", n, r.Events())
		}
	})
}

// TestADrainWaitsForAHealthyInstance drains the healthy one of two instances.
func TestADrainWaitsForAHealthyInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    min: 2\n")
		r.run(10 * time.Second)
		r.director.all["registration-2"].Health = "away"
		r.run(2 * time.Second)
		if err := r.Drain("registration-1"); err != nil {
			t.Fatal(err)
		}
		r.run(time.Second)
		if got := r.director.all["registration-1"].State; got != vitrine.Active {
			t.Errorf("it is %s although the other one is away", got)
		}
		r.run(30 * time.Second)
		if r.instances["registration-1"] != nil || r.director.all["registration-3"] == nil {
			t.Errorf("the director has %+v, want a replacement instead of registration-1: %+v", r.director.all, r.Events())
		}
	})
}
