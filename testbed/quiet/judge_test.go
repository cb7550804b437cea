package quiet

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// steady returns n bursts that all take equally long.
func steady(n int, chain, wide float64) []pace {
	all := make([]pace, n)
	for i := range all {
		all[i] = pace{chain, wide}
	}
	return all
}

// mixed returns n bursts. In an evenly spread share of them, the wide part takes slow instead of
// wide.
func mixed(n int, share float64, wide, slow float64) []pace {
	all := steady(n, 5000, wide)
	for i := range all {
		if math.Floor(float64(i+1)*share) > math.Floor(float64(i)*share) {
			all[i].wide = slow
		}
	}
	return all
}

func quietUse() use { return use{steal: []float64{0, 0}, other: 0.02} }

// idleHost is the baseline of a host whose neighbours compute from time to time.
func idleHost() baseline {
	some := [][]pace{mixed(200, 0.4, 6000, 9600), mixed(200, 0.4, 6000, 9600)}
	return makeBaseline(some, some, some, quietUse())
}

// TestJudge checks that a trial like the idle host passes, and that the reason names each
// disturbance.
func TestJudge(t *testing.T) {
	usual := mixed(200, 0.45, 6000, 9600)
	like := func(cpu1 []pace, u use) reading {
		around := [][]pace{usual[:20], cpu1[:20]}
		return reading{before: around, during: [][]pace{usual, cpu1}, after: around, use: u}
	}
	interrupted := mixed(200, 0.09, 6000, 60000)
	for name, c := range map[string]struct {
		got  reading
		want string // part of the reason; empty: undisturbed
	}{
		"as idle":           {like(usual, quietUse()), ""},
		"faster than idle":  {like(steady(200, 4800, 5900), quietUse()), ""},
		"interrupts":        {like(interrupted, quietUse()), ""},
		"a busy sibling":    {like(steady(200, 5000, 9600), quietUse()), "CPU 3 ran at 0.62 of its best speed, as beside a busy thread of the same core"},
		"a lower clock":     {like(steady(200, 7000, 8400), quietUse()), "CPU 3 ran at 0.71 of its best speed, as with a lower clock"},
		"a little steal":    {like(usual, use{steal: []float64{0, 0.04}, other: 0}), ""},
		"steal":             {like(usual, use{steal: []float64{0, 0.2}, other: 0}), "the hypervisor took 0.20 of CPU 3"},
		"others":            {like(usual, use{steal: []float64{0, 0}, other: 0.33, busiest: []string{`"cc" (0.33)`}}), `other processes used 0.33 CPUs of the run's 2 (the busiest on the host: "cc" (0.33))`},
		"the usual daemons": {like(usual, use{steal: []float64{0, 0}, other: 0.11}), ""},
		"an unknown use":    {like(usual, use{steal: []float64{0, 0}, other: math.NaN()}), ""},
		"a negative use":    {like(usual, use{steal: []float64{0, 0}, other: -0.3}), ""},
		"a limit above":     {like(usual, use{steal: []float64{0, 0}, throttled: 0.12}), "a CPU limit above this process took 0.12 CPUs"},
		"a rare throttle":   {like(usual, use{steal: []float64{0, 0}, throttled: 0.01}), ""},
		"another group":     {like(usual, use{steal: []float64{0, 0}, throttled: -1}), ""}, // this process has moved
	} {
		host, why := judge([]int{1, 3}, idleHost(), c.got, DefaultSlowdown)
		if (why == "") != (c.want == "") || !strings.Contains(why, c.want) || why != "" && !strings.HasPrefix(why, "disturbed: ") {
			t.Errorf("%s: got %q, want %q", name, why, c.want)
		}
		if host.Before <= 0 || host.During <= 0 || host.After <= 0 || host.Other != nil && *host.Other < 0 {
			t.Errorf("%s: %+v", name, host)
		}
		if want := strings.Contains(c.want, "best speed"); slow(why) != want {
			t.Errorf("%s: slow(%q) is %t", name, why, !want)
		}
		if known := !math.IsNaN(c.got.use.other); known != (host.Other != nil) {
			t.Errorf("%s: got other %v", name, host.Other)
		}
	}
}

