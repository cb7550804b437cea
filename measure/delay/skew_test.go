package delay

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSkewIsReadBack checks that Skew finds an added clock skew and that Unskewed removes it, under
// noise that only delays packets.
func TestSkewIsReadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, skew := range []float64{0, 40e-6, -120e-6, 480e-6} {
		noise := make([]int64, 5000)
		for i := range noise {
			noise[i] = int64(random.ExpFloat64() * 20_000)
		}
		bent := stream(5000, func(i int) int64 { return noise[i] + int64(skew*float64(i)*10_000) + 3_600_000_000_000 })
		found := Skew(bent)
		if math.Abs(found-skew) > 2e-6 {
			t.Errorf("set a skew of %g, found %g", skew, found)
		}
		straight := Analyze(5000, stream(5000, func(i int) int64 { return noise[i] }), Cut{})
		again := Analyze(5000, Unskewed(bent, found), Cut{})
		if math.Abs(again.Lateness.Mean-straight.Lateness.Mean) > 0.2 {
			t.Errorf("with skew %g: got lateness %v, want %v as without skew", skew, again.Lateness.Mean, straight.Lateness.Mean)
		}
	}
}

// TestGrowingQueueIsNoSkew checks that Skew finds none for a growing queue or for too few packets.
func TestGrowingQueueIsNoSkew(t *testing.T) {
	for name, list := range map[string][]Packet{
		"a queue":     stream(100, func(i int) int64 { return int64(i) * 1000 }),
		"one packet":  stream(1, func(int) int64 { return 5 }),
		"none":        nil,
		"one instant": {{Sent: 1, Received: 2}, {Sent: 1, Received: 9}},
	} {
		if got := Skew(list); got != 0 {
			t.Errorf("%s: %g", name, got)
		}
	}
}
