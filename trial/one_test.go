package trial

import (
	"strings"
	"testing"
	"time"

	"vitrine"
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
