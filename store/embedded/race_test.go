//go:build race

package embedded_test

// raced reports whether the race detector slows this binary.
const raced = true
