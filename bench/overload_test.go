package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/load"
	"vitrine/reference/ims/overload"
	"vitrine/testbed/quiet"
)

// meterOf returns a meter of a simulated function, which carries goodput calls/s at quota 1. driven
// counts the windows.
func meterOf(file string, goodput float64, driven *int) *overloadMeter {
	return &overloadMeter{flavor: "small", build: "b", rules: overloadNow, file: file, progress: io.Discard,
		drive: func(_ context.Context, w window) (window, error) {
			*driven++
			w.Goodput = min(w.Rate, goodput*w.Quota)
			w.Success = w.Goodput / w.Rate
			w.Quotas = map[string]float64{"bono": 0.5, "homestead": 0.3, "sprout": w.Goodput / (goodput * w.Quota)}
			w.Each, w.Admission = []float64{0.5, 1, 1}, admission{Requests: 100}
			return w, nil
		}}
}

func TestOverloadRows(t *testing.T) {
	for _, goodput := range []float64{50, 118, 900} {
		driven := 0
		file := filepath.Join(t.TempDir(), "windows")
		for _, part := range overloadParts() {
			m := meterOf(file, goodput, &driven)
			if err := m.load(); err != nil {
				t.Fatal(err)
			}
			rows, err := part.run(t.Context(), m)
			if err != nil || len(rows) == 0 {
				t.Fatalf("%s: %d rows, %v", part.name, len(rows), err)
			}
			for _, r := range rows {
				if !*r.Holds {
					t.Errorf("goodput %g: %s: %g of %g does not meet %s", goodput, r.Name, *r.Ours, *r.Theirs, r.Aim)
				}
			}
		}
		before := driven
		m := meterOf(file, goodput, &driven)
		if err := m.load(); err != nil {
			t.Fatal(err)
		}
		found, err := m.capacity(t.Context(), overload.Graceful, overloadQuota)
		if want := overloadQuota * goodput / overloadSuccess; err != nil || found.capacity < 0.98*want || found.capacity > 1.02*want || driven != before {
			t.Errorf("%+v, %v, after %d more windows; want a capacity of %g from the file only", found, err, driven-before, want)
		}
		m = meterOf(file, goodput, &driven)
		m.host = "another"
		if err := m.load(); err != nil || len(m.done) > 0 {
			t.Errorf("%d windows of another host count, %v", len(m.done), err)
		}
	}
}

// atSpeed lets the function have a speed in each window, relative to its usual one.
func atSpeed(m *overloadMeter, speed func() float64) {
	drive := m.drive
	m.drive = func(ctx context.Context, w window) (window, error) {
		rate, now := w.Rate, speed()
		w.Rate /= now
		w, err := drive(ctx, w)
		w.Rate, w.Goodput = rate, w.Goodput*now
		return w, err
	}
}

// TestRoundsFollowTheHost makes the function slower once its capacity is known, as a busier neighbour does. Rounds
// measure the capacity again; without them no deployment succeeds. In turns, the round of the change does not count.
func TestRoundsFollowTheHost(t *testing.T) {
	for _, c := range []struct {
		rounds, turns int
		want          float64
		void          int
	}{{0, 0, 0, 0}, {5, 0, overloadFresh, 0}, {5, 1, overloadFresh, 1}} {
		driven, speed := 0, 1.0
		m := meterOf(filepath.Join(t.TempDir(), "windows"), 900, &driven)
		m.rules.Rounds, m.rules.Turns = c.rounds, c.turns
		atSpeed(m, func() float64 { return speed })
		if _, err := m.capacity(t.Context(), overload.Graceful, overloadQuota); err != nil {
			t.Fatal(err)
		}
		speed = 0.88
		rows, err := countBelow(t.Context(), m)
		if err != nil || *rows[0].Ours != c.want {
			t.Fatalf("%+v: %v, %v", c, rows, err)
		}
		if _, void, err := m.fresh(t.Context(), freshBelow); err != nil || void != c.void {
			t.Errorf("%+v: %d rounds do not count, %v", c, void, err)
		}
	}
}

