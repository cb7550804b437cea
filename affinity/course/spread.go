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

// A spread says how sure a median is. It keeps times in their order, one of each stride,
// so that times that are near each other, and so alike, are seen to be alike.
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

// thin keeps one of two.
func (s *spread) thin() {
	for i := range maxSampled / 2 {
		s.times[i] = s.times[2*i+int(pick(uint64(i), 2))]
	}
	s.times = s.times[:maxSampled/2]
	s.stride *= 2
}

// pick returns which one of a block is kept: by chance, because what comes in turns must
// not be kept in step, but the same in each run. It is the finalizer of SplitMix64.
func pick(block, stride uint64) uint64 {
	z := (block+stride)*0x9e3779b97f4a7c15 + stride
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) & (stride - 1)
}

// medianError returns the standard error of the median in ms, and by how many batches it
// is known; 0: it is not. It is the standard error of the medians of consecutive batches:
// times that depend on those before, as under a load that changes, make it larger, where an
// error from single times would be too small. What batches still have of their
// predecessors is in the factor for first-order autocorrelation. It is the error of a median
// of the times that are kept, which is no smaller than that of all.
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
	const most = 0.8 // of the autocorrelation; so few batches do not say more
	r := min(max(next/sum, 0), most)
	return math.Sqrt(sum / float64(k-1) / float64(k) * (1 + r) / (1 - r)), k
}

// A timed sums up times, and says how sure their median is.
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
