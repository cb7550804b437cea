package director

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/overload"
)

// TestOverloadMistakes checks that the bounds of a gate's rate leave it room.
func TestOverloadMistakes(t *testing.T) {
	for more, want := range map[string]string{
		"overload: {target: 100ms, min: 20, max: 8}\n":      "18:32: min 20 above max 8: want min at most max",
		"overload: {target: 100ms, max: 8, initial: 9.5}\n": "18:44: initial 9.5 above max 8: want initial at most max",
		"overload: {target: 100ms, burst: 1e11}\n":          "18:34: overload.burst is 1e11: want at most 1000000",
	} {
		path := write(t, filepath.Join(t.TempDir(), "bad.yaml"), good+more)
		if _, err := Load(path); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), path+":"+want) {
			t.Errorf("%s: got error %v, want %q", more, err, want)
		}
	}
	own := strings.Replace(good, "drain: dialog", "drain: dialog, overload: {target: 1s, min: 3, max: 2}", 1)
	if _, err := Load(write(t, filepath.Join(t.TempDir(), "bad.yaml"), own)); err == nil || !strings.Contains(err.Error(), ":7:") || !strings.Contains(err.Error(), "min 3 above max 2") {
		t.Errorf("a type's own gate: got error %v", err)
	}
}

// TestSmallGateFalls gives a gate a maximum below the default minimum. The gate must still follow the
// rate of answers.
func TestSmallGateFalls(t *testing.T) {
	d := newDirector(t, good+"overload: {target: 100ms, max: 8}\n")
	now := d.now()
	d.now = func() time.Duration { return now }
	w := d.meter.Worker()
	for range 3 {
		now += time.Second
		for range 4 {
			w.Sample(0, 200*time.Millisecond)
		}
		d.adjustGates()
	}
	// Four answers per second, with twice the target latency.
	if rate := d.gates["registration"].Read().Rate; rate < 1.5 || rate > 2.5 {
		t.Errorf("the gate admits %g/s, want about 2", rate)
	}
}

// TestGateCountsFromItsStart makes a gate at a director that already counts many late answers: by a
// reload, and before a hand-over brings the counts. In an overload the gate must follow the present
// rate of answers, and not take those of a lifetime for recent.
func TestGateCountsFromItsStart(t *testing.T) {
	const gated = good + "overload: {target: 100ms}\n"
	sample := func(d *Director, n int) {
		w := d.meter.Worker()
		for range n {
			w.Sample(0, 200*time.Millisecond)
		}
	}
	for name, start := range map[string]func(now *time.Duration) *Director{
		"reload": func(now *time.Duration) *Director {
			d := newDirector(t, good)
			*now = d.now() + time.Hour
			d.now = func() time.Duration { return *now }
			sample(d, 100_000)
			write(t, d.options.Path, gated)
			if err := d.reload(); err != nil {
				t.Fatal(err)
			}
			return d
		},
		"hand-over": func(now *time.Duration) *Director {
			old, d := newDirector(t, gated), newDirector(t, gated)
			*now = d.now()
			d.now = func() time.Duration { return *now }
			sample(old, 100_000)
			var stream bytes.Buffer
			if err := old.handOver(&stream); err != nil {
				t.Fatal(err)
			}
			if _, err := d.takeOver(&stream); err != nil {
				t.Fatal(err)
			}
			return d
		},
	} {
		var now time.Duration
		d := start(&now)
		for range 3 {
			now += 500 * time.Millisecond
			sample(d, 50)
			d.adjustGates()
		}
		// 100 answers per second, with twice the target latency.
		if rate := d.gates["registration"].Read().Rate; rate < 40 || rate > 60 {
			t.Errorf("%s: the gate admits %g/s, want about 50", name, rate)
		}
	}
}

