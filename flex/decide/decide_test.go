package decide_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/flex/decide"
)

func TestABurstScalesInItsFirstSecond(t *testing.T) {
	w := newWorld(t, 5*time.Second, burst(100, 500, 100), simple(1, 50, 50))
	w.run(99)
	before := w.count("register", serving...)
	w.run(1)
	if n := w.count("register", serving...); before > 3 || n < 10 {
		t.Errorf("got %d instances before the burst, %d in its first second, of 50/s each", before, n)
	}
}

func TestDrainsOneAtATimeAfterTheStableTime(t *testing.T) {
	w := newWorld(t, 5*time.Second, func(_ string, s int) float64 {
		if s < 100 {
			return 1000
		}
		return 100
	}, simple(2, 50, 100))
	w.run(158)
	if n := w.drained["register"]; n > 0 {
		t.Errorf("got %d drains within 60 s after the load fell, want 0", n)
	}
	w.run(300)
	if n := w.count("register", serving...); n != 2 {
		t.Errorf("got %d instances for 100/s of 100/s each, want the minimum of 2", n)
	}
}

// TestDrainsArePaced lets the load fall to a tenth. While an instance drains, the next drain must wait for the
// stable time, and otherwise for a sixth of it.
func TestDrainsArePaced(t *testing.T) {
	for drain, pause := range map[time.Duration]time.Duration{5 * time.Second: 10 * time.Second, 5 * time.Minute: time.Minute} {
		w := newWorld(t, 5*time.Second, func(_ string, s int) float64 {
			if s < 100 {
				return 1000
			}
			return 100
		}, simple(2, 50, 100))
		w.drain = drain
		n, last := 0, w.now
		for range 700 {
			w.step()
			if w.drained["register"] == n {
				continue
			}
			if passed := w.now.Sub(last); n > 0 && passed < pause {
				t.Errorf("with drains of %s, drain %d began %s after the one before, want at least %s", drain, n+1, passed, pause)
			}
			n, last = w.drained["register"], w.now
		}
		if n < 8 {
			t.Errorf("with drains of %s, got %d drains, want at least 8 from 10 instances to the minimum of 2", drain, n)
		}
	}
}

func TestTheVictimHasTheFewestTransactionsInFlight(t *testing.T) {
	w := newWorld(t, time.Second, burst(500, 50, 50), simple(1, 50, 100))
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			v.Instances[i].InFlight = 10 + i
		}
		if len(v.Instances) > 3 {
			v.Instances[3].InFlight = 2
		}
	}
	w.run(40)
	want := w.instances[3].Name
	for w.drained["register"] == 0 && w.second < 300 {
		w.step()
	}
	for _, a := range w.log {
		if a.Kind == decide.Drain {
			if a.Instance != want {
				t.Errorf("drained %s, want %s with the fewest open transactions", a.Instance, want)
			}
			return
		}
	}
	t.Error("no instance was drained")
}

// TestTheVictimHasTheFewestDialogs drains a type with open calls, which the drain waits for.
func TestTheVictimHasTheFewestDialogs(t *testing.T) {
	w := newWorld(t, time.Second, burst(500, 50, 50), simple(1, 50, 100))
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			in := &v.Instances[i]
			if in.InFlight, in.Dialogs = 1, 300; in.Name == "i-4" {
				in.InFlight, in.Dialogs = 2, 10
			}
		}
	}
	for w.drained["register"] == 0 && w.second < 300 {
		w.step()
	}
	if last := w.log[len(w.log)-1]; last.Kind != decide.Drain || last.Instance != "i-4" {
		t.Errorf("the last action is %+v, want the drain of i-4 with the fewest dialogs", last)
	}
}

func TestADrainIsTakenBackWhenTheLoadReturns(t *testing.T) {
	w := newWorld(t, 60*time.Second, burst(500, 50, 100), simple(1, 50, 100))
	w.run(100)
	for w.drained["register"] == 0 && w.second < 400 {
		w.step()
	}
	w.load = constant(500)
	w.step()
	resumed := false
	for _, a := range w.log {
		resumed = resumed || a.Kind == decide.Resume
	}
	if !resumed {
		t.Error("the draining instance was not activated again")
	}
}

