package course

import (
	"math"

	"vitrine/affinity/flow"
)

// A sketch is a histogram of times with logarithmic buckets. Quantiles have a relative
// error of 0.5%. Its memory grows with the range of the times.
type sketch struct {
	count    uint64
	sum      float64 // ns
	min, max int64   // ns
	first    int     // the bucket of buckets[0]
	buckets  []uint64
}

// growth is the ratio of the bounds of a bucket.
const growth = 1.01

// add adds a time, and returns by how many bytes the sketch grew.
func (s *sketch) add(ns int64) (grown int) {
	before := cap(s.buckets)
	ns = max(0, ns)
	if s.count == 0 || ns < s.min {
		s.min = ns
	}
	s.max = max(s.max, ns)
	s.count++
	s.sum += float64(ns)
	s.buckets[s.place(int(math.Log(float64(ns+1))/math.Log(growth)))]++
	return 8 * (cap(s.buckets) - before)
}

// place returns the index of a bucket, and makes room for it.
func (s *sketch) place(bucket int) int {
	const room = 16
	switch {
	case len(s.buckets) == 0:
		s.first = max(0, bucket-room/2)
		s.buckets = make([]uint64, room)
	case bucket < s.first:
		first := max(0, bucket-room)
		s.buckets = append(make([]uint64, s.first-first, s.first-first+len(s.buckets)), s.buckets...)
		s.first = first
	}
	if at := bucket - s.first; at >= len(s.buckets) {
		s.buckets = append(s.buckets, make([]uint64, at+room-len(s.buckets))...)
	}
	return bucket - s.first
}

// quantile returns the time that a share of all do not exceed, in ms.
func (s *sketch) quantile(share float64) float64 {
	rank := uint64(math.Ceil(share * float64(s.count)))
	seen := uint64(0)
	for k, n := range s.buckets {
		seen += n
		if seen >= max(1, rank) {
			middle := math.Pow(growth, float64(s.first+k)+0.5) - 1
			return min(max(middle, float64(s.min)), float64(s.max)) / 1e6
		}
	}
	return 0
}

// times returns the median and the 95th percentile, or nil if there is no time.
func (s *sketch) times() *flow.Times {
	if s.count == 0 {
		return nil
	}
	return &flow.Times{P50: round(s.quantile(0.5)), P95: round(s.quantile(0.95))}
}

// mean returns the mean in ms.
func (s *sketch) mean() float64 {
	if s.count == 0 {
		return 0
	}
	return round(s.sum / float64(s.count) / 1e6)
}

// round rounds milliseconds to microseconds.
func round(ms float64) float64 { return math.Round(ms*1000) / 1000 }
