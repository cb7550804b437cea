package measure

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"vitrine"
	"vitrine/result"
	"vitrine/testbed/quiet"
	"vitrine/testbed/quiet/quiettest"
)

// measureNoise runs a plan of three streams that send nothing. Streams for which lost is true fail
// on their own.
func measureNoise(t *testing.T, disturbs, lost func(stream int) bool) (*result.Run, error) {
	t.Helper()
	run, err := result.Create(t.TempDir(), result.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	n := &quiettest.Noise{Disturbs: disturbs}
	var visits []Visit[stream]
	for seq := 1; seq <= 3; seq++ {
		x := stream{seq: seq, where: Combination{"process", "bridge"}, repeat: 1, metric: Latency, way: RoundTrip, size: 64, rate: 1000}
		visits = append(visits, Visit[stream]{Where: x.where.String(), Trials: []stream{x}})
	}
	_, err = RunVisits(t.Context(), &Stage{Results: run, Watch: n.Watch}, visits, func(ctx context.Context, r *Runner, open []stream) error {
		for finished := false; !finished; {
			seen, err := r.Watched(ctx, func() error { return nil })
			if err != nil {
				return err
			}
			o := vitrine.Outcome{Key: r.Next(open[0]), Valid: !lost(len(n.Own) - 1)}
			if !o.Valid {
				o.Reason = "no packet arrived"
			}
			seen.Mark(&o)
			if finished, err = r.Keep(o); err != nil {
				return err
			}
		}
		return nil
	})
	for i, own := range n.Own {
		if !math.IsNaN(own) {
			t.Errorf("stream %d: the run says that it used %g CPUs, want that it does not know", i, own)
		}
	}
	return run, err
}

// TestDisturbedStreamsAreMeasuredAgain checks that a disturbed stream is invalid and is measured
// again. A disturbance must not use up an attempt, but a failure must.
func TestDisturbedStreamsAreMeasuredAgain(t *testing.T) {
	t.Parallel()
	// The first stream is valid. The second one is disturbed four times, fails, is disturbed
	// again and fails twice: three attempts count. The third one is valid.
	run, err := measureNoise(t,
		func(i int) bool { return i >= 1 && i <= 4 || i == 6 },
		func(i int) bool { return i == 4 || i == 5 || i == 7 || i == 8 })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range run.Outcomes() {
		what := "valid"
		if !o.Valid {
			what = o.Reason
		}
		got = append(got, what)
		if o.Disturbed != strings.HasPrefix(what, "disturbed: ") || o.Host == nil || (o.Host.During == 0.5) != o.Disturbed {
			t.Errorf("got outcome %+v with host %+v", o, o.Host)
		}
	}
	const disturbed, failed = quiettest.Reason, "no packet arrived"
	want := []string{"valid", disturbed, disturbed, disturbed, disturbed + "; " + failed, failed, disturbed, failed, failed, "valid"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got outcomes\n%q, want\n%q", got, want)
	}
}

// TestStreamsSentTogetherAreKept checks that a valid stream is kept after five disturbed ones, if all
// were sent together.
func TestStreamsSentTogetherAreKept(t *testing.T) {
	t.Parallel()
	run, err := result.Create(t.TempDir(), result.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	var list []stream
	for seq := 1; seq <= 6; seq++ {
		list = append(list, stream{seq: seq, where: Combination{"process", "bridge"}, repeat: 1, metric: Jitter, way: OneWay, size: 64, rate: 1000})
	}
	_, err = RunVisits(t.Context(), &Stage{Results: run}, []Visit[stream]{{Where: "process/bridge", Trials: list}}, func(_ context.Context, r *Runner, open []stream) error {
		measured := func(list []stream) (outcomes []vitrine.Outcome) {
			for i, x := range list {
				o := vitrine.Outcome{Key: r.Next(x), Valid: true}
				if i < 5 {
					o.Valid, o.Disturbed, o.Reason = false, true, quiettest.Reason
				}
				outcomes = append(outcomes, o)
			}
			return outcomes
		}
		again, err := r.keepAll(open, measured(open))
		if err != nil || len(again) != 5 {
			t.Errorf("%d streams are to be repeated, error %v; want 5 and none", len(again), err)
		}
		again, err = r.keepAll(again, measured(again))
		if !errors.Is(err, quiet.ErrTooNoisy) || len(again) != 5 {
			t.Errorf("%d streams are to be repeated, error %v; want 5, and that the host is too noisy", len(again), err)
		}
		return nil
	})
	if n := len(run.Outcomes()); err != nil || n != 11 {
		t.Errorf("%d outcomes, error %v; want 11", n, err)
	}
}

// TestSlowClockOfStreams checks that the error of streams on slow CPUs names the governor that lowers
// the clock.
func TestSlowClockOfStreams(t *testing.T) {
	t.Parallel()
	run, err := result.Create(t.TempDir(), result.Manifest{Host: result.Host{Governor: "schedutil"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	r := &Runner{Stage: &Stage{Results: run}}
	x := stream{seq: 1, where: Combination{"process", "bridge"}, repeat: 1, metric: Latency, way: RoundTrip, size: 64, rate: 1000}
	for range 5 {
		_, err = r.Keep(vitrine.Outcome{Key: r.Next(x), Disturbed: true, Reason: "disturbed: CPU 1 ran at 0.71 of its best speed, as with a lower clock"})
	}
	if !errors.Is(err, quiet.ErrTooNoisy) || !strings.Contains(err.Error(), "governor is schedutil") {
		t.Errorf("got error %v, want that the host is too noisy, and the governor", err)
	}
}

// TestTooNoisyForStreams checks that a host that stays noisy ends the run.
func TestTooNoisyForStreams(t *testing.T) {
	t.Parallel()
	run, err := measureNoise(t, func(i int) bool { return i >= 1 }, func(int) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "this host is too noisy: 5 streams in a row were disturbed, the last one latency-64 at 1000 packets/s: disturbed: a neighbour") {
		t.Errorf("got error %v, want that the host is too noisy", err)
	}
	if n := len(run.Outcomes()); n != 6 {
		t.Errorf("got %d streams, want 6", n)
	}
}
