package client

import (
	"testing"
	"time"

	"vitrine/director/latency"
)

// TestSpan checks rate, success and quantiles between two readings of two directors.
func TestSpan(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one := Instance{Transactions: 100, InFlight: 4, Dialogs: 7, DialogsBegun: 9, Ended: map[string]uint64{"succeeded": 90, "failed": 6}}
	one.Latencies.Add(latency.Bucket(1000), 96)
	two := Instance{Transactions: 10, InFlight: 1, Dialogs: -2, Ended: map[string]uint64{"succeeded": 9}}
	before := Read(at, one, two)
	if before.Begun != 110 || before.InFlight != 5 || before.Dialogs != 5 || before.Ended["succeeded"] != 99 {
		t.Errorf("%+v", before)
	}
	one.Transactions, two.Transactions = 200, 110
	one.Ended = map[string]uint64{"succeeded": 170, "failed": 7, "declined": 20}
	one.Latencies.Add(latency.Bucket(50_000), 99)
	two.Ended = map[string]uint64{"succeeded": 108, "unanswered": 1}
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
	again := Read(at.Add(3*time.Second), Instance{Transactions: 5}).Since(before)
	if again.Begun != 5 || again.Success() != 1 {
		t.Errorf("span of a restarted director: got %+v", again)
	}
	if (Span{}).Rate() != 0 {
		t.Error("a span of zero duration has a nonzero rate")
	}
}
