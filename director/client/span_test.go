package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/latency"
)

// TestSpansOfAnswers checks that all answers of a director with the counts of an instance can be compared
// with each other.
func TestSpansOfAnswers(t *testing.T) {
	count := 0
	director := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count += 10
		text := fmt.Sprintf(`{"name": "a", "transactions": %d}`, count)
		if r.URL.Path == "/v1/instances" {
			text = "[" + text + "]"
		}
		_, _ = w.Write([]byte(text))
	}))
	defer director.Close()
	c, err := New(Access{URL: director.URL, Token: "a token of sixteen bytes"})
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.Put(t.Context(), vitrine.Instance{Name: "a"})
	for name, again := range map[string]func() (Instance, error){
		"put":      func() (Instance, error) { return c.Put(t.Context(), vitrine.Instance{Name: "a"}) },
		"instance": func() (Instance, error) { return c.Instance(t.Context(), "a") },
		"instances": func() (Instance, error) {
			all, err := c.Instances(t.Context())
			if err != nil {
				return Instance{}, err
			}
			return all[0], nil
		},
	} {
		before := Read(time.Time{}, in)
		if err == nil {
			in, err = again()
		}
		if got := Read(time.Time{}, in).Since(before).Begun; err != nil || got != 10 {
			t.Errorf("%s: %d transactions since the answer before, want 10; error %v", name, got, err)
		}
	}
}

// TestSpan checks rate, success and quantiles between two readings of two directors.
func TestSpan(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	latencies := func(fast, slow uint64) (h latency.Histogram) {
		h.Add(latency.Bucket(1000), fast)
		h.Add(latency.Bucket(50_000), slow)
		return h
	}
	one := Instance{Transactions: 100, InFlight: 4, Proceeding: 3, Dialogs: 7, DialogsBegun: 9, Ended: map[string]uint64{"succeeded": 90, "failed": 6}, Latencies: latencies(96, 0), director: "a"}
	two := Instance{Transactions: 10, InFlight: 1, Dialogs: -2, Ended: map[string]uint64{"succeeded": 9}, director: "b"}
	before := Read(at, one, two)
	if before.Begun != 110 || before.InFlight != 5 || before.Waiting != 2 || before.Dialogs != 5 {
		t.Errorf("%+v", before)
	}
	one.Transactions, two.Transactions = 200, 110
	one.Ended, one.Latencies = map[string]uint64{"succeeded": 170, "failed": 7, "declined": 20}, latencies(96, 99)
	two.Ended = map[string]uint64{"succeeded": 107, "unanswered": 1, "proceeding": 1}
	two.Latencies.Add(latency.Bucket(900_000), 1)
	s := Read(at.Add(2*time.Second), one, two).Since(before)
	if s.Rate() != 100 || s.Completed() != 201 || s.Failures() != 2 || s.Success() != 199.0/201 {
		t.Errorf("got rate %g, %d completed, %d failures, success ratio %g", s.Rate(), s.Completed(), s.Failures(), s.Success())
	}
	if p50 := s.Quantile(0.5); p50 < 48*time.Millisecond || p50 > 56*time.Millisecond {
		t.Errorf("p50 is %s, want about 52ms, without the earlier transactions", p50)
	}
	if most := s.Quantile(1); most < 900*time.Millisecond {
		t.Errorf("longest latency: got %s, want at least 900ms", most)
	}
	one = Instance{Transactions: 5, Ended: map[string]uint64{"succeeded": 4}, Latencies: latencies(4, 0), director: "a"} // it has restarted
	two.Transactions, two.Ended, two.Latencies = 20, map[string]uint64{"succeeded": 19}, latency.Histogram{}
	s = Read(at.Add(3*time.Second), one, two).Since(before)
	if s.Begun != 15 || s.Completed() != 14 || s.Latencies.Count() != 4 {
		t.Errorf("span with a restarted director: got %+v", s)
	}
	alone := Read(at.Add(4*time.Second), two)
	if s := alone.Since(before); s.Begun != 10 {
		t.Errorf("span after a director has lost the instance: got %+v", s)
	}
	if s := Read(at.Add(5*time.Second), one, two).Since(alone); s.Begun != 0 {
		t.Errorf("span after a director has the instance again: got %+v", s)
	}
	unnamed := Instance{Transactions: 7}
	if s := Read(at.Add(time.Second), unnamed, unnamed).Since(Read(at, unnamed, Instance{})); s.Begun != 7 || s.Success() != 1 {
		t.Errorf("span of two instances without a director: got %+v", s)
	}
	if (Span{}).Rate() != 0 {
		t.Error("a span of zero duration has a nonzero rate")
	}
}