// TestRestlessHostGivesNoCount changes the speed of the function in each round.
func TestRestlessHostGivesNoCount(t *testing.T) {
	root, driven := t.TempDir(), 0
	m := meterOf(filepath.Join(root, overloadFile), 900, &driven)
	atSpeed(m, func() float64 {
		var round int
		if _, err := fmt.Sscanf(m.round, "fresh-%d", &round); err == nil && round%2 == 1 {
			return 0.8
		}
		return 1
	})
	_, err := countBelow(t.Context(), m)
	if !errors.Is(err, quiet.ErrTooNoisy) || !strings.Contains(err.Error(), "15 of 15 rounds") {
		t.Fatalf("got %v", err)
	}
	section, err := overloadSection(root)
	if want := "| small | below | the host was too noisy |"; err != nil || !strings.Contains(section, want) {
		t.Errorf("the section lacks %q: %v\n%s", want, err, section)
	}
}

// TestTurnsCancelTheDriftOfTheHost compares two functions that carry the same, on a host that loses a third
// of its speed while it does.
func TestTurnsCancelTheDriftOfTheHost(t *testing.T) {
	for turns, steady := range map[int]bool{0: false, 3: true} {
		driven := 0
		m := meterOf(filepath.Join(t.TempDir(), "windows"), 9000, &driven)
		m.rules.Turns = turns
		atSpeed(m, func() float64 { return 1 / (1 + 0.003*float64(driven)) })
		known, err := m.capacity(t.Context(), overload.Graceful, overloadQuota)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := m.compare(t.Context(), comparison{"control", overload.Off, "the same", ">= 0.95", overloadQuota}, known)
		if err != nil {
			t.Fatal(err)
		}
		if off := math.Abs(*rows[0].Ratio - 1); (off < 0.02) != steady {
			t.Errorf("%d turns: a ratio of %g between equals", turns, *rows[0].Ratio)
		}
	}
}

