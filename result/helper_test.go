package result_test

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	"vitrine/result"
)

func fullRead(r io.Reader, b []byte) (int, error) { return io.ReadFull(r, b) }

// TestHelperWrites is no test: it is the process that TestKilledRunsLoseNothing
// kills. It prints a dot for every trial that is on the disk.
func TestHelperWrites(t *testing.T) {
	dir := os.Getenv("RESULT_TEST_RUN")
	if dir == "" {
		t.Skip("run by another test")
	}
	trials, err := strconv.Atoi(os.Getenv("RESULT_TEST_TRIALS"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := result.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for seq := 1; seq <= trials; seq++ {
		if _, done := r.Find(outcome(seq).Key); done {
			continue
		}
		if err := r.Append(outcome(seq)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(".")
	}
	os.Exit(0) // without Close, as if killed
}
