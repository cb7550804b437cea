package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/load"
)

// TestGaps checks that only the time between an end and the next start counts.
func TestGaps(t *testing.T) {
	got, err := gaps(strings.NewReader("1000000 5000000\n8000000 8000001\n18000001 90000000\n"))
	if want := []float64{3, 10}; err != nil || !slices.Equal(got, want) {
		t.Errorf("gaps %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"1 2\nx 4\n", "1 2\n3\n", "2 1\n", "1 5\n4 6\n"} {
		if got, err := gaps(strings.NewReader(bad)); err == nil {
			t.Errorf("gaps of %q: %v", bad, got)
		}
	}
}

// TestAnswer checks that the bench's generator prints a valid report and records its times.
func TestAnswer(t *testing.T) {
	times := filepath.Join(t.TempDir(), "times")
	command := load.Command(nil, load.Trial{
		Rate: 1, Duration: 1, Targets: []string{"127.0.0.1:5060"}, Params: map[string]string{timesParam: times},
	})
	for range 3 {
		var out bytes.Buffer
		if err := answer(command.Args, command.Env, &out); err != nil {
			t.Fatal(err)
		}
		report, err := load.ParseReport(&out)
		if err != nil || report.Succeeded != 1 || report.Scheduled != 1 {
			t.Errorf("report %+v, %v; want one call, which succeeds", report, err)
		}
	}
	file, err := os.Open(times)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, err := gaps(file); err != nil || len(got) != 2 {
		t.Errorf("gaps %v, %v; want two gaps between three trials", got, err)
	}
}
