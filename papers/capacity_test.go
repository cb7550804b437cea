package papers

import (
	"fmt"
	"math"
	"testing"
	"time"

	"vitrine"
	"vitrine/result"
)

// trialAt returns a valid trial of the sizing. bono and sprout are the CPU that
// the two components used, of 1 each.
func trialAt(sizing string, repeat int, rate, success, bono, sprout float64) vitrine.Outcome {
	scheduled := int64(1000)
	return vitrine.Outcome{
		Key:      vitrine.Key{Seq: repeat, Attempt: 1, Substrate: "process", Subject: sizing, Repeat: repeat, Rate: rate},
		Answered: time.Duration((3 + 0.06*rate) * float64(time.Second)),
		Valid:    true, Scheduled: scheduled, Succeeded: int64(success * float64(scheduled)),
		Latency: vitrine.Latency{P50: rate / 10, P99: rate / 2},
		Use: map[string]vitrine.Use{
			"bono-1":      {Component: "bono", CPU: &bono, VCPUs: 1},
			"sprout-1":    {Component: "sprout", CPU: &sprout, VCPUs: 1},
			"generator-1": {Component: vitrine.Generator, CPU: new(float64), VCPUs: 1},
		},
	}
}

func TestCapacityReadings(t *testing.T) {
	capacity := vitrine.Capacity{Threshold: 0.9, Rate: 100, Low: 90, High: 110, Censored: vitrine.CensoredNone, Deployments: 7, SD: 5, Single: 80}
	d := &result.Data{Dir: t.TempDir(), Summary: &result.Summary{Interleaved: true, Sizings: []result.Sizing{
		{Name: "bn1s", Substrate: "process", Capacities: []vitrine.Capacity{{Threshold: 0.9, Rate: 1, Low: 1, High: 1}}},
		{Name: "bn1s", Substrate: "process", Again: true, Trials: 17, Capacities: []vitrine.Capacity{capacity}},
		{Name: "bn2s", Substrate: "process", Capacities: []vitrine.Capacity{capacity}},
		{Name: "bn1m", Substrate: "process", Options: "pinning=on", Capacities: []vitrine.Capacity{{Threshold: 0.9, Rate: 900, Low: 900, High: 900, Censored: vitrine.CensoredAbove}}},
		{Name: "bn1l", Substrate: "process", Capacities: []vitrine.Capacity{{Threshold: 0.9, Censored: vitrine.CensoredGenerator}}},
	}}}
	for repeat := 1; repeat <= 5; repeat++ { // the first measurement of bn1s, which does not count
		d.Outcomes = append(d.Outcomes, trialAt("bn1s", repeat, 120, 0.95, 0.6, 0.9))
	}
	for repeat := 1; repeat <= 5; repeat++ {
		d.Outcomes = append(d.Outcomes,
			trialAt("bn1s", repeat, 150, 0.2, 0.9, 0.9),
			trialAt("bn1s", repeat, 50, 1, 0.2, 0.3),
			trialAt("bn1s", repeat, 100, 0.95, 0.4, 0.8),
			trialAt("bn2s", repeat, 150, 0.5, 0.9, 0.9),
			trialAt("bn2s", repeat, 100, 0.9, 0.4, 0.8),
			trialAt("bn2s", repeat, 300, 0, 0.9, 0.9),
		)
	}
	for repeat := 1; repeat <= 5; repeat++ {
		for _, rate := range []float64{450, 900} {
			o := trialAt("bn1m", repeat, rate, 1, 0.4, 0.8)
			o.Options = "pinning=on"
			d.Outcomes = append(d.Outcomes, o)
		}
	}
	d.Outcomes = append(d.Outcomes,
		trialAt("bn2s", 6, 100, 0.9, 0.4, 0.8), // never driven at twice the capacity
		trialAt("bn1s", 1, 50, 1, 0.2, 0.3),    // a second trial at this rate
	)
	invalid := trialAt("bn1s", 1, 120, 0.95, 0.6, 0.9)
	invalid.Valid = false
	d.Outcomes = append(d.Outcomes, invalid)
	r, err := Read(d)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"bn1s capacity@0.9": 100, "bn1s single@0.9": 80, "bn1s sd@0.9": 5, "bn1m/pinning=on capacity@0.9": 900,
		"bn1s cpu.bono": 0.4, "bn1s cpu.sprout": 0.8, "bn1s cpu.beside.bono": 0.8, "bn1s cpu.beside.sprout": 0.4,
		"bn1s percall.bono": 4, "bn1s percall.sprout": 8, "bn1s percall.all": 12,
		"bn1s percall.sprout@50/s": 6, "bn1s percall.all@50/s": 10, "bn1s percall.all@150/s": 12,
		"bn1s goodput.peak": 95, "bn1s latency.p50@50/s": 5, "bn1s latency.p99@50/s": 25, "bn1s latency.p50@150/s": 15,
		"bn1s goodput@50/s": 50, "bn1s goodput@100/s": 95, "bn1s least goodput@150/s": 30,
		"bn1s answered@50/s": 6, "bn1s answered@150/s": 12, "bn1m/pinning=on goodput@900/s": 900,
		"bn1s success@1.25": 0.575, // half-way from 0.95 at 100 to 0.2 at 150
		"bn2s goodput@2x":   50,    // at 200, a third of the way from 75 at 150 to 0 at 300
	} {
		if x, missing := r.read(name); missing != "" || math.Abs(x.Mean-want) > 1e-9 {
			t.Errorf("%s: %v (%s), want %g", name, x.Mean, missing, want)
		}
	}
	if x := r.of["bn2s goodput@2x"]; x.Repeats != 5 {
		t.Errorf("goodput of %d deployments, want only the five that were driven at twice the capacity", x.Repeats)
	}
	if x := r.of["bn2s goodput@2x"]; x.Turns != nil {
		t.Errorf("turns %v, although one of the six deployments has no value", x.Turns)
	}
	r.putEach(sized{where: "gap", repeats: map[int][]vitrine.Outcome{1: nil, 3: nil}}, map[string][]float64{"goodput": {1, 3}})
	if x := r.of["gap goodput"]; x.Turns != nil {
		t.Errorf("turns %v, although the second one has no valid trial", x.Turns)
	}
	if x := r.of["bn1s goodput@50/s"]; x.Repeats != 5 || len(x.Turns) != 5 {
		t.Errorf("goodput of %d deployments, want five: two trials of one deployment count once", x.Repeats)
	}
	for _, name := range []string{"bn1s goodput@2x", "bn2s latency.p50@300/s", "bn1m/pinning=on success@1.25"} {
		if x, ok := r.of[name]; ok {
			t.Errorf("%s: %v, although no deployment was driven that far, no call succeeded, or the capacity is only bounded", name, x)
		}
	}
	if x := r.of["bn1s capacity@0.9"]; x.Repeats != 7 || x.unfit() != "" || x.Bound != "" {
		t.Errorf("%+v: %s", x, x.unfit())
	}
	if x := r.of["bn1m/pinning=on capacity@0.9"]; x.Bound != vitrine.CensoredAbove {
		t.Errorf("%+v", x)
	}
	if _, missing := r.read("bn1l capacity@0.9"); missing != "not measured: no trial was valid" {
		t.Error(missing)
	}
	if _, ok := r.of["bn1s cpu.generator"]; ok {
		t.Error("the generator is no component")
	}
}

