package director

import (
	"bytes"
	"testing"
	"time"
)

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
