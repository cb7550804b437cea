package load

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// recorded returns a report of a window of 2.5 s with 10 calls: 7 succeed after 1
// to 7 ms, 2 fail, 1 is not sent.
func recorded(t testing.TB) Report {
	t.Helper()
	rec := NewRecorder(2.5)
	rec.Begun(0, time.Second)
	schedule := Trial{Rate: 4, Warmup: 1, Duration: 2.5}.Schedule(Paced)
	n := 0
	for due, ok := schedule.Next(); ok; due, ok = schedule.Next() {
		rec.Scheduled(due)
		if due >= 0 {
			n++
		}
		switch n {
		case 10:
			continue
		case 8:
			rec.Failed(due, due, "503")
		case 9:
			rec.Failed(due, due, "timeout")
		default:
			rec.Succeeded(due, time.Duration(n)*time.Millisecond)
		}
		rec.Offered(due, due)
	}
	report, err := rec.Report(time.Unix(1000, 500_000_000))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func printed(t testing.TB, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportRoundTrip(t *testing.T) {
	text := "loading scenario\n\n" + printed(t, recorded(t)) + "\n"
	r, err := ParseReport(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if r.Scheduled != 10 || r.Offered != 9 || r.Succeeded != 7 || r.Failed["503"] != 1 || r.Failed["timeout"] != 1 {
		t.Errorf("got counts %+v", r)
	}
	if got := r.Seconds.Scheduled; len(got) != 3 || got[0] != 4 || got[1] != 4 || got[2] != 2 {
		t.Errorf("seconds.scheduled = %v, want 4 4 2", got)
	}
	if got := r.Seconds.Failed["503"]; got[1] != 1 {
		t.Errorf("seconds.failed[503] = %v, want it in the second second", got)
	}
	if r.WindowStart != 1000.5 {
		t.Errorf("window start: got %v, want 1000.5", r.WindowStart)
	}
	o, err := r.Outcome(vitrine.Key{Seq: 3, Rate: 4}, 2500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if o.Seq != 3 || o.Duration != 2500*time.Millisecond || o.Late != time.Second || o.Valid || o.Reason != ReasonGenerator {
		t.Errorf("got outcome %+v", o)
	}
	if o.Latency.P50 < 3.99 || o.Latency.P50 > 4.01 || o.Latency.P99 < 6.99 || o.Latency.P99 > 7.01 {
		t.Errorf("latency = %+v, want 4 ms and 7 ms", o.Latency)
	}
	if want := (vitrine.Second{Scheduled: 4, Offered: 4, Succeeded: 3, Failed: 1}); o.Seconds[1] != want {
		t.Errorf("second 1 = %+v, want %+v", o.Seconds[1], want)
	}
}

func TestOutcomeValidity(t *testing.T) {
	for _, c := range []struct {
		offered  int
		rate     float64
		duration float64 // the report's; the trial asks for 1 s
		reason   string  // empty if valid
	}{
		{1000, 1000, 1, ""}, {990, 1000, 1, ""}, {989, 1000, 1, ReasonGenerator}, {0, 1000, 1, ReasonGenerator},
		{1000, 1190, 1, ""}, {1000, 830, 1, ""},
		// The generator had a rate of its own.
		{1000, 100, 1, "want 35 to 165"}, {1000, 1300, 1, "want 1067 to 1533"}, {1000, 800, 1, "want 619 to 981"},
		// It made as many calls as were due, but in another time.
		{1000, 1000, 1.05, ""}, {1000, 1000, 0.95, ""},
		{1000, 1000, 2, "its window lasted 2 s: want 1 s"}, {1000, 1000, 0.5, "its window lasted 0.5 s: want 1 s"},
	} {
		rec := NewRecorder(c.duration)
		for i := range 1000 {
			rec.Scheduled(0)
			if i < c.offered {
				rec.Offered(0, 0)
				rec.Succeeded(0, time.Millisecond)
			}
		}
		r, err := rec.Report(time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		o, err := r.Outcome(vitrine.Key{Rate: c.rate}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if o.Valid != (c.reason == "") || !strings.Contains(o.Reason, c.reason) {
			t.Errorf("offered %d of 1000 at a rate of %g in %g s: valid %v, reason %q, want %q", c.offered, c.rate, c.duration, o.Valid, o.Reason, c.reason)
		}
	}
	failed := Report{Error: "no such scenario"}
	o, err := failed.Outcome(vitrine.Key{}, time.Second)
	if err != nil || o.Valid || o.Reason != "generator: no such scenario" {
		t.Errorf("report of an error: got %+v, %v", o, err)
	}
}

func TestParseReportRefuses(t *testing.T) {
	change := func(do func(*Report)) string {
		r := recorded(t)
		do(&r)
		return printed(t, r)
	}
	good := printed(t, recorded(t))
	other := NewRecorder(1)
	otherReport, err := other.Report(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "\n \n", "standard output is empty"},
		{"garbage", "Segmentation fault\n", "not a JSON object"},
		{"binary", "\x00\xff\xfe", "not a JSON object"},
		{"two reports", good + good, "text after the line of JSON"},
		{"chatter after", good + "done\n", "text after the line of JSON"},
		{"two objects", strings.TrimSpace(good) + "{}", "text after the JSON object"},
		{"half", good[:len(good)/2], "unexpected EOF"},
		{"empty object", "{}", "duration_s is 0"},
		{"NaN", strings.Replace(good, "2.5", "NaN", 1), "invalid character"},
		{"huge number", strings.Replace(good, "2.5", "1e999", 1), "1e999"},
		{"infinite window", strings.Replace(good, "2.5", "1e99", 1), "duration_s"},
		{"wrong type", strings.Replace(good, `"scheduled":10`, `"scheduled":"10"`, 1), "scheduled"},
		{"fraction", strings.Replace(good, `"scheduled":10`, `"scheduled":10.5`, 1), "scheduled"},
		{"unknown field", strings.Replace(good, `"offered"`, `"offerd"`, 1), "offerd"},
		{"negative", change(func(r *Report) { r.Succeeded = -1 }), "below 0"},
		{"negative cause", change(func(r *Report) { r.Failed["503"] = -1 }), "below 0"},
		{"answered before the window", change(func(r *Report) { r.Answered = -1 }), "answered_s is -1"},
		{"answered days later", change(func(r *Report) { r.Answered = 200_000 }), "answered_s is 200000"},
		{"late before the window", change(func(r *Report) { r.Late = -1 }), "late_s is -1"},
		{"overflow", change(func(r *Report) { r.Failed["503"] = 1<<63 - 1 }), "too many"},
		{"offered too much", change(func(r *Report) { r.Offered = 11 }), "more than scheduled"},
		{"lost calls", change(func(r *Report) { r.Offered = 10 }), "add up to 9"},
		{"nameless cause", change(func(r *Report) { r.Failed[""] = 1; r.Offered = 10 }), "cause of 0 bytes"},
		{"array too short", change(func(r *Report) { r.Seconds.Offered = r.Seconds.Offered[:2] }), "seconds.offered has 2 entries"},
		{"arrays of another window", change(func(r *Report) { r.Duration = 7 }), "one a second"},
		{"wrong sum", change(func(r *Report) { r.Seconds.Succeeded[0]++ }), "seconds.succeeded adds up to 8"},
		{"negative entry", change(func(r *Report) { r.Seconds.Scheduled[0] = -4 }), "seconds.scheduled[0] is -4"},
		{"cause without series", change(func(r *Report) { delete(r.Seconds.Failed, "503") }), `failed["503"]`},
		{"series without cause", change(func(r *Report) { r.Seconds.Failed["500"] = []int64{0, 0, 0} }), `"500"`},
		{"bad histogram", change(func(r *Report) { r.Latency = "AAAA" }), "HdrHistogram"},
		{"no histogram", change(func(r *Report) { r.Latency = "" }), "latency holds 0"},
		{"histogram of other calls", change(func(r *Report) { r.Latency = otherReport.Latency }), "latency holds 0"},
		{"too long", strings.Repeat(" ", MaxOutput) + good, "more than"},
	} {
		_, err := ParseReport(strings.NewReader(c.text))
		if err == nil || !errors.Is(err, ErrReport) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(printed(f, recorded(f))))
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"error":"x"}`))
	f.Add([]byte(`{"error":"x","seconds":{"scheduled":[1,2]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseReport(strings.NewReader(string(data)))
		if err != nil {
			if !errors.Is(err, ErrReport) {
				t.Fatalf("the error does not wrap ErrReport: %v", err)
			}
			return
		}
		o, err := r.Outcome(vitrine.Key{}, time.Second)
		if err != nil {
			t.Fatalf("the accepted report has no outcome: %v", err)
		}
		var total vitrine.Second
		for _, s := range o.Seconds {
			total.Scheduled += s.Scheduled
			total.Failed += s.Failed
		}
		if total.Scheduled != o.Scheduled || total.Failed != o.FailedTotal() {
			t.Fatalf("seconds %+v do not add up to %+v", total, o)
		}
		if _, err := json.Marshal(o); err != nil {
			t.Fatalf("the accepted report cannot be encoded: %v", err)
		}
	})
}
