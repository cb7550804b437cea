package burst

import (
	"maps"
	"testing"
	"time"

	"vitrine/flex"
	"vitrine/flex/simulate"
	"vitrine/load"
)

// status returns the status of a system with so many instances and their capacity.
func status(instances int, capacity float64) *flex.Status {
	s := &flex.Status{Types: []flex.TypeStatus{{Capacity: capacity}}, Instances: make([]flex.InstanceStatus, instances)}
	for i := range s.Instances {
		s.Instances[i].Boot = float64(i)
	}
	return s
}

// TestLagIsTheLongestShortage samples a day in which the capacity is too low twice, for one second and
// for three.
func TestLagIsTheLongestShortage(t *testing.T) {
	d := newDay(Plan{Load: simulate.Load{10, 10, 10, 10, 10, 30, 30, 30, 30, 30, 10, 10}})
	for second, capacity := range []float64{20, 5, 10, 20, 20, 20, 29, 20, 40, 40, 40, 40} {
		n := 1
		if second >= 5 {
			n = 2
		}
		d.sample(second, time.Duration(second+1)*time.Second, status(n, capacity))
	}
	r := d.result
	if r.Lag != 3 || r.InstanceSeconds != 5*1+7*2 || r.Most != 2 || r.Boot != 1 {
		t.Errorf("lag %d s, %g instance-seconds, at most %d instances, boot time %g s: want 3, 19, 2 and 1", r.Lag, r.InstanceSeconds, r.Most, r.Boot)
	}
	if want := (Slice{Second: 5, Offered: 30, Capacity: 40, Instances: 2}); len(r.Slices) != 3 || r.Slices[1] != want {
		t.Errorf("slices %+v: want %+v in the middle of three", r.Slices, want)
	}
}

// TestSlicesThatMissTheObjective judges a day of four slices. The first one meets the objective exactly, the
// second has too many failed calls, the third has no calls, and the last one, of two seconds, is too slow.
func TestSlicesThatMissTheObjective(t *testing.T) {
	slow := load.NewRecorder(2)
	slow.Scheduled(0)
	slow.Offered(0, 0)
	slow.Succeeded(0, PerCall*Bound+100*time.Millisecond)
	late, err := slow.Report(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	d := newDay(Plan{Load: make(simulate.Load, 17)})
	for second := range d.Load {
		d.sample(second, 0, status(1, 20))
	}
	if err := d.judge([]load.Report{
		{Scheduled: 100, Offered: 100, Succeeded: 99, Failed: map[string]int64{"503": 1}},
		{Scheduled: 100, Offered: 99, Succeeded: 97, Failed: map[string]int64{"503": 2}},
		{},
		late,
	}); err != nil {
		t.Fatal(err)
	}
	r := d.result
	for i, want := range []bool{false, true, false, true} {
		if r.Slices[i].Over != want {
			t.Errorf("slice %d: %+v, want over: %t", i, r.Slices[i], want)
		}
	}
	if r.Over != sliceSeconds+2 || r.Calls != 201 || !maps.Equal(r.Failed, map[string]int64{"503": 3, "not offered in time": 1}) || r.FailedCalls() != 4 {
		t.Errorf("%d s over, %d calls, failed: %v", r.Over, r.Calls, r.Failed)
	}
}