// TestSubstratesAreApart checks that the readings of one sizing on two substrates have two names, and that
// those of emulated machines are marked.
func TestSubstratesAreApart(t *testing.T) {
	d := &result.Data{Dir: t.TempDir(), Manifest: result.Manifest{Substrates: map[string]string{"process": "6.18", "qemu": "7.2"}}, Summary: new(result.Summary)}
	add := func(substrate, accelerator string, bono float64) {
		d.Summary.Sizings = append(d.Summary.Sizings, result.Sizing{Name: "bn1s", Substrate: substrate, Capacities: []vitrine.Capacity{
			{Threshold: 0.9, Rate: 100, Low: 90, High: 110, Censored: vitrine.CensoredNone},
		}})
		for repeat := 1; repeat <= 5; repeat++ {
			o := trialAt("bn1s", repeat, 100, 1, bono, 0.8)
			o.Substrate, o.Accelerator = substrate, accelerator
			d.Outcomes = append(d.Outcomes, o)
		}
	}
	add("process", "", 0.4)
	add("qemu", vitrine.Emulation, 0.6)
	r, err := Read(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		where, mark string
		bono        float64
	}{{"bn1s/process", "", 0.4}, {"bn1s/qemu", "emulated (tcg)", 0.6}} {
		if x, missing := r.read(tt.where + " cpu.bono"); missing != "" || math.Abs(x.Mean-tt.bono) > 1e-9 {
			t.Errorf("%s: %v (%s), want %g", tt.where, x.Mean, missing, tt.bono)
		}
		for _, name := range []string{"cpu.bono", "capacity@0.9", "answered@100/s", "least goodput@100/s"} {
			if x := r.of[tt.where+" "+name]; x.Mark != tt.mark {
				t.Errorf("%s %s: mark %q, want %q", tt.where, name, x.Mark, tt.mark)
			}
		}
	}
}

