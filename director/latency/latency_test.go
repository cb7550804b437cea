package latency

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestBuckets checks that buckets join without gaps, that each holds the latencies within
// its limits, and that only the first and the last are wider than an eighth.
func TestBuckets(t *testing.T) {
	last := uint64(0)
	for bucket := range Buckets {
		from, below := Limits(bucket)
		if from != last || below <= from {
			t.Fatalf("bucket %d covers %d to %d, but the previous bucket ends at %d", bucket, from, below, last)
		}
		for _, at := range []uint64{from, (from + below) / 2, below - 1} {
			if got := Bucket(at); got != bucket {
				t.Errorf("%d us is in bucket %d, want %d", at, got, bucket)
			}
		}
		if bucket > 0 && bucket < Buckets-1 && 8*(below-from) > from {
			t.Errorf("bucket %d starts at %d and is %d wide, want at most an eighth of its start", bucket, from, below-from)
		}
		last = below
	}
	if got := Bucket(math.MaxUint64); got != Buckets-1 {
		t.Errorf("the largest latency is in bucket %d, want the last bucket", got)
	}
}

// TestQuantile compares quantiles and shares with the exact values of the latencies.
func TestQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Above(0) != 0 {
		t.Error("an empty histogram reports latencies")
	}
	var all []float64
	for range 100_000 {
		at := math.Exp(8 + 1.2*random.NormFloat64()) // around 3 ms
		all = append(all, at)
		h.Add(Bucket(uint64(at)), 1)
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		want := all[int(q*float64(len(all)))-1]
		got := float64(h.Quantile(q)) / float64(time.Microsecond)
		if math.Abs(got-want) > 0.05*want {
			t.Errorf("quantile %g: got %.0f us, want %.0f us", q, got, want)
		}
		above := h.Above(time.Duration(want * float64(time.Microsecond)))
		if beyond := (1 - q) * float64(len(all)); math.Abs(above-beyond) > 0.1*beyond+1 {
			t.Errorf("got %.0f latencies above quantile %g, want %.0f", above, q, beyond)
		}
	}
}

// TestSince checks that the difference of two readings has the latencies between them. A histogram
// that began again counts from 0.
func TestSince(t *testing.T) {
	var before, after Histogram
	before.Add(5, 10)
	after.Merge(before)
	after.Add(5, 3)
	after.Add(7, 2)
	since := after.Since(before)
	if since.Count() != 5 || since.counts[5] != 3 || since.counts[7] != 2 {
		t.Errorf("%v", since.counts)
	}
	if again := before.Since(after); again.counts[5] != 10 {
		t.Errorf("%v", again.counts)
	}
	if n := after.Since(Histogram{}).Count(); n != 15 {
		t.Errorf("got %d latencies since the start, want 15", n)
	}
}

// TestJSON checks that JSON keeps a histogram, and that invalid histograms are errors.
func TestJSON(t *testing.T) {
	var h, read Histogram
	for _, bucket := range []int{0, 1, 40, Buckets - 1} {
		h.Add(bucket, uint64(bucket)+1)
	}
	text, err := json.Marshal(h)
	if err != nil || json.Unmarshal(text, &read) != nil || !slices.Equal(read.counts, h.counts) {
		t.Errorf("%s: %v, %v", text, read, err)
	}
	if text, err := json.Marshal(Histogram{}); err != nil || string(text) != "[]" {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []string{`{}`, `[[1]]x`, `[[0,1]]`, `[[80,1],[72,1]]`, `[[80,1],[80,1]]`, `[[-1,2]]`, `[[80,18446744073709551615]]`, `[[18446744073709551615,1]]`} {
		if json.Unmarshal([]byte(bad), &read) == nil {
			t.Errorf("decoding %s: got no error", bad)
		}
	}
}

// FuzzHistogram checks that a histogram does not change when it is written and read again.
func FuzzHistogram(f *testing.F) {
	for _, text := range []string{`[]`, `[[64,1],[72,5]]`, `[[1073741824,9]]`, `[[3,1],[5,2]]`, `null`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var h, again Histogram
		if json.Unmarshal(text, &h) != nil {
			return
		}
		out, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil || !slices.Equal(h.counts, again.counts) {
			t.Fatalf("%s became %s: %v", text, out, err)
		}
		if p50, p99 := h.Quantile(0.5), h.Quantile(0.99); p50 > p99 || p50 < 0 {
			t.Fatalf("%s: p50 %s, p99 %s", out, p50, p99)
		}
		if above := h.Above(time.Millisecond); above < 0 || above > float64(h.Count()) {
			t.Fatalf("histogram %s: got %g of %d latencies above 1ms", out, above, h.Count())
		}
	})
}