// TestAllNeededDrainsAreTakenBack has more draining instances than the load needs, and those must carry it.
func TestAllNeededDrainsAreTakenBack(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	z := simple(1, 20, 100)
	z.Headroom = 0.1
	v := decide.View{Now: now, Types: []decide.TypeView{{Type: z, Known: true, Rate: 850}}}
	for i := range 11 { // 7 active ones, and then 4 that drain, the newest last
		in := decide.Instance{Name: fmt.Sprintf("i-%d", i), Type: z.Name, Flavor: "s", State: decide.Active, Since: now.Add(-time.Hour), Known: true, Success: 1}
		if i >= 7 {
			in.State, in.Since = decide.Draining, now.Add(time.Duration(i-20)*time.Second)
		}
		v.Instances = append(v.Instances, in)
	}
	var m decide.Memory
	var got []string
	for _, a := range decide.Decide(v, &m) {
		if a.Kind != decide.Hold {
			got = append(got, a.Kind.String()+" "+a.Instance)
		}
	}
	if want := []string{"resume i-10", "resume i-9", "resume i-8"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNothingIsDrainedWhileTheObjectiveIsBroken(t *testing.T) {
	w := newWorld(t, time.Second, burst(500, 50, 50), simple(1, 50, 100))
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			v.Instances[i].P99 = time.Second
		}
	}
	w.run(600)
	if w.drained["register"] > 0 || w.holds[decide.CauseObjective] == 0 {
		t.Errorf("got %d drains, %d s of hold for the objective", w.drained["register"], w.holds[decide.CauseObjective])
	}
}

// TestUnknownCPUIsNotIdle checks the CPU guard if the CPU use of one busy instance is not known.
func TestUnknownCPUIsNotIdle(t *testing.T) {
	w := newWorld(t, time.Second, burst(250, 100, 50), simple(1, 50, 100))
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			v.Instances[i].CPU = 0.85
		}
		if len(v.Instances) > 0 {
			v.Instances[0].CPU, v.Instances[0].CPUKnown = 0, false
		}
	}
	w.run(600)
	if w.drained["register"] > 0 || w.holds[decide.CauseCPU] == 0 {
		t.Errorf("got %d drains, %d s of hold for the CPU", w.drained["register"], w.holds[decide.CauseCPU])
	}
}

func TestAWrongProfileIsNotBelieved(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(380), simple(1, 50, 100))
	w.noise = rand.New(rand.NewPCG(7, 7))
	w.truth = 0.7
	w.run(300)
	if n := w.count("register", serving...); n < 6 || n > 8 {
		t.Errorf("got %d instances for 380/s of 70/s each, want 6 to 8", n)
	}
	found := false
	for _, a := range w.log {
		found = found || a.Kind == decide.Start && a.Cause == decide.CauseProfile
	}
	if !found {
		t.Errorf("no start names the wrong profile as its reason: %+v", w.log)
	}
	before := len(w.log)
	w.run(3600)
	if len(w.log) > before {
		t.Errorf("got %d further actions, the first is %+v", len(w.log)-before, w.log[before])
	}
}

func TestAnOutageElsewhereStartsNothing(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(300), simple(4, 50, 100))
	w.run(100)
	before := len(w.log)
	w.load = constant(150)
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			v.Instances[i].Success = 0 // the store does not answer
		}
	}
	w.run(600)
	if len(w.log) > before || w.holds[decide.CauseElsewhere] == 0 {
		t.Errorf("got %d actions, %d s of hold for a problem elsewhere", len(w.log)-before, w.holds[decide.CauseElsewhere])
	}
}

