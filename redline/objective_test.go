package redline

import (
	"testing"
	"time"

	"vitrine/director/client"
	"vitrine/director/latency"
)

// TestBrokenIsMoreThanChance checks that one failure of 60 proves nothing, and 12 more do. Without an
// objective nothing is broken.
func TestBrokenIsMoreThanChance(t *testing.T) {
	span := func(failed uint64) client.Span {
		s := client.Span{Ended: map[string]uint64{"succeeded": 60 - failed, "failed": failed}}
		s.Latencies.Add(latency.Bucket(10_000), 60)
		return s
	}
	o := Objective{Success: 0.99, Latency: 100 * time.Millisecond, Quantile: 0.99}
	for name, c := range map[string]struct {
		objective Objective
		spans     []client.Span
		want      bool
	}{
		"no transactions": {o, nil, false},
		"one failure":     {o, []client.Span{span(1)}, false},
		"13 failures":     {o, []client.Span{span(1), span(12)}, true},
		"no objective":    {Objective{}, []client.Span{span(60)}, false},
	} {
		if got := c.objective.Broken(c.spans...); got != c.want {
			t.Errorf("%s: got broken %t, want %t", name, got, c.want)
		}
	}
}
