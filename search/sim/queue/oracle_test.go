package queue

import (
	"math"
	"testing"
)

// TestOracleNarrowsWithLoad checks that the oracle's interval narrows with the
// square root of the load, where success falls gently and deployments are alike.
// It gets no narrower than the differences between deployments allow.
func TestOracleNarrowsWithLoad(t *testing.T) {
	line := make(shape, len(shapePoints))
	for i, x := range shapePoints {
		line[i] = point{mean: 0.9 - x, within: 0.1}
	}
	m := &Mark{&Oracle{0.9, nil}, &Server{}, line}
	// One parameter and a slope of 1: the error is that of the mean ratio.
	for _, load := range []float64{100, 400, 1600} {
		want := 2 * 1.96 * math.Sqrt(0.1/load)
		if got := m.Width(5, load); math.Abs(got-want) > 0.1*want+0.001 {
			t.Errorf("%g s of load: a width of %g, want %g", load, got, want)
		}
	}
	for i := range line {
		line[i].between = 0.001
	}
	if got, want := m.Width(5, 1e9), 2*1.96*math.Sqrt(0.001/5); math.Abs(got-want) > 0.1*want {
		t.Errorf("deployments that differ: a width of %g, want %g", got, want)
	}
}

// TestOracleDoesNotKnowTheCurve checks that an unknown curve widens the interval.
func TestOracleDoesNotKnowTheCurve(t *testing.T) {
	gentle, steep := make(shape, len(shapePoints)), make(shape, len(shapePoints))
	for i, x := range shapePoints {
		gentle[i] = point{mean: 0.9 - x, within: 0.1}
		steep[i] = point{mean: min(1, max(0, 0.88-5*x)), within: 0.1}
	}
	own := &Mark{&Oracle{0.9, nil}, &Server{}, gentle}
	other := &Mark{&Oracle{0.9, []shape{steep}}, &Server{}, gentle}
	if a, b := own.Width(5, 400), other.Width(5, 400); b < a {
		t.Errorf("a width of %g with one curve, %g with two", a, b)
	}
}