// TestTrafficThatStaysStartsNothingInVain raises the load of known UEs, which stay at the two instances
// that know them. The instances for the new load get nothing, and more of them would not help.
func TestTrafficThatStaysStartsNothingInVain(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(150), simple(2, 50, 100))
	w.run(100)
	if n := w.count("register", serving...); n != 2 {
		t.Fatalf("got %d instances for 150/s, want 2", n)
	}
	w.load = constant(400)
	w.alter = func(v *decide.View) {
		for i := range v.Instances {
			in := &v.Instances[i]
			if in.Rate = 0; in.Name == "i-1" || in.Name == "i-2" {
				in.Rate, in.P99 = 200, time.Second
			}
		}
	}
	w.run(300)
	if n := w.count("register", serving...); n != 4 || w.holds[decide.CauseElsewhere] == 0 {
		t.Errorf("got %d instances, %d s of hold, want the 4 that carry 400/s and a hold that says why", n, w.holds[decide.CauseElsewhere])
	}
}

// While no store answers, a broken objective does not show a wrong profile, and a low rate not a low
// load. A higher rate still starts instances.
func TestAnOutageOfTheStoreDrainsNothing(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(300), simple(1, 50, 100))
	w.run(100)
	before, active := len(w.log), w.count("register", decide.Active)
	w.truth = 0.7 // the profile is wrong too
	w.alter = func(v *decide.View) { v.StoreAway = true }
	w.run(300)
	w.load = constant(10)
	w.run(600)
	if len(w.log) > before || w.holds[decide.CauseStore] != 900 {
		t.Errorf("got %d actions, %d s of hold, want 0 and 900", len(w.log)-before, w.holds[decide.CauseStore])
	}
	w.load = constant(600)
	w.run(60)
	if n := w.count("register", decide.Active); n <= active || w.drained["register"] > 0 {
		t.Errorf("got %d active instances for 600/s, want more than %d and no drain", n, active)
	}
}

func TestInstancesThatDieInALoopAreHeldBack(t *testing.T) {
	for name, die := range map[string]func(in *decide.Instance, active time.Duration) bool{
		"before they are ready": func(in *decide.Instance, _ time.Duration) bool { return in.State == decide.Starting },
		"when they are ready": func(in *decide.Instance, active time.Duration) bool {
			return in.State == decide.Active && active > 2*time.Second
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5*time.Second, constant(500), simple(1, 50, 100))
			w.die = die
			w.run(3600)
			if n := w.started["register"]; n > 40 {
				t.Errorf("got %d starts in an hour, want at most 40", n)
			}
			if w.holds[decide.CauseBackOff] < 3000 {
				t.Errorf("got %d s of back-off, want at least 3000 of 3600", w.holds[decide.CauseBackOff])
			}
			w.die = nil
			w.run(600)
			if n := w.count("register", decide.Active); n < 5 {
				t.Errorf("got %d of 5 instances ten minutes after the cause was removed", n)
			}
		})
	}
}

// TestOldDeathsHoldNothingBack lets all starts of a short burst fail. A burst an hour later must get all its
// instances at once.
func TestOldDeathsHoldNothingBack(t *testing.T) {
	w := newWorld(t, 5*time.Second, func(_ string, s int) float64 {
		switch {
		case s > 3700:
			return 2000
		case s > 100 && s <= 120:
			return 500
		}
		return 300
	}, simple(1, 50, 100))
	w.die = func(in *decide.Instance, _ time.Duration) bool {
		return in.State == decide.Starting && w.second > 100 && w.second < 200
	}
	w.run(200)
	if n := w.memory.Types["register"].Failures; n < 2 {
		t.Fatalf("got %d failures in a row, want 2 or more", n)
	}
	w.run(3500)
	before := w.started["register"]
	w.run(1)
	if n := w.started["register"] - before; n != 17 {
		t.Errorf("got %d starts in the first second of a burst from 300/s to 2000/s, want 17", n)
	}
}

func TestOneDeathIsReplacedAtOnce(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(500), simple(1, 50, 100))
	w.run(300)
	killed := w.instances[0].Name
	w.die = func(in *decide.Instance, _ time.Duration) bool { return in.Name == killed }
	before := w.started["register"]
	w.run(2)
	if w.started["register"] != before+1 {
		t.Errorf("got %d starts after a failure, want 1", w.started["register"]-before)
	}
}

