package simulate_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/simulate"
)

func register(headroom float64) simulate.Case {
	return simulate.Case{Boot: 5 * time.Second, Type: decide.Type{Name: "register", Min: 2, Max: 40, Headroom: headroom,
		Objective: decide.Objective{P99: 100 * time.Millisecond, Success: 0.999},
		Flavors:   []decide.Flavor{{Name: "s", Capacity: 100, CPUs: 1}}}}
}

func TestADayWithABurst(t *testing.T) {
	c := register(0.1)
	c.Load, _ = simulate.Shape("day", 2000)
	all, err := simulate.Compare(c, []string{"fixed", "hpa", "knative"})
	if err != nil {
		t.Fatal(err)
	}
	flex := all[0]
	if flex.Broken > 60 || flex.Undone > 0 || flex.Lost > flex.Arrived/10_000 {
		t.Errorf("%+v", flex)
	}
	for _, r := range all[1:] {
		if r.InstanceSeconds <= flex.InstanceSeconds {
			t.Errorf("%s used %.0f instance-seconds, flex %.0f", r.Scaler, r.InstanceSeconds, flex.InstanceSeconds)
		}
	}
}

func TestTheSameSeedGivesTheSameResult(t *testing.T) {
	c := register(0)
	c.Load = simulate.Random(7, 2000)
	for _, name := range []string{"fixed=9", "hpa=0.7", "knative=0.6"} {
		a, errA := simulate.Against(name, c)
		b, errB := simulate.Against(name, c)
		if errA != nil || errB != nil || a.Lost != b.Lost || a.InstanceSeconds != b.InstanceSeconds || a.Scaler != name {
			t.Errorf("two runs with the same seed differ: %+v and %+v", a, b)
		}
	}
}

// TestTheRulesOfHPA checks that the horizontal pod autoscaler doubles or adds 4 in 15 s, again and again.
// Before it scales down, it keeps the highest recommendation of the last 300 s.
func TestTheRulesOfHPA(t *testing.T) {
	c := register(0)
	c.Every, c.Spread = 1, -1
	c.Load = append(flat(60, 150), append(flat(120, 3000), flat(500, 150)...)...)
	r, err := simulate.Against("hpa", c)
	if err != nil {
		t.Fatal(err)
	}
	before, first := r.Curve[59].Exist, r.Curve[74].Exist
	if most := max(2*before, before+4); first > most || first <= before {
		t.Errorf("got %d instances before the burst, %d in its first 15 s, want more, but at most %d", before, first, most)
	}
	for _, second := range []int{74, 89} {
		has, next := r.Curve[second].Exist, r.Curve[second+15].Exist
		if want := max(2*has, has+4); next != want {
			t.Errorf("got %d instances %d s after the burst, and %d 15 s later, want %d", has, second-59, next, want)
		}
	}
	// The last recommendation of the burst is at most 15 s after its end.
	if held := r.Curve[180+280].Exist; held < r.Most {
		t.Errorf("got %d instances 280 s after the burst, want all %d", held, r.Most)
	}
	if late := r.Curve[len(r.Curve)-1].Exist; late > 4 {
		t.Errorf("got %d instances 500 s after the burst, want at most 4", late)
	}
}

// TestTheRulesOfKnative checks that the Knative pod autoscaler panics at twice the ready pods and
// does not scale down for 60 s.
func TestTheRulesOfKnative(t *testing.T) {
	c := register(0)
	c.Every, c.Spread = 1, -1
	c.Load = append(flat(100, 150), append(flat(20, 2000), flat(300, 150)...)...)
	r, err := simulate.Against("knative", c)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Curve[108].Exist; n < 25 {
		t.Errorf("got %d instances 8 s after a burst to 2000/s of 70/s each, want at least 25", n)
	}
	if n := r.Curve[120+40].Exist; n < r.Most {
		t.Errorf("got %d instances 40 s after the burst, want all %d in panic", n, r.Most)
	}
	if n := r.Curve[len(r.Curve)-1].Exist; n > 5 {
		t.Errorf("got %d instances 300 s after the burst, want at most 5", n)
	}
}

