package load

import (
	"math"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestInFlight checks each sample. It must count the calls that were sent and have not ended by
// then, including those of the warm-up.
func TestInFlight(t *testing.T) {
	r := NewRecorder(0.45) // samples at 0, 100, 200, 300 and 400 ms
	for _, c := range []struct{ due, sent, ended time.Duration }{
		{-900 * ms, -900 * ms, -1 * ms}, // ends before the window
		{-500 * ms, -500 * ms, 0},       // ends at the first sample, so it is not counted
		{-400 * ms, -300 * ms, 250 * ms},
		{10 * ms, 10 * ms, 90 * ms}, // between two samples
		{50 * ms, 100 * ms, 301 * ms},
		{100 * ms, 101 * ms, 10 * time.Second},
		{440 * ms, 441 * ms, 500 * ms}, // after the last sample
		{600 * ms, 600 * ms, 700 * ms}, // after the window
	} {
		r.Scheduled(c.due)
		r.Offered(c.due, c.sent)
		if c.due == 50*ms {
			r.Failed(c.due, c.ended, "503")
		} else {
			r.Succeeded(c.due, c.ended-c.due)
		}
	}
	r.Offered(-ms, -ms) // never ends
	report, err := r.Report(time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{2, 3, 4, 3, 2}; !slices.Equal(report.InFlight, want) {
		t.Errorf("in flight %v, want %v", report.InFlight, want)
	}
	if err := report.check(); err != nil {
		t.Error(err)
	}
	if report.Answered != 10 { // of the call that was due at 100 ms
		t.Errorf("the last call of the window ended after %v s, want 10 s", report.Answered)
	}
	if report.Offered != 4 || report.Failed["503"] != 1 {
		t.Errorf("offered %d, failed %v, want the 4 calls due in the window", report.Offered, report.Failed)
	}
}

// TestLatencyMayLeaveOutAPartOfTheCall checks that a call is in flight until it ends, however short
// its latency is.
func TestLatencyMayLeaveOutAPartOfTheCall(t *testing.T) {
	r := NewRecorder(0.5)
	r.Scheduled(0)
	r.Offered(0, 0)
	r.SucceededAt(0, 310*ms, 10*ms)
	report, err := r.Report(time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	latency, err := report.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(latency.Max()).Round(ms); got != 10*ms {
		t.Errorf("got a latency of %v", got)
	}
	if want := []int64{1, 1, 1, 1, 0}; report.Answered != 0.31 || !slices.Equal(report.InFlight, want) {
		t.Errorf("the call ended after %v s, in flight %v, want %v", report.Answered, report.InFlight, want)
	}
}

// TestInFlightIsOfTheWindow checks that windows of any length have one sample
// every 100 ms.
func TestInFlightIsOfTheWindow(t *testing.T) {
	for _, duration := range []float64{0.001, 0.1, 0.3, 0.7, 1, 2.5, 3, 59.95, 86400} {
		report, err := NewRecorder(duration).Report(time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(report.InFlight), int(math.Ceil(math.Round(duration*1e6)/1e5)); got != want {
			t.Errorf("%d samples in %v s, want %d", got, duration, want)
		}
		if err := report.checkInFlight(); err != nil {
			t.Error(err)
		}
	}
}

// TestLastCallEndsAfterTheLongestWindow checks that a report of the longest window is accepted if
// its last call times out after the window.
func TestLastCallEndsAfterTheLongestWindow(t *testing.T) {
	r := NewRecorder(maxSeconds)
	due := maxSeconds*time.Second - ms
	r.Scheduled(due)
	r.Offered(due, due)
	r.Failed(due, due+10*time.Second, "timeout")
	report, err := r.Report(time.Unix(1, 0))
	if err == nil {
		err = report.check()
	}
	if err != nil {
		t.Error(err)
	}
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	r := NewRecorder(100)
	r.Failed(0, 0, "timeout")
	due := -time.Second
	if allocs := testing.AllocsPerRun(1000, func() {
		due += 100 * ms
		r.Scheduled(due)
		r.Offered(due, due+ms)
		r.Succeeded(due, 300*ms)
		r.Scheduled(due)
		r.Offered(due, due+ms)
		r.Failed(due, due+time.Second, "timeout")
	}); allocs != 0 {
		t.Errorf("%v allocations a call", allocs)
	}
}
