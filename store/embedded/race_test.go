//go:build race

package embedded_test

// raced says that the detector of races slows everything that this binary runs.
const raced = true
