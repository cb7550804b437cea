package main

import (
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/spec"
	"vitrine/trial"
)

// TestProgressStaysOnOneRow shows a text that is wider than the terminal, and what replaces it. A second
// row would stay on the screen.
func TestProgressStaysOnOneRow(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, &spec.Workload{}, trial.Plan{})
	p.columns = func() int { return 80 }
	p.passing("%s", strings.Repeat("µ", 86))
	p.passing("short")
	p.line("done")
	want := "\r" + strings.Repeat("µ", 79) + "\rshort" + strings.Repeat(" ", 74) + "\rdone \n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestProgressShowsTheVerdict checks that a trial that failed does not show the threshold as its ratio, and that
// a trial without a success shows no latency.
func TestProgressShowsTheVerdict(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, &spec.Workload{Unit: "calls/s", Thresholds: []float64{0.9}}, trial.Plan{})
	for succeeded, want := range map[int64]string{
		8996: "#1 repeat 1  10 calls/s  success 0.8996  p99 5 ms",
		9000: "#1 repeat 1  10 calls/s  success 0.900  p99 5 ms",
		0:    "#1 repeat 1  10 calls/s  success 0.000",
	} {
		o := vitrine.Outcome{Key: vitrine.Key{Seq: 1, Repeat: 1, Rate: 10}, Valid: true, Scheduled: 10000, Succeeded: succeeded, Latency: vitrine.Latency{P99: 5}}
		if got := p.outcomeLine(trial.Event{Outcome: &o}); got != want {
			t.Errorf("%d calls succeeded: got %q, want %q", succeeded, got, want)
		}
	}
}

// TestTimeLeft shows the end of a campaign of ten minutes that was resumed after eight trials on record and
// an invalid one, which no plan has.
func TestTimeLeft(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, &spec.Workload{}, trial.Plan{About: 10 * time.Minute, Trial: time.Minute})
	done := func(elapsed time.Duration, recorded, valid bool) {
		p.observe(trial.Event{Kind: trial.TrialDone, Elapsed: elapsed, Recorded: recorded, Outcome: &vitrine.Outcome{Valid: valid}})
	}
	for range 8 {
		done(time.Second, true, true)
	}
	done(time.Second, true, false)
	for elapsed, want := range map[time.Duration]string{
		30 * time.Second: "30s elapsed, about 1m30s left",
		3 * time.Minute:  "3m0s elapsed, longer than planned",
	} {
		if done(elapsed, false, true); !strings.HasSuffix(out.String(), want+"\n") {
			t.Errorf("want %q at the end of\n%s", want, out.String())
		}
	}

	p.open = true
	if done(30*time.Second, false, true); !strings.HasSuffix(out.String(), "30s elapsed, up to about 1m30s left\n") {
		t.Errorf("want an upper bound at the end of\n%s", out.String())
	}
}
