package course

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestTheErrorOfTheMedianIsRight: over many samples, the error matches the actual variation
// of medians, whether or not a time depends on earlier times.
func TestTheErrorOfTheMedianIsRight(t *testing.T) {
	for _, memory := range []float64{0, 0.9} {
		const samples, times = 300, 1000
		random := rand.New(rand.NewPCG(1, 2))
		sum, squares, claimed := 0.0, 0.0, 0.0
		for range samples {
			var s timed
			x := 0.0
			for range times {
				x = memory*x + math.Sqrt(1-memory*memory)*random.NormFloat64()
				s.add(int64(1e6 * math.Exp(x/4)))
			}
			m := s.quantile(0.5)
			sum, squares = sum+m, squares+m*m
			e, batches := s.spread.medianError()
			if batches != maxBatches || len(s.spread.times) > maxSampled {
				t.Fatalf("got %d batches of %d times", batches, len(s.spread.times))
			}
			claimed += e * e / samples
		}
		truth := math.Sqrt(squares/samples - sum/samples*sum/samples)
		if ratio := math.Sqrt(claimed) / truth; ratio < 0.85 || ratio > 2.2 { // of single times one in four is kept, which doubles the error
			t.Errorf("memory %g: the estimated error is %.2f times the true error", memory, ratio)
		} else {
			t.Logf("memory %g: the estimated error is %.2f times the true error", memory, ratio)
		}
	}
}

func TestOfFewTimesNoErrorIsKnown(t *testing.T) {
	var s timed
	for n := range minBatches * batchLength {
		if times := s.times(); n > 0 && (times.Batches != 0 || times.Error != 0) {
			t.Fatalf("with %d times: got %+v", n, times)
		}
		s.add(int64(n) * 1000)
	}
	if times := s.times(); times.Batches != minBatches || times.Error <= 0 {
		t.Errorf("%+v", times)
	}
}
