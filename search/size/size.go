// Package size decides which sizing to measure next, and which measured one is
// best. It has NFV-VITAL's custom, exhaustive and component-aware directed modes
// (section III.A) and a mode that models what components cost. It is pure.
package size

import (
	"vitrine"
)

// A Step is the next sizing to measure, or the end of the search.
type Step struct {
	Sizing vitrine.Sizing
	Done   bool
	Again  bool   // it was measured before, and this measurement counts
	Why    string // always set
	// Predicted is what the sizing is predicted to carry; nil: not predicted.
	Predicted *Prediction
	// Grown is the capacity of the smaller sizing that this one grew from. The
	// search of rates may begin there; 0: not known.
	Grown float64
}

// A Search decides the next sizing from those measured so far, in order.
type Search interface {
	Next(history []vitrine.Measured) Step
}

// A Planner is a Search that knows all its sizings in advance.
type Planner interface {
	Plan() []vitrine.Sizing
}

// invalid returns the error for a mode that the user must correct. The caller
// knows its file and line.
func invalid(found, want string) error {
	return &vitrine.BadInput{File: "mode", Found: found, Want: want}
}
