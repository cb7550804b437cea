package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vitrine"
)

// MaxOutput limits what a generator may write to standard output, in bytes. The
// report of a trial of one day, with one entry a second, is smaller.
const MaxOutput = 16 << 20

// maxCauses limits the causes of failure in one report.
const maxCauses = 256

// MinOffered is the smallest share of its schedule that a generator must offer. Below that, the
// trial shows nothing about the function.
const MinOffered = 0.99

// ReasonGenerator is the reason of a trial that offered less than MinOffered. It also begins the
// reason if the generator could not run the trial, had another window or schedule, or sent too few
// calls for a high threshold.
const ReasonGenerator = "generator"

// ErrReport is wrapped by every error of ParseReport.
var ErrReport = errors.New("generator's report")

// ParseReport reads a generator's standard output. The last line that is not
// empty is the report. Earlier lines are ignored, but must not be JSON objects.
// ParseReport is strict: its error names the first value that is not consistent.
func ParseReport(r io.Reader) (Report, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxOutput+1))
	if err != nil {
		return Report{}, fmt.Errorf("%w: read standard output: %w", ErrReport, err)
	}
	if len(data) > MaxOutput {
		return Report{}, fmt.Errorf("%w: more than %d bytes on standard output: want one line of JSON", ErrReport, MaxOutput)
	}
	line, err := reportLine(data)
	if err != nil {
		return Report{}, err
	}
	var report Report
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		return Report{}, fmt.Errorf("%w: %w in %s", ErrReport, err, excerpt(line))
	}
	if rest := bytes.TrimSpace(line[decoder.InputOffset():]); len(rest) > 0 {
		return Report{}, fmt.Errorf("%w: text after the JSON object: %s", ErrReport, excerpt(rest))
	}
	if err := report.check(); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrReport, err)
	}
	return report, nil
}

// reportLine returns the last line that is not empty.
func reportLine(data []byte) ([]byte, error) {
	var last []byte
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if len(last) > 0 && last[0] == '{' {
			return nil, fmt.Errorf("%w: text after the line of JSON: %s", ErrReport, excerpt(line))
		}
		last = line
	}
	switch {
	case last == nil:
		return nil, fmt.Errorf("%w: standard output is empty: want one line of JSON", ErrReport)
	case last[0] != '{':
		return nil, fmt.Errorf("%w: the last line is not a JSON object: %s", ErrReport, excerpt(last))
	}
	return last, nil
}

// excerpt quotes the beginning of text, which may be long or binary.
func excerpt(text []byte) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// check returns an error for the first value that is not consistent. It accepts
// any report with an Error.
func (r *Report) check() error {
	if r.Error != "" {
		return nil
	}
	if !(r.Duration > 0) || r.Duration > maxSeconds {
		return fmt.Errorf("duration_s is %v: want seconds, above 0 and at most %d", r.Duration, maxSeconds)
	}
	if !(r.WindowStart >= 0) || math.IsInf(r.WindowStart, 0) {
		return fmt.Errorf("window_start_unix_s is %v: want seconds since 1970", r.WindowStart)
	}
	const maxAnswered = 2 * maxSeconds // the last calls of the longest window may end after it
	if !(r.Answered >= 0) || r.Answered > maxAnswered {
		return fmt.Errorf("answered_s is %v: want seconds, at most %d", r.Answered, maxAnswered)
	}
	if !(r.Late >= 0) || r.Late > maxAnswered {
		return fmt.Errorf("late_s is %v: want seconds, at most %d", r.Late, maxAnswered)
	}
	if err := r.checkCounts(); err != nil {
		return err
	}
	if err := r.checkSeconds(); err != nil {
		return err
	}
	if err := r.checkInFlight(); err != nil {
		return err
	}
	return r.checkLatency()
}