// TestControlComparesWhatIsCarried drives a function that without control answers all calls, but some
// of them late.
func TestControlComparesWhatIsCarried(t *testing.T) {
	driven := 0
	m := meterOf(filepath.Join(t.TempDir(), "windows"), 900, &driven)
	drive := m.drive
	m.drive = func(ctx context.Context, w window) (window, error) {
		w, err := drive(ctx, w)
		if late := w.Rate - w.Goodput; w.Mode == overload.Off && w.Rate < 700 {
			w.Success, w.Goodput, w.Growth = 1, w.Rate, late/w.Rate
		}
		return w, err
	}
	rows, err := overloadControl(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, r := range rows {
		name := strings.TrimPrefix(r.Name, m.name(""))
		if got[name] = *r.Ratio; name != "bottleneck" && r.Rounds != m.rules.Turns {
			t.Errorf("%s: %d comparisons, want %d", name, r.Rounds, m.rules.Turns)
		}
	}
	if got["control"] < 1.05 || math.Abs(got["control-carried"]-1) > 1e-9 {
		t.Errorf("ratios %v: want more than 1 by the capacities, and 1 by what is carried", got)
	}
}

func TestInFlightGrowth(t *testing.T) {
	var rising, level []int64
	for i := range 100 {
		rising, level = append(rising, int64(3*i)), append(level, 40)
	}
	if got := inFlightGrowth(rising); got != 30 {
		t.Errorf("growth %g a second, want 30", got)
	}
	if got := inFlightGrowth(level); got != 0 {
		t.Errorf("growth %g a second, want 0", got)
	}
	if got := inFlightGrowth(nil); got != 0 {
		t.Errorf("growth %g without any reading", got)
	}
}

// TestLateGeneratorIsNoResult checks that a window counts only if its load was offered.
func TestLateGeneratorIsNoResult(t *testing.T) {
	for offered, counts := range map[int64]bool{1000: true, 990: true, 989: false, 0: false} {
		if err := checkOffered(load.Report{Scheduled: 1000, Offered: offered}); (err == nil) != counts {
			t.Errorf("%d of 1000 calls: %v", offered, err)
		}
	}
	if checkOffered(load.Report{}) == nil {
		t.Error("a window without calls counts")
	}
}

// TestOverloadSection checks that the page shows the windows of the last build and rules, also if
// today's rules are others, and says what is not measured yet.
func TestOverloadSection(t *testing.T) {
	root, driven := t.TempDir(), 0
	file := filepath.Join(root, overloadFile)
	for _, build := range []string{"old", "new"} {
		m := meterOf(file, map[string]float64{"old": 900, "new": 100}[build], &driven)
		m.build, m.rules = build, overloadRules{Repeats: 2, Slowdown: 0.2, Awake: true}
		drive := m.drive
		m.drive = func(ctx context.Context, w window) (window, error) {
			got, err := drive(ctx, w)
			got.Build, got.Commit = build, "of "+build
			return got, err
		}
		if _, err := overloadGoodput(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	section, err := overloadSection(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"of new", "2 at each rate of a search, host slower by at most 0.2, CPUs kept awake", "| small | goodput-4x | 50 calls/s |", "| small | below | not measured to the end |", "| small | recovery | not measured |"} {
		if !strings.Contains(section, want) {
			t.Errorf("the section lacks %q:\n%s", want, section)
		}
	}
	if strings.Contains(section, "of old") || strings.Contains(section, "450 calls/s") {
		t.Errorf("the section shows an earlier build:\n%s", section)
	}
}

// TestSlowerHostIsSeenTwice checks that the page blames the host only if enough deployments carried their
// calls, and the guard's speed was lower too.
func TestSlowerHostIsSeenTwice(t *testing.T) {
	for _, c := range []struct {
		missed int
		speed  float64 // of the CPU in the deployments that miss; 0.98 in the others
		want   string
	}{
		{missed: 10, speed: 0.93, want: "In 10 of the 10 deployments"},
		{missed: 10, speed: 0.98},
		{missed: 10, speed: 0}, // not known
		{missed: 26, speed: 0.93},
		{missed: 0, speed: 0.93},
	} {
		driven, below := 0, 0
		m := meterOf(filepath.Join(t.TempDir(), "windows"), 900, &driven)
		drive := m.drive
		m.drive = func(ctx context.Context, w window) (window, error) {
			w, err := drive(ctx, w)
			w.Speed = 0.98
			if w.Rate == 425 { // 0.85 of 500, which succeeds with 0.9
				if below++; below <= c.missed {
					w.Success, w.Goodput, w.Speed = 0.9, 0.9*w.Goodput, c.speed
				}
			}
			return w, err
		}
		got, err := m.slowed()
		if err != nil || below != overloadFresh || (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: got %q, %v, after %d deployments", c, got, err, below)
		}
	}
}

// TestRecoveryIsShownByItsOwnBuild checks that a part that another build measured hides no other part,
// and that windows without the newer fields are shown.
func TestRecoveryIsShownByItsOwnBuild(t *testing.T) {
	root, driven := t.TempDir(), 0
	section := ""
	for _, build := range []string{"first", "second", "third"} {
		m := meterOf(filepath.Join(root, overloadFile), 900, &driven)
		m.build = build
		drive := m.drive
		m.drive = func(ctx context.Context, w window) (window, error) {
			got, err := drive(ctx, w)
			got.Commit = "of " + build
			if build != "second" {
				got.Each, got.Admission = nil, admission{}
			}
			return got, err
		}
		for _, part := range overloadParts() {
			if (part.name == recoveryPart) != (build == "second") {
				continue
			}
			if _, err := part.run(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if section, err = overloadSection(root); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(section, "| small | below | 30 deployments |") {
			t.Errorf("after the %s build, the section lacks the deployments below the capacity:\n%s", build, section)
		}
	}
	for _, want := range []string{
		"by commit `of third`", "`recovery` and `admitted`:", "by commit `of second`", "Earlier counts of `below`: 30 of 30", "by commit `of first`",
		"| small | recovery | 1 s |", "| small | admitted | 0 refused |", "| 350 after 2000 | 5 |", "| 0 of 500 |", "| - |",
	} {
		if !strings.Contains(section, want) {
			t.Errorf("the section lacks %q:\n%s", want, section)
		}
	}
}
