package compare

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine/affinity/flow"
)

// An Interval is a change: the values of A and B, and the confidence interval of the true
// difference.
type Interval struct {
	A     float64 `json:"a"`
	B     float64 `json:"b"`
	Least float64 `json:"least"` // Of B - A.
	Most  float64 `json:"most"`  // Of B - A.
}

// changed reports whether the interval excludes a difference of zero.
func (i Interval) changed() bool { return i.Least > 0 || i.Most < 0 }

// sure bounds the probability that an interval misses the true difference.
type sure float64

// medians compares two medians. Their errors come from batches, with one degree of freedom
// less than batches, so the difference follows a t distribution (Welch 1947). Both must
// have at least two batches. The interval also covers the error of histogram buckets and of
// rounding.
func (s sure) medians(a, b *flow.Times) Interval {
	const (
		bucket   = 0.005 // relative error of a histogram bucket
		rounding = 0.001 // ms: to microseconds
	)
	va, vb := a.Error*a.Error, b.Error*b.Error
	half := bucket*(a.P50+b.P50) + rounding
	if v := va + vb; v > 0 {
		freedom := v * v / (va*va/float64(a.Batches-1) + vb*vb/float64(b.Batches-1))
		if freedom > 0 { // otherwise the squares of the errors underflow to 0
			half += math.Sqrt(v) * distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(1-float64(s)/2)
		}
	}
	return Interval{a.P50, b.P50, b.P50 - a.P50 - half, b.P50 - a.P50 + half}
}

// rates compares how often something happens per transaction: counts a and b in na and nb
// transactions. It assumes that counts vary at most like a Poisson process, which does not
// hold for bursts. The bounds of each rate are by Wilson and Hilferty, and the bounds of
// the difference by MOVER (Zou and Donner, Statistics in Medicine 27, 2008).
func (s sure) rates(a, na, b, nb int) Interval {
	z := s.normal()
	bounds := func(count, n int) (low, rate, high float64) {
		c, of := float64(count), float64(n)
		if count > 0 {
			low = c * cube(1-1/(9*c)-z/(3*math.Sqrt(c)))
		}
		return max(0, low) / of, c / of, (c + 1) * cube(1-1/(9*(c+1))+z/(3*math.Sqrt(c+1))) / of
	}
	return difference(bounds, a, na, b, nb)
}

// shares compares the shares a of na and b of nb by Newcombe's interval from two score
// intervals (Statistics in Medicine 17, 1998, method 10).
func (s sure) shares(a, na, b, nb int) Interval {
	z := s.normal()
	bounds := func(count, n int) (low, share, high float64) {
		of := float64(n)
		share = float64(count) / of
		middle := (share + z*z/(2*of)) / (1 + z*z/of)
		half := z / (1 + z*z/of) * math.Sqrt(share*(1-share)/of+z*z/(4*of*of))
		return max(0, middle-half), share, min(1, middle+half)
	}
	return difference(bounds, a, na, b, nb)
}

func (s sure) normal() float64 { return distuv.UnitNormal.Quantile(1 - float64(s)/2) }

func cube(x float64) float64 { return x * x * x }

// difference returns the interval of a difference, given the bounds of both sides.
func difference(bounds func(count, n int) (low, value, high float64), a, na, b, nb int) Interval {
	lowA, valueA, highA := bounds(a, na)
	lowB, valueB, highB := bounds(b, nb)
	d := valueB - valueA
	return Interval{valueA, valueB, d - math.Hypot(valueB-lowB, highA-valueA), d + math.Hypot(highB-valueB, valueA-lowA)}
}
