package rate

import (
	"math"
	"math/rand/v2"
	"testing"

	"vitrine"
)

// TestFitIsTheIsotonicOne compares pooling with the closed form of the decreasing
// least-squares fit at i: the maximum over b >= i of the minimum over a <= i of
// the mean from a to b.
func TestFitIsTheIsotonicOne(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		c := curve{}
		for k := range 1 + random.IntN(12) {
			n := count{scheduled: float64(1 + random.IntN(1000))}
			n.succeeded = math.Floor(n.scheduled * random.Float64())
			c.rates, c.counts = append(c.rates, float64(k)), append(c.counts, n)
		}
		for i, got := range c.fit() {
			want := math.Inf(-1)
			for b := i; b < len(c.counts); b++ {
				least := math.Inf(1)
				for a := 0; a <= i; a++ {
					var stretch count
					for _, n := range c.counts[a : b+1] {
						stretch.scheduled += n.scheduled
						stretch.succeeded += n.succeeded
					}
					least = min(least, stretch.ratio())
				}
				want = max(want, least)
			}
			if math.Abs(got-want) > 1e-12 {
				t.Fatalf("fit of %v at %d is %g, want %g", c.counts, i, got, want)
			}
		}
	}
}

func TestCrossing(t *testing.T) {
	rates := []float64{100, 200, 300, 400}
	for _, test := range []struct {
		fit      []float64
		rate     float64
		censored string
	}{
		{[]float64{1, 1, 0.8, 0.6}, 250, vitrine.CensoredNone},
		{[]float64{1, 0.9, 0.9, 0.1}, 300, vitrine.CensoredNone}, // on the threshold: the highest rate that meets it
		{[]float64{1, 1, 1, 0}, 310, vitrine.CensoredNone},
		{[]float64{0.89, 0.8, 0.5, 0.5}, 100, vitrine.CensoredBelow},
		{[]float64{1, 1, 1, 0.9}, 400, vitrine.CensoredAbove},
	} {
		rate, censored := curve{rates: rates}.crossing(test.fit, 0.9)
		if math.Abs(rate-test.rate) > 1e-9 || censored != test.censored {
			t.Errorf("%v crosses 0.9 at %g, %s; want %g, %s", test.fit, rate, censored, test.rate, test.censored)
		}
	}
}

func TestBracket(t *testing.T) {
	for _, test := range []struct {
		succeeded string // a digit a rate, of 9 calls
		low, high float64
	}{
		{"9955", 1, 2},
		{"9999", 3, 3},
		{"5555", 0, 0},
		{"9595", 0, 3}, // 1 failed and 2 passed: 1 and 2 are in doubt
		{"5995", 0, 3},
		{"9995", 2, 3},
	} {
		c := curve{}
		for k, digit := range test.succeeded {
			c.rates = append(c.rates, float64(k))
			c.counts = append(c.counts, count{9, float64(digit - '0')})
		}
		if low, high := c.bracket(0.9); low != test.low || high != test.high {
			t.Errorf("%s: [%g, %g], want [%g, %g]", test.succeeded, low, high, test.low, test.high)
		}
	}
}

// TestIntervalIsStudents checks Student's interval, with the correction for the
// variance that R resampled repeats lack.
func TestIntervalIsStudents(t *testing.T) {
	drawn := []float64{99, 101, 99, 101, 99, 101} // a standard deviation of sqrt(6/5)
	for repeats, quantile := range map[int]float64{2: 12.7062, 3: 4.3027, 10: 2.2622} {
		r := float64(repeats)
		half := quantile * math.Sqrt(6.0/5) * math.Sqrt(r/(r-1))
		if low, high := interval(100, drawn, repeats); math.Abs(low-(100-half)) > 0.01 || math.Abs(high-(100+half)) > 0.01 {
			t.Errorf("%d repeats: [%g, %g], want 100 +- %g", repeats, low, high, half)
		}
	}
	if low, high := interval(100, drawn, 1); low != 99 || high != 101 {
		t.Errorf("one repeat: [%g, %g], want the percentiles", low, high)
	}
}
