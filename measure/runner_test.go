package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/result"
)

// TestPlanOfAnotherBuildMeasuresNothing checks that a resumed run sends nothing, and leaves its manifest
// as it is, if its plan has another stream than the one on record.
func TestPlanOfAnotherBuildMeasuresNothing(t *testing.T) {
	run, err := result.Create(t.TempDir(), result.Manifest{Unsupported: map[string]string{"process on ovs": "no switch"}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	where := Combination{"process", "bridge"}
	x := stream{seq: 1, where: where, repeat: 1, metric: Jitter, way: OneWay, size: 64, rate: 1000, packets: 1000}
	if err := run.Append(vitrine.Outcome{Key: x.Key(1), Valid: true, Scheduled: 1000, Offered: 1000, Succeeded: 1000}); err != nil {
		t.Fatal(err)
	}
	x.rate = 2000
	_, err = RunVisits(t.Context(), &Stage{Results: run}, []Visit[stream]{{Where: where.String(), Trials: []stream{x}}},
		func(context.Context, *Runner, []stream) error {
			t.Error("the stream was measured")
			return nil
		})
	if !errors.Is(err, result.ErrDiverged) || len(run.Manifest().Unsupported) != 1 {
		t.Errorf("got the error %v and the manifest %+v", err, run.Manifest())
	}
}

// TestRefusedTrialEndsTheRun checks that no later place is visited once the run refuses trials.
func TestRefusedTrialEndsTheRun(t *testing.T) {
	run, err := result.Create(t.TempDir(), result.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var visits []Visit[stream]
	for i, fabric := range []string{"bridge", "ovs"} {
		x := stream{seq: i + 1, where: Combination{"process", fabric}, repeat: 1, metric: Jitter, way: OneWay, size: 64, rate: 1000, packets: 1000}
		visits = append(visits, Visit[stream]{Where: x.where.String(), Trials: []stream{x}})
	}
	refused, visited := errors.New("refused"), 0
	_, err = RunVisits(t.Context(), &Stage{Results: run}, visits, func(_ context.Context, r *Runner, open []stream) error {
		visited++
		run.Guard = func() error { return refused }
		_, err := r.Keep(vitrine.Outcome{Key: r.Next(open[0]), Valid: true, Scheduled: 1000, Offered: 1000, Succeeded: 1000})
		return err
	})
	if !errors.Is(err, refused) || visited != 1 || len(run.Outcomes()) > 0 || len(run.Manifest().Unsupported) > 0 {
		t.Errorf("got the error %v after %d visits, outcomes %+v, left out %v", err, visited, run.Outcomes(), run.Manifest().Unsupported)
	}
}

// TestTimeLeft checks the time left in a run whose streams take ten times as long as they send, and
// in its second session.
func TestTimeLeft(t *testing.T) {
	// Created outside the bubble, because the Parquet encoders that Close uses outlive the test.
	run, err := result.Create(t.TempDir(), result.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	synctest.Test(t, func(t *testing.T) {
		visit := func(fabric string, seqs ...int) Visit[stream] {
			where := Combination{"process", fabric}
			v := Visit[stream]{Where: where.String(), Doing: fabric}
			for _, seq := range seqs {
				v.Trials = append(v.Trials, stream{seq: seq, where: where, repeat: 1, metric: Jitter, way: OneWay, size: 64, rate: 1000, packets: 1000})
			}
			return v
		}
		visits := []Visit[stream]{visit("bridge", 1, 2), visit("ovs", 3), visit("direct", 4)}
		session := func() (events []string) {
			stage := Stage{Results: run, Observe: func(e Event) {
				events = append(events, fmt.Sprintf("%d/%d %s, %v left", e.Done, e.Of, e.Sending, e.Left))
			}}
			_, err := RunVisits(t.Context(), &stage, visits, func(_ context.Context, r *Runner, open []stream) error {
				for _, x := range open {
					time.Sleep(10 * time.Second)
					if x.where.Fabric == "ovs" {
						return errors.New("a failure")
					}
					if _, err := r.Keep(vitrine.Outcome{Key: r.Next(x), Valid: true, Scheduled: 1000, Offered: 1000, Succeeded: 1000}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return events
		}
		for _, want := range [][]string{
			{
				"0/4 4s, 0s left", "1/4 3s, 30s left", "2/4 2s, 20s left", // bridge
				"2/4 2s, 20s left", "3/4 1s, 15s left", // ovs is left out after 10 s
				"3/4 1s, 15s left", "4/4 0s, 0s left",
			},
			{"1/4 1s, 0s left", "2/4 1s, 0s left", "2/4 1s, 0s left", "3/4 0s, 0s left", "4/4 0s, 0s left"},
		} {
			if got := session(); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		}
	})
}
