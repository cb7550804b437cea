package chain

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s: got %g, want %g", what, got, want)
	}
}

func TestFitOfALine(t *testing.T) {
	s := series{lengths: []int{0, 1, 2, 4}, values: [][]float64{{10, 13, 16, 22}, {12, 15, 18, 24}}}
	f, ok := s.fit(RoundTrip)
	if !ok {
		t.Fatal("found no fit")
	}
	near(t, "intercept", f.Intercept, 11)
	near(t, "per hop", f.PerHop, 3)
	near(t, "R squared", f.R2, 1)
	near(t, "interval of the slope", f.Slope.High-f.Slope.Low, 0)
	for _, x := range f.Residuals {
		near(t, "residual", x.Value.Mean, 0)
		near(t, "its interval", x.Value.High, 12.706204736174694) // Student's t with 1 degree of freedom, for a standard deviation of the root of 2
	}
}

// TestFitOfKnownData fits Anscombe's first data set, whose figures are known: 3 + 0.5 x, R squared
// 0.6665.
func TestFitOfKnownData(t *testing.T) {
	s := series{
		lengths: []int{10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5},
		values:  [][]float64{{8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68}},
	}
	f, _ := s.fit(RoundTrip)
	near(t, "intercept", math.Round(f.Intercept*1e3)/1e3, 3)
	near(t, "per hop", math.Round(f.PerHop*1e3)/1e3, 0.5)
	near(t, "R squared", math.Round(f.R2*1e4)/1e4, 0.6665)
}

func TestFitWithMissingStreams(t *testing.T) {
	nan := math.NaN()
	s := series{lengths: []int{1, 2, 3}, values: [][]float64{{1, nan, 3}, {1, 2, nan}, {nan, nan, nan}}}
	f, ok := s.fit(RoundTrip)
	if !ok || math.Abs(f.PerHop-1) > 1e-9 || len(f.Residuals) != 3 || f.Slope.Repeats != 2 {
		t.Errorf("%+v", f)
	}
	if _, ok := (series{lengths: []int{1, 2, 3}, values: [][]float64{{1, nan, 3}}}).fit(RoundTrip); ok {
		t.Error("found a fit from two lengths")
	}
}

func TestFindReturnsTheAddedDelay(t *testing.T) {
	without := series{lengths: []int{0, 1, 2, 3}, values: [][]float64{{10, 20, 30, 40}, {110, 120, 130, 140}}}
	with := series{lengths: without.lengths, values: [][]float64{{15, 25, 85, 95}, {100, 110, 170, 180}}}
	f := findInjected(RoundTrip, 2, without, with)
	near(t, "added", f.Added.Mean, 50)
	near(t, "residual before", f.Residuals[1].Value.Mean, -2.5)
	near(t, "residual past", f.Residuals[2].Value.Mean, 47.5)
}
