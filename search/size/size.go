// Package size decides which sizing to measure next: NFV-VITAL's custom,
// exhaustive and component-aware directed modes (section III.A). It is pure.
package size

import "vitrine"

// A Step is the next sizing to measure, or the end of the search.
type Step struct {
	Sizing vitrine.Sizing
	Done   bool
	Why    string // always said
}

// A Search decides the next sizing from those measured so far, in order.
type Search interface {
	Next(history []vitrine.Measured) Step
}

// A Space is what sizings are made of.
type Space struct {
	Components []vitrine.Component // scalable ones, in the order of the sizing's name
	Flavors    []vitrine.Flavor    // ascending by VCPUs
	Limit      vitrine.Resources   // zero fields do not bind
	MaxCount   int                 // most instances of one component; 0: bound by Limit alone
}
