//go:build race

package e2e

// raced says that this binary has the race detector, which slows down everything it runs.
const raced = true