// TestGateRateIsHandedOver hands over a gate that has grown to the load. The new process must not
// refuse that load, unless the gate's options have changed. Upstreams must not take its feedback for old,
// although the clock was an hour ahead when the old process began.
func TestGateRateIsHandedOver(t *testing.T) {
	const gated = good + "overload: {target: 100ms, initial: 10}\n"
	old := newDirector(t, gated)
	now := old.now()
	old.now = func() time.Duration { return now }
	w := old.meter.Worker()
	for range 12 {
		now += 250 * time.Millisecond
		for old.gates["registration"].Admit(now, overload.Begins) {
			w.Sample(0, time.Millisecond)
		}
		for range 10 {
			w.Sample(0, time.Millisecond)
		}
		old.adjustGates()
	}
	grown := old.gates["registration"].Read().Rate
	if grown < 1000 {
		t.Fatalf("the old gate admits %g/s, want over 1000", grown)
	}
	last := uint64(time.Now().Add(time.Hour).UnixMilli() / 100) // as if the old process had begun in an hour
	old.feedback.Continue(last - 1)
	for text, want := range map[string]float64{
		gated: grown,
		good + "overload: {target: 200ms, initial: 10}\n": 10,
	} {
		next := newDirector(t, text)
		var stream bytes.Buffer
		if err := old.handOver(&stream); err != nil {
			t.Fatal(err)
		}
		if _, err := next.takeOver(&stream); err != nil {
			t.Fatal(err)
		}
		if rate := next.gates["registration"].Read().Rate; rate != want {
			t.Errorf("%s: the new gate admits %g/s, want %g", text[len(good):], rate, want)
		}
		if _, _, n := next.feedback.Values(); n <= last {
			t.Errorf("%s: the new process's feedback has the number %d, want more than %d", text[len(good):], n, last)
		}
	}
}

// TestFeedbackIsOfAllTypes checks that clients are asked to hold back no more than every type refuses,
// and that the number of the feedback grows with each change, also over a reload.
func TestFeedbackIsOfAllTypes(t *testing.T) {
	const gated = good + "overload: {target: 100ms, initial: 10, max: 10}\n"
	d := newDirector(t, gated)
	now := d.now()
	d.now = func() time.Duration { return now }
	before, _, last := d.feedback.Values()
	for _, step := range []struct {
		after                   time.Duration
		registrations, sessions int // requests at once
		want                    int // percent
		file                    string
	}{
		{time.Second, 100, 1, 0, gated},
		{time.Second, 100, 0, 0, gated},
		{time.Second, 1000, 100, 99, gated},
		{time.Second, 1, 1, 79, gated},
		{2 * time.Minute, 100, 0, 99, gated}, // sessions are idle
		{time.Second, 0, 0, 0, good + "overload: {target: 200ms, initial: 10, max: 10}\n"}, // new gates
	} {
		write(t, d.options.Path, step.file)
		if err := d.reload(); err != nil {
			t.Fatal(err)
		}
		now += step.after // then each bucket has its one token
		for range step.registrations {
			d.gates["registration"].Admit(now, overload.Begins)
		}
		for range step.sessions {
			d.gates["session"].Admit(now, overload.Begins)
		}
		d.adjustGates()
		loss, _, n := d.feedback.Values()
		if loss != step.want || n < last || (n > last) != (loss != before) {
			t.Errorf("%+v: asked to hold back %d%% with the number %d, after %d%% with %d", step, loss, n, before, last)
		}
		before, last = loss, n
	}
}

// TestGatesComeBeforeMemories cuts a hand-over within the memory of a worker, as the time limit does. The
// new process must still have the rates of the gates.
func TestGatesComeBeforeMemories(t *testing.T) {
	const gated = good + "overload: {target: 100ms, initial: 10}\n"
	old, next := newDirector(t, gated), newDirector(t, gated)
	old.gates["registration"].Resume(old.now(), 1000, 1000)
	for key := range uint64(1000) {
		old.protocols[0].Steerings()[0].Choose(old.now(), 0, key, 0)
	}
	var stream bytes.Buffer
	if err := old.handOver(&stream); err != nil {
		t.Fatal(err)
	}
	stream.Truncate(stream.Len() / 2) // the memory is most of it
	if _, err := next.takeOver(&stream); err == nil {
		t.Fatal("takeOver accepted half of a stream")
	}
	if rate, want := next.gates["registration"].Read().Rate, old.gates["registration"].Read().Rate; rate != want {
		t.Errorf("the new gate admits %g/s, want %g", rate, want)
	}
}