// TestRunOnSiblings checks that CPUs of the run that share a core are compared with their speed
// while both work.
func TestRunOnSiblings(t *testing.T) {
	alone, together := [][]pace{steady(100, 5000, 6000)}, [][]pace{steady(100, 5000, 9600)}
	trial := reading{before: together, during: together, after: together, use: use{steal: []float64{0}}}
	if _, why := judge([]int{0}, makeBaseline(alone, together, alone, use{}), trial, DefaultSlowdown); why != "" {
		t.Errorf("judge calls a run that slowed itself disturbed: %q", why)
	}
	if _, why := judge([]int{0}, makeBaseline(alone, alone, alone, use{}), trial, DefaultSlowdown); why == "" {
		t.Error("judge calls a run that other processes slowed undisturbed")
	}
	// A neighbour that starts between two readings must not look like a sibling CPU of the run.
	if b := makeBaseline(alone, together, together, use{}); b.shared[0] != (pace{}) {
		t.Errorf("got shared %v, want none", b.shared[0])
	}
}

// TestBaselineImproves checks that faster trials improve a baseline from a time with a busy
// neighbour.
func TestBaselineImproves(t *testing.T) {
	slow, fast := [][]pace{steady(100, 5000, 9600)}, [][]pace{steady(100, 5000, 6000)}
	b := makeBaseline(slow, slow, slow, use{})
	b.improve(reading{before: fast, during: fast, after: fast})
	b.improve(reading{before: slow, during: slow, after: slow})
	if b.best[0].wide != 6000 {
		t.Errorf("got best %v, want 6000", b.best[0].wide)
	}
}

// TestClockFollowsLoad checks that a trial at the clock of an idle CPU is disturbed after another trial
// has shown the full clock, and that the error then says what to do about the governor.
func TestClockFollowsLoad(t *testing.T) {
	at := func(chain, wide float64) reading {
		bursts := [][]pace{steady(100, chain, wide)}
		return reading{before: bursts, during: bursts, after: bursts, use: use{steal: []float64{0}}}
	}
	idle, busy := at(15000, 18000), at(5000, 6000)
	b := makeBaseline(idle.before, busy.during, idle.after, use{})
	if _, why := judge([]int{3}, b, idle, DefaultSlowdown); why != "" {
		t.Errorf("before any load: %q", why)
	}
	b.improve(busy)
	_, why := judge([]int{3}, b, idle, DefaultSlowdown)
	if want := "CPU 3 ran at 0.33 of its best speed, as with a lower clock"; !strings.Contains(why, want) {
		t.Errorf("after a trial with load: got %q, want %q", why, want)
	}
	for governor, want := range map[string]string{
		"": "", "performance": "",
		"schedutil":             "; the CPU frequency governor is schedutil, which may lower the clock: cpupower frequency-set -g performance",
		"performance,powersave": "; the CPU frequency governor is performance,powersave, which may lower the clock: cpupower frequency-set -g performance",
	} {
		if err := AdviseClock(ErrTooNoisy, why, governor); !errors.Is(err, ErrTooNoisy) || err.Error() != ErrTooNoisy.Error()+want {
			t.Errorf("governor %q: %v", governor, err)
		}
	}
	if err := AdviseClock(ErrTooNoisy, "disturbed: the hypervisor took 0.20 of CPU 3", "schedutil"); err.Error() != ErrTooNoisy.Error() {
		t.Errorf("the clock was not the reason: %v", err)
	}
	if err := AdviseClock(nil, why, "schedutil"); err != nil {
		t.Errorf("advice without an error: %v", err)
	}
}

// TestNoBursts checks that a trial that ends before its first burst has no speed during the trial.
func TestNoBursts(t *testing.T) {
	around := [][]pace{steady(20, 5000, 6000)}
	host, why := judge([]int{0}, makeBaseline(around, around, around, use{}), reading{before: around, during: [][]pace{nil}, after: around, use: use{steal: []float64{0}}}, DefaultSlowdown)
	if host.During != 0 || host.Before != 1 || why != "" {
		t.Errorf("%+v, %q", host, why)
	}
}

// TestSlowdown checks that a lower limit calls a trial disturbed that the usual limit accepts.
func TestSlowdown(t *testing.T) {
	alone, beside := [][]pace{steady(100, 5000, 6000)}, [][]pace{steady(100, 5000, 7000)}
	got := reading{before: beside, during: beside, after: beside, use: use{steal: []float64{0}}}
	for limit, want := range map[float64]bool{DefaultSlowdown: false, StrictSlowdown: true} {
		if _, why := judge([]int{0}, makeBaseline(alone, alone, alone, use{}), got, limit); (why != "") != want {
			t.Errorf("limit %g: %q, want disturbed %t", limit, why, want)
		}
	}
}
