package trial

import (
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/load"
)

// TestClockSetDuringATrial checks that a trial is disturbed, and so repeated, if the time of day was
// set while it ran.
func TestClockSetDuringATrial(t *testing.T) {
	const took = 30 * time.Second
	for step, disturbed := range map[time.Duration]bool{
		0: false, 20 * time.Millisecond: false, 80 * time.Millisecond: true, -500 * time.Millisecond: true,
	} {
		o := vitrine.Outcome{Valid: true}
		judgeClock(&o, took+step, took)
		if o.Disturbed != disturbed || o.Valid == disturbed || disturbed != strings.Contains(o.Reason, "the time of day was set by "+step.String()) {
			t.Errorf("set by %v: valid %t, disturbed %t, reason %q", step, o.Valid, o.Disturbed, o.Reason)
		}
	}
}

// TestStartOfTheWindow checks that the window begins where the report says, but not outside the trial.
func TestStartOfTheWindow(t *testing.T) {
	started := time.Unix(1_800_000_000, 0)
	expected, ended := started.Add(time.Second), started.Add(10*time.Second)
	for _, c := range []struct {
		report float64 // seconds since 1970
		want   time.Time
		valid  bool
	}{
		{0, expected, true},
		{1_800_000_002.5, started.Add(2500 * time.Millisecond), true},
		{1_800_000_010, ended, true}, // a simulated trial begins when it is over
		{1_800_003_602, expected, false},
		{1_799_999_999, expected, false},
		{1_800_000_002_500, expected, false},         // milliseconds
		{1_800_000_002_500_000_000, expected, false}, // nanoseconds
		{2, expected, false},                         // since the trial began
	} {
		got, err := windowStart(load.Report{WindowStart: c.report}, expected, started, ended)
		if !got.Equal(c.want) || c.valid != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "generator: window_start_unix_s is ") {
			t.Errorf("window_start_unix_s %v: got %v, error %v, want %v", c.report, got, err, c.want)
		}
	}
}

func TestTimeForTheLastAnswers(t *testing.T) {
	for _, c := range []struct {
		params map[string]string
		want   time.Duration
	}{
		{nil, 0},
		{map[string]string{"timeout": "10s", "hold": "20s"}, 140 * time.Second},
		{map[string]string{"timeout": "2s", "call_time": "4m"}, 264 * time.Second},
		{map[string]string{"timeout": "soon", "stay": "1s"}, time.Second},
	} {
		if got := answerTime(c.params); got != c.want {
			t.Errorf("%v: got %v, want %v", c.params, got, c.want)
		}
	}
}

// TestKilledProcessesAreNoted checks that a trial says which instances lost processes for lack of
// memory, and stays valid.
func TestKilledProcessesAreNoted(t *testing.T) {
	o := vitrine.Outcome{Valid: true}
	noteKilled(&o, nil)
	if o.Reason != "" {
		t.Errorf("without killed processes: got reason %q", o.Reason)
	}
	o.Reason = "a note"
	noteKilled(&o, map[string]int{"sprout-1": 3, "bono-1": 1})
	if want := "a note; the kernel killed 1 of bono-1's processes for lack of memory; the kernel killed 3 of sprout-1's processes for lack of memory"; !o.Valid || o.Reason != want {
		t.Errorf("valid %t, reason %q, want %q", o.Valid, o.Reason, want)
	}
}

// TestUnsentCallsThatDecide judges trials of 1000 calls.
func TestUnsentCallsThatDecide(t *testing.T) {
	for _, c := range []struct {
		offered, succeeded int64
		thresholds         []float64
		valid              bool
	}{
		{1000, 1000, []float64{1}, true},
		{995, 995, []float64{0.9}, true},
		{995, 895, []float64{0.9}, true}, // few unsent calls, compared with the failures
		{990, 970, []float64{0.98}, true},
		{995, 995, []float64{0.999}, false},
		{999, 999, []float64{0.999}, true}, // passes even so
		{999, 999, []float64{1}, false},
		{999, 998, []float64{1}, true}, // fails in any case
		{995, 980, []float64{0.999, 0.9}, true},
		{995, 995, []float64{0.999, 0.9}, false},
		{995, 995, []float64{1, 0.999, 0.9}, false},
	} {
		o := vitrine.Outcome{Scheduled: 1000, Offered: c.offered, Succeeded: c.succeeded, Valid: true}
		judgeUnsent(&o, c.thresholds)
		if o.Valid != c.valid || o.Valid != (o.Reason == "") || !o.Valid && !strings.HasPrefix(o.Reason, "generator: ") {
			t.Errorf("%+v: valid %v, reason %q", c, o.Valid, o.Reason)
		}
	}
	invalid := vitrine.Outcome{Scheduled: 1000, Offered: 500, Succeeded: 500, Reason: "generator"}
	if judgeUnsent(&invalid, []float64{0.999}); invalid.Valid || invalid.Reason != "generator" {
		t.Errorf("an invalid trial became %+v", invalid)
	}
}
