// Package latency holds histograms of latencies with fixed buckets. The buckets grow with
// the latency: eight for each doubling, so that a bucket is at most an eighth wide. All
// histograms have the same buckets, so they add and subtract bucket by bucket.
package latency

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// The layout of the buckets, in microseconds.
const (
	fineBits = 3  // 8 buckets for each doubling
	lowBits  = 6  // the first bucket holds all below 64 us
	highBits = 26 // the last bucket holds all from 67 s
	// Buckets is the number of buckets of a histogram.
	Buckets = (highBits-lowBits)<<fineBits + 2
	// maxMicroseconds ends the last bucket. The director times no transaction for longer.
	maxMicroseconds = 1 << 30
)

// Bucket returns the bucket of a latency in microseconds.
func Bucket(microseconds uint64) int {
	n := bits.Len64(microseconds) - 1
	switch {
	case n < lowBits:
		return 0
	case n >= highBits:
		return Buckets - 1
	}
	return 1 + (n-lowBits)<<fineBits + int(microseconds>>(n-fineBits))&(1<<fineBits-1)
}

// Limits returns the bounds of a bucket in microseconds: from inclusive, below exclusive.
func Limits(bucket int) (from, below uint64) {
	switch {
	case bucket <= 0:
		return 0, 1 << lowBits
	case bucket >= Buckets-1:
		return 1 << highBits, maxMicroseconds
	}
	n := lowBits + (bucket-1)>>fineBits
	width := uint64(1) << (n - fineBits)
	from = 1<<n + uint64((bucket-1)&(1<<fineBits-1))*width
	return from, from + width
}

// A Histogram counts latencies by bucket. The zero value is empty. In JSON it is a list of
// the buckets that are not empty, in ascending order. Each is a pair: the bucket's
// exclusive upper bound in microseconds, and its number of latencies.
type Histogram struct{ counts []uint64 }

// Add adds n latencies to a bucket.
func (h *Histogram) Add(bucket int, n uint64) {
	if n == 0 {
		return
	}
	if h.counts == nil {
		h.counts = make([]uint64, Buckets)
	}
	h.counts[bucket] += n
}

// Merge adds all latencies of another histogram.
func (h *Histogram) Merge(other Histogram) {
	for bucket, n := range other.counts {
		h.Add(bucket, n)
	}
}

// Since returns the latencies that came after an earlier reading of the same histogram. If
// a bucket has fewer than before, the director has restarted, and the bucket counts from 0.
func (h Histogram) Since(before Histogram) (since Histogram) {
	for bucket, n := range h.counts {
		if before.counts != nil && before.counts[bucket] <= n {
			n -= before.counts[bucket]
		}
		since.Add(bucket, n)
	}
	return since
}

// Count returns the number of latencies.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// Each calls do for each bucket that is not empty, in ascending order.
func (h Histogram) Each(do func(bucket int, n uint64)) {
	for bucket, n := range h.counts {
		if n > 0 {
			do(bucket, n)
		}
	}
}

// Quantile returns the latency that a share q of the latencies, 0..1, does not exceed. It
// assumes that the latencies of a bucket are evenly spread. The result of an empty
// histogram is 0.
func (h Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank, seen := min(max(q, 0), 1)*float64(total), 0.0
	at := 0.0
	for bucket, n := range h.counts {
		if n == 0 {
			continue
		}
		from, below := Limits(bucket)
		at = float64(below)
		if seen += float64(n); seen >= rank {
			at -= (seen - rank) / float64(n) * float64(below-from)
			break
		}
	}
	return time.Duration(at * float64(time.Microsecond))
}

// Above returns how many latencies exceed a limit. It assumes that the latencies of a
// bucket are evenly spread.
func (h Histogram) Above(limit time.Duration) float64 {
	at, above := float64(limit)/float64(time.Microsecond), 0.0
	for bucket, n := range h.counts {
		from, below := Limits(bucket)
		share := (float64(below) - at) / float64(below-from)
		above += float64(n) * min(max(share, 0), 1)
	}
	return above
}

// MarshalJSON writes the buckets that are not empty.
func (h Histogram) MarshalJSON() ([]byte, error) {
	text := []byte{'['}
	h.Each(func(bucket int, n uint64) {
		if len(text) > 1 {
			text = append(text, ',')
		}
		_, below := Limits(bucket)
		text = fmt.Appendf(text, "[%d,%d]", below, n)
	})
	return append(text, ']'), nil
}

// UnmarshalJSON reads the output of MarshalJSON. A bound that is not the bound of a bucket
// stands for the bucket that contains it.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var pairs [][2]uint64
	if err := json.Unmarshal(text, &pairs); err != nil {
		return fmt.Errorf("a histogram of latencies: %w", err)
	}
	var read Histogram
	last := uint64(0)
	for _, p := range pairs {
		below, n := p[0], p[1]
		switch {
		case below <= last || below > maxMicroseconds:
			return fmt.Errorf("a histogram of latencies: limit %d after %d: want ascending limits of at most %d us", below, last, maxMicroseconds)
		case n > math.MaxInt64/uint64(Buckets):
			return fmt.Errorf("a histogram of latencies: %d in one bucket: too many", n)
		}
		last = below
		read.Add(Bucket(below-1), n)
	}
	*h = read
	return nil
}
