package main

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"vitrine/load"
)

func TestRecovery(t *testing.T) {
	for _, c := range []struct {
		each []float64
		want float64
	}{
		{[]float64{1, 0.99, 1}, 0},
		{[]float64{0.2, 0.9, 1, 1}, 2},
		{[]float64{0.2, 1, 0.98, 1}, 3}, // fell again
		{[]float64{1, 1, 0.5}, 3},       // low to the end
	} {
		if got := recovery(window{Each: c.each}); got != c.want {
			t.Errorf("%v: recovered after %g s, want %g", c.each, got, c.want)
		}
	}
}

// TestRecoveryRows checks that one deployment that recovers late or refuses an admitted call fails the
// row, and that each deployment is driven with both loads.
func TestRecoveryRows(t *testing.T) {
	for _, c := range []struct {
		each       []float64 // of the last deployment
		refused    float64   // by it
		late, lost bool
	}{
		{each: []float64{0.5, 1, 1}},
		{each: []float64{0.5, 0.5, 0.5, 1}, late: true},
		{each: []float64{1, 1, 1}, refused: 1, lost: true},
	} {
		driven, both := 0, 0
		m := meterOf(filepath.Join(t.TempDir(), "windows"), 900, &driven)
		drive := m.drive
		m.drive = func(ctx context.Context, w window) (window, error) {
			w, err := drive(ctx, w)
			if w.After == 2000 && w.Rate == 350 { // 4 and 0.7 times 500, which succeeds with 0.9
				if both++; both == m.rules.Repeats {
					w.Each, w.Admission.Refused = c.each, c.refused
				}
			}
			return w, err
		}
		rows, err := overloadRecovery(t.Context(), m)
		if err != nil || len(rows) != 2 || both != 5 {
			t.Fatalf("%d rows, %v, after %d deployments; want 2 after 5", len(rows), err, both)
		}
		if *rows[0].Holds == c.late || *rows[1].Holds == c.lost {
			t.Errorf("%+v: recovered %t after %g s, carried %t", c, *rows[0].Holds, *rows[0].Ours, *rows[1].Holds)
		}
	}
}

func TestWindowCounts(t *testing.T) {
	w := window{Rate: 10, Seconds: 2}
	w.count(load.Report{Scheduled: 20, Succeeded: 15, Seconds: load.Seconds{Scheduled: []int64{10, 10}, Succeeded: []int64{5, 10}}})
	if w.Success != 0.75 || w.Goodput != 7.5 || !slices.Equal(w.Each, []float64{0.5, 1}) {
		t.Errorf("got %+v", w)
	}
}

// TestLateChange checks that a rest between the overload and the window does not count as recovery.
func TestLateChange(t *testing.T) {
	for start, late := range map[float64]bool{109.9: false, 110: false, 110.2: false, 110.3: true, 109.7: true} {
		reports := []load.Report{{WindowStart: 100, Duration: 10}, {WindowStart: start, Duration: 10}}
		if got := lateChange(reports); (got != "") != late {
			t.Errorf("window from %g: %q", start, got)
		}
	}
	if got := lateChange([]load.Report{{WindowStart: 100, Duration: 10}}); got != "" {
		t.Errorf("a window without an overload: %q", got)
	}
}

func TestReadAdmission(t *testing.T) {
	log := "bono: ready on 10.0.0.1:5060\n# HELP bono_forwarded_total Requests.\n# TYPE bono_forwarded_total counter\nbono_forwarded_total 1.2e+06\n" +
		"bono_rejected_admitted_total 3\nbono_rejected_total 40\nbono_sprout_503_total 2\n"
	if got, err := readAdmission(log); err != nil || got != (admission{Requests: 1200003, Refused: 5}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, log := range []string{"", "bono: ready\nbono_forwarded_total 5\nbono_sprout_503_total 0\n", "bono: ready\nbono_forwarded_total 0\nbono_rejected_admitted_total 0\nbono_sprout_503_total 0\n"} {
		if got, err := readAdmission(log); err == nil {
			t.Errorf("%q: got %+v without an error", log, got)
		}
	}
}