func flat(seconds int, rate float64) simulate.Load {
	l := make(simulate.Load, seconds)
	for i := range l {
		l[i] = rate
	}
	return l
}

func TestASweepCountsWhereOthersWin(t *testing.T) {
	all, err := simulate.Sweep(register(0), 5, 2000, []string{"fixed=40"})
	if err != nil {
		t.Fatal(err)
	}
	if f := all[1]; f.Loads != 5 || f.Fewer != 5 || f.Less != 0 || f.Both != 0 || f.Seconds != 5*3600 {
		t.Errorf("with 40 instances, all 5 loads must break the objective less and cost more: %+v", f)
	}
}

func TestUnknownScalersAreRefused(t *testing.T) {
	c := register(0)
	c.Load = flat(10, 100)
	for _, name := range []string{"", "hpa=x", "hpa=1.5", "fixed=-1", "fixed=", "other"} {
		if _, err := simulate.Against(name, c); err == nil {
			t.Errorf("Against accepted %q", name)
		}
	}
}

func TestACompressedDayHasTheSameBurst(t *testing.T) {
	for _, seconds := range []int{86400, 3600, 120} {
		l := simulate.Day(seconds, 150)
		noon := seconds / 2
		if base, top := l[noon], l.Peak(); len(l) != seconds || math.Abs(top-5*base) > 1e-9 {
			t.Errorf("load of %d s: got %d seconds, %.4g/s at noon, maximum %.4g/s", seconds, len(l), base, top)
		}
		if late := l[noon+min(3600, seconds)/3]; late > 50 { // the usual highest rate
			t.Errorf("load of %d s: got %.1f/s after the burst, want at most 50/s", seconds, late)
		}
	}
}

func TestALoadFile(t *testing.T) {
	l, err := simulate.ReadLoad(strings.NewReader("time,rate\n# a comment\n0,10\n2,20\n\n4, 0\n"))
	want := simulate.Load{10, 15, 20, 10}
	if err != nil || len(l) != len(want) {
		t.Fatalf("got %v, error %v, want %v", l, err, want)
	}
	for i := range want {
		if l[i] != want[i] {
			t.Fatalf("got %v, want %v", l, want)
		}
	}
	for _, bad := range []string{"", "0,1", "time,rate", "1,1\n2,2", "0,1\n0,1", "0,1\n2,-1", "0,1\n2,NaN", "0,1\n1e300,1", "0,1\nx", "0,1\n3,1e300"} {
		if l, err := simulate.ReadLoad(strings.NewReader(bad)); err == nil {
			t.Errorf("ReadLoad read %q as %v", bad, l)
		}
	}
}

func FuzzReadLoad(f *testing.F) {
	for _, seed := range []string{"time,rate\n0,10\n2,20\n", "0,1\n604800,2", "0,1\n0.5,2\n1.5,3", "0,1\n1e-300,2\n3,4"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := simulate.ReadLoad(strings.NewReader(string(text)))
		if err == nil && len(l) == 0 || len(l) > simulate.MaxSeconds {
			t.Fatalf("got a load of %d seconds", len(l))
		}
		for i, r := range l {
			if !(r >= 0) || r > 1e9 {
				t.Fatalf("second %d: got %g/s", i, r)
			}
		}
	})
}

// TestSweepHasASeed checks that a seed gives its own loads, and the same ones each time.
func TestSweepHasASeed(t *testing.T) {
	sweep := func(seed uint64) float64 {
		t.Helper()
		c := register(0)
		c.Seed = seed
		all, err := simulate.Sweep(c, 2, 2000, nil)
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Arrived
	}
	if one, other := sweep(0), sweep(1000); one == other || sweep(1000) != other {
		t.Errorf("%v transactions with seed 0, %v and %v with seed 1000", one, other, sweep(1000))
	}
}
