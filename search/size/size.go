// Package size decides which sizing to measure next: NFV-VITAL's custom,
// exhaustive and component-aware directed modes (section III.A) and one that
// models what components cost, and which of those measured is best. It is pure.
package size

import (
	"vitrine"
)

// A Step is the next sizing to measure, or the end of the search.
type Step struct {
	Sizing vitrine.Sizing
	Done   bool
	Again  bool   // it was measured before, and this time counts
	Why    string // always said
	// Predicted is what the sizing is believed to carry; nil: nothing is.
	Predicted *Prediction
	// Grown is the capacity of the smaller sizing that this one grew from, where
	// the search of rates may begin; 0: not known.
	Grown float64
}

// A Search decides the next sizing from those measured so far, in order.
type Search interface {
	Next(history []vitrine.Measured) Step
}

// A Planner is a Search that knows all its sizings ahead.
type Planner interface {
	Plan() []vitrine.Sizing
}

// invalid is the error of a mode that the user must mend. The caller knows its
// file and line.
func invalid(found, want string) error {
	return &vitrine.BadInput{File: "mode", Found: found, Want: want}
}