func (r *Report) checkCounts() error {
	if r.Scheduled < 0 || r.Offered < 0 || r.Succeeded < 0 {
		return fmt.Errorf("a count is below 0: scheduled %d, offered %d, succeeded %d", r.Scheduled, r.Offered, r.Succeeded)
	}
	if r.Offered > r.Scheduled {
		return fmt.Errorf("offered %d is more than scheduled %d", r.Offered, r.Scheduled)
	}
	if len(r.Failed) > maxCauses {
		return fmt.Errorf("failed names %d causes: at most %d", len(r.Failed), maxCauses)
	}
	ended := r.Succeeded
	for cause, n := range r.Failed {
		if n < 0 {
			return fmt.Errorf("failed %q is %d: below 0", cause, n)
		}
		if cause == "" || len(cause) > 64 {
			return fmt.Errorf("failed names a cause of %d bytes: want 1 to 64", len(cause))
		}
		if n > math.MaxInt64-ended {
			return fmt.Errorf("failed %q is %d: too many", cause, n)
		}
		ended += n
	}
	if ended != r.Offered {
		return fmt.Errorf("succeeded and failed add up to %d but offered is %d: want equal numbers, because every offered call succeeds or fails", ended, r.Offered)
	}
	return nil
}

// measured is how far duration_s may be off, in seconds, because it is the window that the generator
// measured.
const measured = 0.05

func (r *Report) checkSeconds() error {
	n := len(r.Seconds.Scheduled)
	if low, high := float64(n-1), float64(n)+measured; r.Duration <= low || r.Duration > high {
		return fmt.Errorf("seconds.scheduled has %d entries for duration_s %v: want one a second", n, r.Duration)
	}
	if err := checkSeries("scheduled", r.Seconds.Scheduled, n, r.Scheduled); err != nil {
		return err
	}
	if err := checkSeries("offered", r.Seconds.Offered, n, r.Offered); err != nil {
		return err
	}
	if err := checkSeries("succeeded", r.Seconds.Succeeded, n, r.Succeeded); err != nil {
		return err
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Seconds.Failed)) {
		if _, ok := r.Failed[cause]; !ok {
			return fmt.Errorf("seconds.failed names %q but failed does not", cause)
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Failed)) {
		if r.Failed[cause] == 0 && r.Seconds.Failed[cause] == nil {
			continue
		}
		if err := checkSeries(fmt.Sprintf("failed[%q]", cause), r.Seconds.Failed[cause], n, r.Failed[cause]); err != nil {
			return err
		}
	}
	return nil
}

// checkInFlight accepts one entry more or less than the window holds, because the window's last
// 100 ms may be incomplete.
func (r *Report) checkInFlight() error {
	if r.InFlight == nil {
		return nil
	}
	want := r.Duration / vitrine.InFlightEvery.Seconds()
	if n := float64(len(r.InFlight)); n < want-1.5 || n > want+1.5 {
		return fmt.Errorf("in_flight has %d entries for duration_s %v: want one every %s", len(r.InFlight), r.Duration, vitrine.InFlightEvery)
	}
	for i, n := range r.InFlight {
		if n < 0 {
			return fmt.Errorf("in_flight[%d] is %d: below 0", i, n)
		}
	}
	return nil
}

func checkSeries(name string, series []int64, length int, total int64) error {
	if len(series) != length {
		return fmt.Errorf("seconds.%s has %d entries, seconds.scheduled %d", name, len(series), length)
	}
	var sum int64
	for i, v := range series {
		if v < 0 || v > math.MaxInt64-sum {
			return fmt.Errorf("seconds.%s[%d] is %d: below 0 or too many", name, i, v)
		}
		sum += v
	}
	if sum != total {
		return fmt.Errorf("seconds.%s adds up to %d but the total is %d", name, sum, total)
	}
	return nil
}

func (r *Report) checkLatency() error {
	h, err := r.Histogram()
	if err != nil {
		return err
	}
	if h.TotalCount() != r.Succeeded {
		return fmt.Errorf("latency holds %d values but succeeded is %d", h.TotalCount(), r.Succeeded)
	}
	return nil
}

