package load

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vitrine"
)

// The histogram covers latencies from a microsecond to an hour, with three
// digits.
const (
	lowestLatency  = int64(time.Microsecond)
	highestLatency = int64(time.Hour)
	latencyDigits  = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(lowestLatency, highestLatency, latencyDigits)
}

// A Recorder counts the calls of one trial into a Report. All times are relative to the start of
// the window. The totals count calls due inside the window. The calls in flight include the
// warm-up, so a generator must record every call. Calls may be recorded in any order. The methods
// allocate only at the first failure of each cause. Only one goroutine may use a Recorder.
type Recorder struct {
	duration  time.Duration
	report    Report
	histogram *hdrhistogram.Histogram
	answered  time.Duration // end of the last call due in the window
	late      time.Duration // longest time by which a call due in the window began late
	// changes are the differences between the samples of Report.InFlight.
	changes []int64
}

// NewRecorder returns a Recorder for a window of duration seconds.
func NewRecorder(duration float64) *Recorder {
	n := int(math.Ceil(duration - 1e-9))
	return &Recorder{
		duration:  time.Duration(duration * float64(time.Second)),
		histogram: newHistogram(),
		changes:   make([]int64, int(math.Ceil(duration/vitrine.InFlightEvery.Seconds()-1e-9))),
		report: Report{
			Duration: duration,
			Failed:   map[string]int64{},
			Seconds: Seconds{
				Scheduled: make([]int64, n), Offered: make([]int64, n), Succeeded: make([]int64, n),
				Failed: map[string][]int64{},
			},
		},
	}
}

// second returns the index of the second in which due is. ok is false outside the window.
func (r *Recorder) second(due time.Duration) (int, bool) {
	if due < 0 || due >= r.duration {
		return 0, false
	}
	return int(due / time.Second), true
}

// Scheduled counts a due call.
func (r *Recorder) Scheduled(due time.Duration) {
	if i, ok := r.second(due); ok {
		r.report.Scheduled++
		r.report.Seconds.Scheduled[i]++
	}
}

// Begun records that the generator began a due call at the time at, which may be before it sent the call.
func (r *Recorder) Begun(due, at time.Duration) {
	if _, ok := r.second(due); ok {
		r.late = max(r.late, at-due)
	}
}

// inFlight adds change to the calls in flight in all samples from at on.
func (r *Recorder) inFlight(at time.Duration, change int64) {
	i := max(0, int((at+vitrine.InFlightEvery-1)/vitrine.InFlightEvery))
	if i < len(r.changes) {
		r.changes[i] += change
	}
}

// grace is how long after the end of the window a late call may still begin.
const grace = vitrine.MostLate

// TooLate reports whether it is too late to begin a call of the window. A generator that is slower
// than its rate must not begin such a call, and not count it as offered.
func (r *Recorder) TooLate(now time.Duration) bool { return now > r.duration+grace }

// Offered counts a call that was sent.
func (r *Recorder) Offered(due, sent time.Duration) {
	r.inFlight(sent, 1)
	if i, ok := r.second(due); ok {
		r.report.Offered++
		r.report.Seconds.Offered[i]++
	}
}

// Succeeded counts a call that was offered and succeeded. latency is the time
// from its due time to its last answer.
func (r *Recorder) Succeeded(due, latency time.Duration) { r.SucceededAt(due, due+latency, latency) }

// SucceededAt is like Succeeded for a call that ended at the time ended, and whose latency leaves out
// a part of the call.
func (r *Recorder) SucceededAt(due, ended, latency time.Duration) {
	r.inFlight(ended, -1)
	i, ok := r.second(due)
	if !ok {
		return
	}
	r.answered = max(r.answered, ended)
	r.report.Succeeded++
	r.report.Seconds.Succeeded[i]++
	// RecordValue cannot fail within the histogram's range.
	_ = r.histogram.RecordValue(min(max(int64(latency), lowestLatency), highestLatency))
}

// Failed counts a call that was offered and failed with cause at the time ended.
func (r *Recorder) Failed(due, ended time.Duration, cause string) {
	r.inFlight(ended, -1)
	i, ok := r.second(due)
	if !ok {
		return
	}
	r.answered = max(r.answered, ended)
	series := r.report.Seconds.Failed[cause]
	if series == nil {
		series = make([]int64, len(r.report.Seconds.Scheduled))
		r.report.Seconds.Failed[cause] = series
	}
	r.report.Failed[cause]++
	series[i]++
}

// Report returns the counts. windowStart is the time at which the window began.
func (r *Recorder) Report(windowStart time.Time) (Report, error) {
	latency, err := r.histogram.EncodeV2()
	if err != nil {
		return Report{}, fmt.Errorf("encode latency: %w", err)
	}
	report := r.report
	report.Latency, report.Answered, report.Late = string(latency), r.answered.Seconds(), r.late.Seconds()
	report.InFlight = make([]int64, len(r.changes))
	var open int64
	for i, change := range r.changes {
		open += change
		report.InFlight[i] = open
	}
	report.WindowStart = float64(windowStart.UnixNano()) / 1e9
	return report, nil
}
