package result_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"vitrine/result"
)

// TestMain runs the tests, or is the process that TestKilledRunsLoseNothing kills.
func TestMain(m *testing.M) {
	dir := os.Getenv("RESULT_TEST_RUN")
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := writeTrials(dir, os.Getenv("RESULT_TEST_TRIALS")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // without Close, as if killed
}

// writeTrials continues the run and prints a dot for every trial that is on the disk.
func writeTrials(dir, trials string) error {
	n, err := strconv.Atoi(trials)
	if err != nil {
		return err
	}
	r, err := result.Open(dir)
	if err != nil {
		return err
	}
	for seq := 1; seq <= n; seq++ {
		if _, done := r.Find(outcome(seq).Key); done {
			continue
		}
		if err := r.Append(outcome(seq)); err != nil {
			return err
		}
		fmt.Print(".")
	}
	return nil
}
