package impair

import (
	"math"
	"testing"
	"time"

	"vitrine"
	"vitrine/fabric/fabrictest"
)

// TestNetem checks netem's impairments if the kernel has netem. Otherwise a config that requires
// netem must be refused.
func TestNetem(t *testing.T) {
	err := hasNetem()
	if vitrine.IsUnsupported(err) {
		run := fabrictest.NewRun(t, t.TempDir()+"/runs")
		f, err := onBridge(run, Config{Link: Link{Delay: time.Millisecond}, By: Netem})
		if !vitrine.IsUnsupported(err) {
			t.Errorf("request for netem: got %v, error %v, want Unsupported", f, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Run("DelayIsReadBack", netemDelay)
	t.Run("LossIsReadBack", netemLoss)
	t.Run("ReorderingIsReadBack", netemReordering)
	t.Run("BesideEmulator", netemBesideEmulator)
}

func netemDelay(t *testing.T) {
	p := newPathBy(t, Link{Delay: 20 * time.Millisecond, Way: Out}, Netem)
	r, _, made := p.calm(t, 500, 500, 22000)
	within(t, "least delay, µs", r.Delay.Min, 20000-drift, 22000)
	if r.Lost > 0 || r.Reordered > 0 || made.Sent != made.Packets || made.Bytes < 1000*made.Sent {
		t.Errorf("lost %d packets, reordered %d; netem sent %d of %d packets, %d bytes", r.Lost, r.Reordered, made.Sent, made.Packets, made.Bytes)
	}
}

func netemLoss(t *testing.T) {
	const n, share = 2000, 0.1
	r, _, made := newPathBy(t, Link{Loss: share}, Netem).stream(t, n, 2000)
	within(t, "lost", float64(r.Lost), n*share-5*math.Sqrt(n*share), n*share+5*math.Sqrt(n*share))
	if made.Lost != int64(r.Lost) || r.Reordered > 0 {
		t.Errorf("lost %d packets, netem counts %d; reordered %d", r.Lost, made.Lost, r.Reordered)
	}
}

func netemReordering(t *testing.T) {
	const n, share = 500, 0.2
	_, arrivals, _ := newPathBy(t, Link{Delay: 100 * time.Millisecond, Reorder: share}, Netem).stream(t, n, 500)
	early := 0
	for _, a := range arrivals {
		if a.Received-a.Sent < 50_000_000 {
			early++
		}
	}
	within(t, "came without the delay", float64(early), n*share-5*math.Sqrt(n*share), n*share+5*math.Sqrt(n*share))
}

// netemBesideEmulator impairs one link by netem and another by the emulator.
func netemBesideEmulator(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f, err := onBridge(run, Config{
		Link:  Link{Delay: 10 * time.Millisecond, Jitter: time.Millisecond},
		Links: map[string]Link{"generator": {Delay: 10 * time.Millisecond}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := fabrictest.NewBench(t, f, run)
	one, two := b.Attach("generator"), b.Attach("sprout-1")
	if err := b.Reach(one, two); err != nil {
		t.Fatal(err)
	}
	made, err := f.Made(t.Context())
	if err != nil || len(made) != 4 || made[0].By != Netem || made[1].By != Netem || made[2].By != Emulator {
		t.Fatalf("%+v, %v", made, err)
	}
	if err := f.Detach(t.Context(), "generator"); err != nil {
		t.Error(err)
	}
}
