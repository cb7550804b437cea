//go:build race

package proof

// raced says that the detector of races slows everything that this binary runs.
const raced = true
