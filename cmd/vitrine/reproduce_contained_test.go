package main

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/papers"
)

// lowest is the lowest rate of a small experiment, and the step to the next; calls/s.
const lowest = 40

// TestContainedExperimentImpaired runs the experiment of Contain-ed in small: figure 5 with three
// setups at three rates, and the two setups with a director, each beside its ideal one. All trials
// must be valid. At the lowest rate all calls must succeed, the split setup must be slower by its
// delay, and Contain-ed must not be. The best deployment of each setup counts, because other tests
// use the CPUs too.
func TestContainedExperimentImpaired(t *testing.T) {
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	hosttest.Need(t, netns.Possible())
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(&vitrine.Unsupported{What: "the experiment of Contain-ed", Missing: "the program openssl", Do: "run .ci/install"})
	}
	program := hosttest.Built(t, hosttest.Product)
	valid, success, median := map[string]int{}, map[string]float64{}, map[string]float64{}
	for _, x := range []struct {
		name           string
		rates, repeats int
	}{{"figure-5", 3, 3}, {"figure-5-contained", 3, 3}, {"figure-7-contained", 1, 2}} {
		for _, o := range experiment(t, program, "contain-ed/"+x.name, x.rates, x.repeats) {
			setup := x.name + " " + cmp.Or(o.Options, o.Subject)
			valid[setup]++
			if o.Rate != lowest {
				continue
			}
			success[setup] = max(success[setup], o.SuccessRatio())
			if before, ok := median[setup]; !ok || o.Latency.P50 < before {
				median[setup] = o.Latency.P50
			}
		}
	}
	const (
		ideal     = "figure-5 impairment=ideal"
		near      = "figure-5 impairment=split-5ms"
		far       = "figure-5 impairment=split-25ms"
		contained = "figure-5-contained ad1s-bn1e-sp1r-hs1d"
		beside    = "figure-5-contained bn1e-sp1r-hs1d" // the ideal setup, in the same turns
		subscribe = "figure-7-contained ad1g-bn1p-sp1l-bs1f-ss1s-hs1d"
		without   = "figure-7-contained bn1e-sp1r-hs1d"
	)
	for setup, want := range map[string]int{ideal: 9, near: 9, far: 9, contained: 9, beside: 9, subscribe: 2, without: 2} {
		if valid[setup] != want || success[setup] != 1 {
			t.Errorf("%s: %d valid trials, want %d; success at the lowest rate %g, want 1", setup, valid[setup], want, success[setup])
		}
	}
	t.Logf("valid trials %v; median latencies in ms: %v", valid, median)
	// Each of the three REGISTERs of a call passes both delayed ways: 150 ms.
	slower := median[far] - median[ideal]
	if slower < 100 || median[near] >= median[far] {
		t.Errorf("25 ms on both ways make calls slower by %.0f ms, want at least 100, and more than 5 ms do", slower)
	}
	if added := median[contained] - median[beside]; added > slower/2 {
		t.Errorf("the director makes calls slower by %.0f ms, the split setup by %.0f", added, slower)
	}
}

// middleDelays matches the names of all delays but the shortest and the longest in the list of
// impairments.
var middleDelays = regexp.MustCompile(`(?m)^ *- split-(10|15|20)ms\n`)

// experiment runs an exhibit of Contain-ed as a user runs its specs: at a few low rates, in short
// windows, and without the middle delays. It returns the valid trials.
func experiment(t *testing.T, program, name string, rates, repeats int) []vitrine.Outcome {
	t.Helper()
	e, err := papers.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	small := map[string]any{}
	maps.Copy(small, e.Workload)
	maps.Copy(small, map[string]any{
		"range": []int{lowest, rates * lowest}, "increase": lowest, "repeat": repeats, "duration": "500ms", "warmup": "300ms", "settle": "100ms",
	})
	e.Workload = small
	dir := t.TempDir()
	deployment, workload, err := e.Unpack(filepath.Join(dir, "specs"), papers.Full)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(deployment)
	if err == nil {
		err = os.WriteFile(deployment, middleDelays.ReplaceAll(text, nil), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	c := exec.CommandContext(t.Context(), program, "characterize", deployment, workload, "--shared-cpus", "--out", run)
	out, err := c.CombinedOutput()
	if c.ProcessState.ExitCode() == exitUnsupported {
		t.Skipf("%s", out)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	data, err := loadRun(run)
	if err == nil {
		_, err = papers.Read(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(data.Outcomes, func(o vitrine.Outcome) bool {
		if !o.Valid {
			t.Logf("%s, %s at %g/s: %s", name, o.Options, o.Rate, o.Reason)
		}
		return !o.Valid
	})
}
