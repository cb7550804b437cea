//go:build !race

package hosttest

// Raced reports whether the race detector slows this binary.
const Raced = false
