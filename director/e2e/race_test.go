//go:build race

package e2e

// raced says that the detector of races slows everything that this binary runs.
const raced = true
