package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/measure"
	"vitrine/result"
)

// TestResumePrintsRepairs checks that a resumed run prints what it repaired in its folder: here the
// incomplete line that a killed process leaves.
func TestResumePrintsRepairs(t *testing.T) {
	s := session{dir: filepath.Join(t.TempDir(), "run")}
	var out strings.Builder
	open := func() {
		t.Helper()
		r, err := s.openResults(result.Manifest{}, &out)
		if err == nil {
			err = r.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open()
	s.resume = true
	if open(); out.Len() > 0 {
		t.Errorf("an intact run: printed %q", out.String())
	}
	if err := os.WriteFile(filepath.Join(s.dir, "outcomes.jsonl"), []byte(`{"Seq":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	open()
	if want := "repaired: outcomes.jsonl: removed an incomplete last line of 9 bytes\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// TestRunWithoutValidStreamFails checks that streams of the instrument's floor do not count.
func TestRunWithoutValidStreamFails(t *testing.T) {
	stream := func(fabric string, valid bool) vitrine.Outcome {
		return vitrine.Outcome{Key: vitrine.Key{Options: "fabric=" + fabric}, Valid: valid}
	}
	floor, lost, good := stream(measure.Floor, true), stream("bridge", false), stream("bridge forwarder=xdp", true)
	if err := anyStream([]vitrine.Outcome{floor, lost}, "runs/network"); err == nil || !strings.Contains(err.Error(), "runs/network/trials.csv") {
		t.Errorf("no valid stream: got %v", err)
	}
	if err := anyStream([]vitrine.Outcome{floor, lost, good}, "runs/network"); err != nil {
		t.Errorf("one valid stream: got %v", err)
	}
}
