//go:build race

package e2e

// raced tells that the race detector slows everything that this binary runs.
const raced = true