// TestALowerCapacityStartsNothing restarts with a lower capacity in the file while the rate is not known.
// Only an instance that dies is replaced.
func TestALowerCapacityStartsNothing(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(250), simple(1, 50, 100))
	w.run(100)
	w.reload()
	w.types[0].Flavors[0].Capacity, w.types[0].Known = 50, false
	before := w.started["register"]
	w.run(10)
	if n := w.started["register"] - before; n > 0 {
		t.Errorf("got %d starts after the restart, want 0", n)
	}
	w.instances[0].State = decide.Failed
	w.run(1)
	if n := w.started["register"] - before; n != 1 {
		t.Errorf("got %d starts after a death, want 1", n)
	}
}

func TestALeasedTypeIsNotScaled(t *testing.T) {
	w := newWorld(t, 5*time.Second, func(_ string, s int) float64 { return []float64{500, 50, 2000}[min(2, s/200)] }, simple(1, 50, 100))
	w.run(150)
	before := len(w.log)
	w.types[0].Leased = true
	w.run(450)
	if len(w.log) > before || w.holds[decide.CauseLease] == 0 {
		t.Errorf("got %d actions while redline measures, %d s of hold", len(w.log)-before, w.holds[decide.CauseLease])
	}
}

func TestTypesShareALimitByWhatTheyNeed(t *testing.T) {
	a, b := simple(1, 100, 100), simple(1, 100, 100)
	a.Name, b.Name = "register", "invite"
	w := newWorld(t, 5*time.Second, func(name string, _ int) float64 {
		return map[string]float64{"register": 4000, "invite": 1000}[name]
	}, a, b)
	w.limits = decide.Limits{CPUs: 10}
	w.run(100)
	if x, y := w.count("register", serving...), w.count("invite", serving...); x != 8 || y != 2 {
		t.Errorf("got %d and %d instances of 10 for needs of 40 and 10, want 8 and 2", x, y)
	}
	if w.holds[decide.CauseTotal] == 0 {
		t.Error("the reached limit is not reported as a hold")
	}
}

func TestAMinimumComesBeforeOtherTypesLoad(t *testing.T) {
	a, b := simple(1, 100, 100), simple(3, 100, 100)
	a.Name, b.Name = "a", "b"
	w := newWorld(t, 5*time.Second, func(name string, _ int) float64 { return map[string]float64{"a": 4000}[name] }, a, b)
	w.limits = decide.Limits{Instances: 8}
	w.run(20)
	if x, y := w.count("a", serving...), w.count("b", serving...); x != 5 || y != 3 {
		t.Errorf("got %d and %d instances, want 5 and the minimum of 3", x, y)
	}
}

func TestStartsAreLimited(t *testing.T) {
	w := newWorld(t, 20*time.Second, constant(1000), simple(1, 100, 100))
	w.limits = decide.Limits{Starting: 2}
	for range 100 {
		w.step()
		if n := w.count("register", decide.Starting); n > 2 {
			t.Fatalf("%d instances start at the same time, want at most 2", n)
		}
	}
	if n := w.count("register", decide.Active); n < 8 {
		t.Errorf("got %d active instances after 100 s, want at least 8", n)
	}
}

func TestAJumpOfTheClockChangesNothing(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -time.Second, time.Hour, 400 * 24 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			w := newWorld(t, 5*time.Second, burst(500, 50, 100), simple(1, 50, 100))
			w.run(140)
			w.now = w.now.Add(jump)
			for i := range w.instances {
				w.instances[i].Since = w.instances[i].Since.Add(jump)
			}
			w.run(50)
			if w.drained["register"] > 0 && jump != -time.Second {
				t.Error("an instance was drained within the stable time after a clock jump")
			}
			w.run(300)
			if n := w.count("register", serving...); n != 1 {
				t.Errorf("got %d instances, want 1 after the drains continued", n)
			}
		})
	}
}