// TestUseOfSteadyTrials checks that a short trial above the capacity does not show the use at capacity, although
// all of its calls succeed: its backlog grows.
func TestUseOfSteadyTrials(t *testing.T) {
	d := &result.Data{Dir: t.TempDir(), Summary: &result.Summary{Sizings: []result.Sizing{{
		Name: "bn1s", Substrate: "process", Search: &result.Search{Name: "adaptive", Precision: 0.4},
		Capacities: []vitrine.Capacity{{Threshold: 0.9, Rate: 100, Low: 90, High: 110, Censored: vitrine.CensoredNone}},
	}}}}
	for repeat := 1; repeat <= 5; repeat++ {
		carried, overloaded := trialAt("bn1s", repeat, 90, 1, 0.7, 0.9), trialAt("bn1s", repeat, 130, 1, 0.9, 1)
		for tenth := range int64(20) {
			carried.InFlight, overloaded.InFlight = append(carried.InFlight, 5), append(overloaded.InFlight, 3*tenth)
		}
		d.Outcomes = append(d.Outcomes, carried, overloaded)
	}
	r, err := Read(d)
	if err != nil {
		t.Fatal(err)
	}
	if x, missing := r.read("bn1s cpu.bono"); missing != "" || math.Abs(x.Mean-0.7) > 1e-9 || x.Repeats != 5 {
		t.Errorf("got %+v (%s), want the CPU use of the steady trials, 0.7", x, missing)
	}
}

// TestSwings checks swings in windows of ten seconds, below and past the
// capacity.
func TestSwings(t *testing.T) {
	r := readSwings(t, 10*time.Second, func(string, int) bool { return false })
	for name, want := range map[string]float64{
		"bn1s success.swing@under": 0, "bn1s success.swing@over": 0.527,
		"bn1s cpu.swing.sprout@under": 0, "bn1s cpu.swing.sprout@over": 1.054,
		"bn1s uneven.sprout@over": 1.5,
	} {
		if x, missing := r.read(name); missing != "" || math.Abs(x.Mean-want) > 1e-3 || x.Repeats != 5 {
			t.Errorf("%s: %+v (%s), want %g", name, x, missing, want)
		}
	}
}

// TestGapsAreNoSwing checks that a steady CPU use does not swing if the monitor missed samples, or if the
// last second of the window is incomplete.
func TestGapsAreNoSwing(t *testing.T) {
	for name, c := range map[string]struct {
		window time.Duration
		gap    func(instance string, tenth int) bool
		none   bool // too few seconds are left
	}{
		"a gap":                     {12 * time.Second, func(_ string, tenth int) bool { return tenth >= 30 && tenth < 50 }, false},
		"a gap of one instance":     {12 * time.Second, func(instance string, tenth int) bool { return instance == "sprout-2" && tenth/10 == 3 }, false},
		"an incomplete last second": {12400 * time.Millisecond, func(string, int) bool { return false }, false},
		"too few seconds":           {10 * time.Second, func(_ string, tenth int) bool { return tenth/10 == 3 }, true},
	} {
		r := readSwings(t, c.window, c.gap)
		x, missing := r.read("bn1s cpu.swing.sprout@under")
		if (missing != "") != c.none || x.Mean > 1e-9 {
			t.Errorf("%s: %+v (%s), want no swing", name, x, missing)
		}
	}
}

// readSwings reads a run with trials of a length. gap says which samples the monitor missed.
func readSwings(t *testing.T, window time.Duration, gap func(instance string, tenth int) bool) Readings {
	t.Helper()
	dir := t.TempDir()
	run, err := result.Create(dir, result.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	for repeat := 1; repeat <= 5; repeat++ {
		for i, rate := range []float64{50, 100, 150} {
			o := trialAt("bn1s", repeat, rate, []float64{1, 0.95, 0.5}[i], 0.5, 0.5)
			o.Seq = 3*repeat + i
			busier := 0.75
			o.Use["sprout-2"] = vitrine.Use{Component: "sprout", CPU: &busier, VCPUs: 1}
			o.Duration = window
			for second := range int(math.Ceil(window.Seconds())) {
				succeeded := int64(100)
				if i == 2 && second%2 == 1 {
					succeeded = 0
				}
				o.Seconds = append(o.Seconds, vitrine.Second{Scheduled: 100, Offered: 100, Succeeded: succeeded, Failed: 100 - succeeded})
			}
			writeUsage(t, run, o, i == 2, gap)
			if err := run.Append(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	d.Summary = &result.Summary{Sizings: []result.Sizing{{Name: "bn1s", Substrate: "process", Capacities: []vitrine.Capacity{
		{Threshold: 0.9, Rate: 100, Low: 90, High: 110, Censored: vitrine.CensoredNone},
	}}}}
	r, err := Read(d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// writeUsage writes samples as the monitor does: two Sprouts are busy in every other
// second, or in all, until the window ends.
func writeUsage(t *testing.T, run *result.Run, o vitrine.Outcome, swings bool, gap func(instance string, tenth int) bool) {
	t.Helper()
	w, _, err := run.CreateUsage(o.Key)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w, result.UsageHeader)
	for tenth := range 10 * len(o.Seconds) {
		at, cpu := float64(tenth)/10+0.05, 0.8
		if swings && tenth/10%2 == 1 || at > o.Duration.Seconds() {
			cpu = 0
		}
		for _, name := range []string{"sprout-1", "sprout-2"} {
			if !gap(name, tenth) {
				fmt.Fprintf(w, "%g,%s,sprout,%g,,,,,,,\n", at, name, cpu)
			}
		}
		fmt.Fprintf(w, "%g,host,host,1.5,,,,,,,\n", at)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