// Histogram decodes Latency. An empty Latency gives an empty histogram.
func (r *Report) Histogram() (*hdrhistogram.Histogram, error) {
	if r.Latency == "" {
		return newHistogram(), nil
	}
	h, err := hdrhistogram.Decode([]byte(r.Latency))
	if err != nil {
		return nil, fmt.Errorf("latency is not an HdrHistogram V2 (compressed) in base64: %w", err)
	}
	return h, nil
}

// Outcome converts the report to the outcome of the trial with the key. window is the length of the
// window that the trial asked for. Outcome sets every field except Use. The outcome is invalid if
// the generator could not run the trial, if its window or schedule was not that of the trial, or if
// it offered less than MinOffered of its schedule.
func (r *Report) Outcome(key vitrine.Key, window time.Duration) (vitrine.Outcome, error) {
	if r.Error != "" {
		return vitrine.Outcome{Key: key, Reason: ReasonGenerator + ": " + r.Error}, nil
	}
	h, err := r.Histogram()
	if err != nil {
		return vitrine.Outcome{}, fmt.Errorf("%w: %w", ErrReport, err)
	}
	o := vitrine.Outcome{
		Key:       key,
		Duration:  time.Duration(r.Duration * float64(time.Second)),
		Scheduled: r.Scheduled, Offered: r.Offered, Succeeded: r.Succeeded, Failed: r.Failed,
		Seconds:  make([]vitrine.Second, len(r.Seconds.Scheduled)),
		InFlight: r.InFlight, Answered: time.Duration(r.Answered * float64(time.Second)), Late: time.Duration(r.Late * float64(time.Second)),
		Valid: true,
	}
	if h.TotalCount() > 0 {
		const ms = 1e6 // nanoseconds
		o.Latency = vitrine.Latency{
			P50: float64(h.ValueAtQuantile(50)) / ms,
			P95: float64(h.ValueAtQuantile(95)) / ms,
			P99: float64(h.ValueAtQuantile(99)) / ms,
		}
	}
	for i := range o.Seconds {
		s := vitrine.Second{Scheduled: r.Seconds.Scheduled[i], Offered: r.Seconds.Offered[i], Succeeded: r.Seconds.Succeeded[i]}
		for _, series := range r.Seconds.Failed {
			s.Failed += series[i]
		}
		o.Seconds[i] = s
	}
	asked := window.Seconds()
	switch least, most := scheduleBounds(key.Rate * asked); {
	case math.Abs(r.Duration-asked) > measured+(1-MinOffered)*asked:
		o.Valid, o.Reason = false, fmt.Sprintf("%s: its window lasted %g s: want %g s, because calls spread over another time have another rate",
			ReasonGenerator, r.Duration, asked)
	case r.Scheduled == 0:
		o.Valid, o.Reason = false, ReasonGenerator+": no call was due inside the window"
	case r.Scheduled < least || r.Scheduled > most:
		o.Valid, o.Reason = false, fmt.Sprintf("%s: %d calls were due inside the window: want %d to %d at a rate of %g for %s: does the generator read its rate and duration?",
			ReasonGenerator, r.Scheduled, least, most, key.Rate, window)
	case r.IsLate():
		o.Valid, o.Reason = false, ReasonGenerator
	}
	return o, nil
}

// IsLate reports whether the generator offered less than MinOffered of its schedule.
func (r *Report) IsLate() bool { return float64(r.Offered) < MinOffered*float64(r.Scheduled) }

// scheduleBounds returns the fewest and the most calls of a schedule with this mean. A schedule
// without calls has a reason of its own. A paced schedule is always within these bounds. A Poisson
// one is beyond them less than once in 50 million trials.
func scheduleBounds(mean float64) (least, most int64) {
	slack := 4 + 6*math.Sqrt(mean) + (1-MinOffered)*mean
	return max(1, int64(math.Ceil(mean-slack))), int64(math.Floor(mean + slack))
}

// Print writes the report as the one line that ParseReport reads.
func (r *Report) Print(w io.Writer) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}