func TestALowerMaximumDrainsTheRest(t *testing.T) {
	for load, want := range map[float64]int{380: 5, 450: 6} { // 450/s are too much for the maximum
		w := newWorld(t, 5*time.Second, burst(900, load, 100), simple(1, 50, 100))
		w.run(300)
		if n := w.count("register", serving...); n != want {
			t.Errorf("got %d instances for %g/s of 100/s each, want %d with one spare", n, load, want)
		}
		w.types[0].Max = 4
		w.run(300)
		for range 20 { // none that drains is resumed
			if w.run(1); w.count("register", serving...) != 4 {
				t.Errorf("%g/s: got %d instances, want the maximum of 4", load, w.count("register", serving...))
			}
		}
	}
}

func TestDrainingCountsAgainstTheMaximum(t *testing.T) {
	w := newWorld(t, 5*time.Second, constant(5000), simple(1, 5, 100))
	w.run(200)
	if n := w.count("register", existing...); n != 5 || w.holds[decide.CauseMaximum] == 0 {
		t.Errorf("got %d instances, want the maximum of 5; %d s of hold", n, w.holds[decide.CauseMaximum])
	}
}

// TestLimitsHoldUnderRandomEvents checks that random events break no limit (world.check), and that
// the minimum is reached again soon after them.
func TestLimitsHoldUnderRandomEvents(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var types []decide.Type
		for i := range 1 + r.IntN(3) {
			z := simple(1+r.IntN(3), 0, 20+200*r.Float64())
			z.Name, z.Max = fmt.Sprintf("t%d", i), z.Min+r.IntN(20)
			z.Headroom = 0.3 * r.Float64()
			for k := range r.IntN(3) {
				z.Flavors = append(z.Flavors, decide.Flavor{Name: fmt.Sprintf("f%d", k), Capacity: 20 + 500*r.Float64(), CPUs: 0.5 + 3*r.Float64()})
			}
			types = append(types, z)
		}
		level := map[string]float64{}
		w := newWorld(t, time.Duration(1+r.IntN(40))*time.Second, func(name string, s int) float64 {
			if s%50 == 0 || level[name] == 0 {
				level[name] = 3000 * r.Float64() * r.Float64()
			}
			return level[name]
		}, types...)
		w.noise, w.restart = r, 11*int(seed%2) // not a divisor of the 50 s of a level
		w.limits = decide.Limits{Instances: 12 + r.IntN(30), CPUs: 20 + 50*r.Float64()}
		w.die = func(*decide.Instance, time.Duration) bool { return r.IntN(500) == 0 }
		w.alter = func(v *decide.View) {
			for i := range v.Types {
				v.Types[i].Known = r.IntN(50) > 0
			}
		}
		w.run(1500)
		w.die = nil
		w.run(400)
		for _, z := range types {
			if n := w.count(z.Name, serving...); n < z.Min {
				t.Errorf("seed %d: got %d instances of %s, want at least %d", seed, n, z.Name, z.Min)
			}
		}
	}
}

// TestAConstantLoadConverges checks that the actions end under a constant load with noise.
func TestAConstantLoadConverges(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		capacity := 5 + 200*r.Float64()
		rate := capacity * 12 * r.Float64()
		w := newWorld(t, time.Duration(1+r.IntN(60))*time.Second, constant(rate), simple(1, 100, capacity))
		w.types[0].Headroom = 0.1
		w.noise = r
		w.run(900)
		before := len(w.log)
		w.run(3600)
		if n := len(w.log) - before; n > 0 {
			t.Errorf("seed %d: %.4g/s of %.4g/s each: got %d actions within an hour, the first is %+v", seed, rate, capacity, n, w.log[before])
		}
	}
}

// sized returns a view of n instances of twenty types.
func sized(n int) decide.View {
	v := decide.View{Now: time.Unix(1_800_000_000, 0)}
	for i := range 20 {
		z := simple(1, 1000, 100)
		z.Name = fmt.Sprintf("type-%02d", i)
		v.Types = append(v.Types, decide.TypeView{Type: z, Known: true, Rate: float64(n) / 20 * 95})
	}
	for i := range n {
		v.Instances = append(v.Instances, decide.Instance{Name: fmt.Sprintf("i-%d", i), Type: v.Types[i%20].Name, Flavor: "s",
			State: decide.Active, Since: v.Now, Known: true, Rate: 95, InFlight: i % 7, Success: 1, CPU: 0.7, CPUKnown: true})
	}
	return v
}

