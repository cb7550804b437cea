package course

import (
	"math"
	"slices"

	"vitrine/affinity/flow"
)

// The bounds of a spread.
const (
	maxSampled  = 256 // times that are kept, in the order in which they were seen
	maxBatches  = 16
	minBatches  = 8 // fewer say nothing about how medians differ
	batchLength = 5 // times of a batch, at least
)

// A spread estimates the standard error of a median. It keeps one time of each stride, in
// their order, so that the estimate accounts for the autocorrelation of neighbouring times.
type spread struct {
	times  []float32 // ms
	seen   uint64
	stride uint64 // a power of two; 0: 1
}

func (s *spread) add(ns int64) {
	s.stride = max(s.stride, 1)
	if len(s.times) == maxSampled && s.seen%s.stride == 0 {
		s.thin()
	}
	block := s.seen / s.stride
	if s.seen%s.stride == pick(block, s.stride) {
		s.times = append(s.times, float32(float64(max(0, ns))/1e6))
	}
	s.seen++
}

// thin drops one of each two times.
func (s *spread) thin() {
	for i := range maxSampled / 2 {
		s.times[i] = s.times[2*i+int(pick(uint64(i), 2))]
	}
	s.times = s.times[:maxSampled/2]
	s.stride *= 2
}

// pick returns the offset of the time to keep in a block. It is pseudo-random, because a
// fixed offset would sample a periodic series in step, but the same in each run. It is the
// finalizer of SplitMix64.
func pick(block, stride uint64) uint64 {
	z := (block+stride)*0x9e3779b97f4a7c15 + stride
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) & (stride - 1)
}

// medianError returns the standard error of the median in ms, and the number of batches
// that it is based on; 0: unknown. It is the standard error of the medians of consecutive
// batches. If times depend on earlier times, as under a changing load, this error is
// larger, where an error from single times would be too small. A factor for first-order
// autocorrelation covers the dependence between batches. The error is that of the median of
// the kept times, which is no smaller than for all times.
func (s *spread) medianError() (ms float64, batches int) {
	k := min(maxBatches, len(s.times)/batchLength)
	if k < minBatches {
		return 0, 0
	}
	medians := make([]float64, k)
	mean := 0.0
	var batch []float32
	for i := range medians {
		batch = append(batch[:0], s.times[i*len(s.times)/k:(i+1)*len(s.times)/k]...)
		slices.Sort(batch)
		medians[i] = float64(batch[(len(batch)-1)/2]+batch[len(batch)/2]) / 2
		mean += medians[i] / float64(k)
	}
	sum, next := 0.0, 0.0
	for i, m := range medians {
		sum += (m - mean) * (m - mean)
		if i > 0 {
			next += (m - mean) * (medians[i-1] - mean)
		}
	}
	if sum == 0 {
		return 0, k
	}
	const most = 0.8 // upper bound of the autocorrelation, because so few batches cannot show more
	r := min(max(next/sum, 0), most)
	return math.Sqrt(sum / float64(k-1) / float64(k) * (1 + r) / (1 - r)), k
}

// A timed is a sketch that also estimates the error of the median.
type timed struct {
	sketch
	spread spread
}

func (t *timed) add(ns int64) {
	t.sketch.add(ns)
	t.spread.add(ns)
}

func (t *timed) times() *flow.Times {
	times := t.sketch.times()
	if times != nil {
		times.Error, times.Batches = t.spread.medianError()
	}
	return times
}
