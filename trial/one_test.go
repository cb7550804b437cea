package trial

import (
	"strings"
	"testing"

	"vitrine"
)

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