func TestDecideAllocatesNothingPerInstance(t *testing.T) {
	allocations := func(n int) float64 {
		v := sized(n)
		var m decide.Memory
		return testing.AllocsPerRun(100, func() {
			v.Now = v.Now.Add(time.Second)
			decide.Decide(v, &m)
		})
	}
	if few, many := allocations(200), allocations(10_000); many > few+5 {
		t.Errorf("got %v allocations for 200 instances, %v for 10,000", few, many)
	}
}

func BenchmarkDecide(b *testing.B) {
	v := sized(10_000)
	var m decide.Memory
	b.ReportAllocs()
	for b.Loop() {
		v.Now = v.Now.Add(time.Second)
		decide.Decide(v, &m)
	}
}

// TestReasons checks that reasons say what was seen, what is wanted, and why.
func TestReasons(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	in := func(name string, s decide.State) decide.Instance {
		return decide.Instance{Name: name, Type: "register", Flavor: "s", State: s, Since: now.Add(-time.Hour), Known: true, Rate: 10, Success: 1}
	}
	for name, c := range map[string]struct {
		alter func(v *decide.View, z *decide.TypeView, m *decide.Memory)
		want  string
	}{
		"drained": {func(v *decide.View, _ *decide.TypeView, _ *decide.Memory) {
			v.Instances = append(v.Instances, in("b", decide.Drained))
		}, "stop: drained: its drain has ended: it is stopped"},
		"minimum, and one drains": {func(v *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Min, v.Instances = 2, append(v.Instances, in("b", decide.Draining))
		}, "resume: minimum: 1 instances run or start, below the minimum of 2: it has not gone yet, and a start takes 10s"},
		"rate": {func(_ *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Rate = 150
		}, "start: rate: 150/s arrive, 90/s can be carried with 10% headroom"},
		"rate without headroom": {func(_ *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Rate, z.Headroom = 150, 0
		}, "start: rate: 150/s arrive, 100/s can be carried"},
		"size that is not declared any more": {func(v *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Rate, v.Instances[0].Flavor, v.Instances[0].Was = 95, "gone", 50
		}, "start: rate: 95/s arrive, 45/s can be carried with 10% headroom"},
		"unknown rate": {func(_ *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Known = false
		}, "hold: metrics: the rate is not known, because a director does not answer or has just begun to: the type stays as it is; instances that die are replaced"},
		"lease": {func(_ *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Min, z.Leased = 2, true
		}, "hold: lease: redline measures an instance: nothing is started, although 1 instances run or start, below the minimum of 2"},
		"deaths": {func(v *decide.View, _ *decide.TypeView, m *decide.Memory) {
			v.Instances = nil
			m.Types = map[string]*decide.Track{"register": {Failures: 3, Failed: now, Died: "exit status 1"}}
		}, "hold: back-off: 10/s arrive, 0/s can be carried with 10% headroom; instances died 3 times in a row (exit status 1): the next start is in 20s"},
		"deaths, and one starts": {func(v *decide.View, z *decide.TypeView, m *decide.Memory) {
			z.Rate, v.Instances = 150, []decide.Instance{in("b", decide.Starting)}
			m.Types = map[string]*decide.Track{"register": {Failures: 3, Failed: now.Add(-time.Minute), Died: "exit status 1"}}
		}, "hold: back-off: 150/s arrive, 90/s can be carried with 10% headroom; instances died 3 times in a row (exit status 1): the next start is when the one on trial is active"},
		"the only instance is lost": {func(v *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Max, z.Rate, z.Refused, v.Instances[0].Away = 1, 15, 15, decide.AwayAfter
		}, "start: rate: 15/s arrive, 0/s can be carried with 10% headroom; active instances that carry nothing, because all directors find them away: 1; one on trial after 1 failures"},
		"one is lost, and one on trial": {func(v *decide.View, z *decide.TypeView, m *decide.Memory) {
			b := in("b", decide.Active)
			z.Rate, b.Since, v.Instances[0].Away = 150, now, time.Minute
			v.Instances = append(v.Instances, b)
			m.Types = map[string]*decide.Track{"register": {Failures: 1, Failed: now.Add(-20 * time.Second)}}
		}, "hold: back-off: 150/s arrive, 90/s can be carried with 10% headroom; active instances that carry nothing, because all directors find them away: 1; " +
			"no active instance shows that the directors reach the type: the next start is when one does"},
		"one is lost, and one serves": {func(v *decide.View, _ *decide.TypeView, _ *decide.Memory) {
			b := in("b", decide.Active)
			b.Away, v.Instances[0].Served = time.Minute, true
			v.Instances = append(v.Instances, b)
		}, "drain: away: all directors have found it away for 1m0s, and they reach others of its type"},
		"one is lost, and one was on trial": {func(v *decide.View, _ *decide.TypeView, m *decide.Memory) {
			b := in("b", decide.Active)
			b.Since, b.Away, v.Instances[0].Away = now.Add(-90*time.Second), 80*time.Second, 2*time.Minute
			v.Instances = append(v.Instances, b)
			m.Types = map[string]*decide.Track{"register": {Failures: 3, Failed: now.Add(-15 * time.Second)}}
		}, "drain: away: all directors have found it away for 1m20s, and another one was away before it became active"},
		"a store is slow": {func(v *decide.View, _ *decide.TypeView, _ *decide.Memory) {
			v.StoreSlow, v.Instances[0].P99 = true, time.Second
		}, "hold: store: the 99th percentile of a is 1s, above the objective of 100ms, and the store is past its threshold: that shows no wrong profile, so only the rate starts instances"},
		"one of three fails": {func(v *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Rate, v.Instances[0].Success, v.Instances[0].Failing = 30, 0, true
			v.Instances = append(v.Instances, in("b", decide.Active), in("c", decide.Active))
		}, "hold: elsewhere: the success ratio is 0.666667, below the objective of 0.99: a fails 100% of its transactions, and without such instances the objective is met: " +
			"more instances would not help; look at its log, or replace it with vitrine flex drain"},
		"a lost one drains": {func(v *decide.View, z *decide.TypeView, _ *decide.Memory) {
			b := in("b", decide.Draining)
			b.Away = time.Second
			z.Min, v.Instances = 2, append(v.Instances, b)
		}, "start: minimum: 1 instances run or start, below the minimum of 2"},
		"limit of starts": {func(v *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Min, v.Limits.Starting, v.Instances = 3, 1, append(v.Instances, in("b", decide.Starting))
		}, "hold: starts: 2 instances run or start, below the minimum of 3; 1 instances start already, and at most 1 may at the same time"},
		"limit of CPUs": {func(v *decide.View, z *decide.TypeView, _ *decide.Memory) {
			z.Min, v.Limits.CPUs = 3, 1.5
		}, "hold: total: 1 instances run or start, below the minimum of 3; the limits leave 0.5 of 1.5 CPUs, too little for an instance of size s or a smaller one"},
	} {
		z := simple(1, 5, 100)
		z.Headroom = 0.1
		v := decide.View{Now: now, Types: []decide.TypeView{{Type: z, Known: true, Rate: 10}}, Instances: []decide.Instance{in("a", decide.Active)}}
		var m decide.Memory
		c.alter(&v, &v.Types[0], &m)
		var got strings.Builder
		for _, a := range decide.Decide(v, &m) {
			fmt.Fprintf(&got, "%s: %s: %s\n", a.Kind, a.Cause, a.Reason)
		}
		if !strings.Contains(got.String(), c.want+"\n") {
			t.Errorf("%s: got\n%swant %s", name, &got, c.want)
		}
	}
}
