package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vitrine"
	"vitrine/internal/runstate"
	"vitrine/papers"
	"vitrine/result"
	"vitrine/testbed/quiet"
)

func planned(t *testing.T, name string) *measurement {
	t.Helper()
	e, err := papers.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	m := &measurement{exhibit: e, scale: papers.Full}
	var f reproduceFlags
	f.slowdown = quiet.DefaultSlowdown // as the flag has it
	if err := m.plan(f); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMachinesTakeLongerToDeploy checks that the estimate of a run counts the slowest of its
// substrates, and that every substrate has an estimate.
func TestMachinesTakeLongerToDeploy(t *testing.T) {
	process := deploying([]string{"process"}, 10, 10)
	for name := range substrates() {
		alone, both := deploying([]string{name}, 10, 10), deploying([]string{"process", name}, 10, 10)
		if both != max(process, alone) || machines(name) && alone <= process || alone <= deploying(nil, 10, 10) {
			t.Errorf("%s: estimated %s, beside processes %s, processes alone %s", name, alone, both, process)
		}
	}
}

// TestRefusesAnotherPlan checks that a plan that differs from the committed one is refused before
// anything starts, and that the run is not counted.
func TestRefusesAnotherPlan(t *testing.T) {
	m := planned(t, "nfv-vital/table-2")
	m.digest = "another"
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "nfv-vital", "history"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := (&app{stderr: t.Output()}).measure(t.Context(), m, reproduceFlags{papers: dir})
	if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "not the committed one") || !strings.Contains(err.Error(), "--because") {
		t.Error(err)
	}
	if h, err := papers.ReadHistory(os.DirFS(dir), m.exhibit.Name); err != nil || len(h.Runs) != 0 {
		t.Errorf("%+v: %v", h, err)
	}
}

// TestCountsRuns checks that a run is counted if the folder has histories, even if
// flags changed the plan. A resumed run is not counted again.
func TestCountsRuns(t *testing.T) {
	m := planned(t, "nfv-vital/table-2")
	m.flags = []string{"--quick"}
	a := &app{stderr: t.Output()}
	dir := t.TempDir()
	if err := a.count(m, dir, false); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("got %v from a folder without histories: %v", entries, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "nfv-vital", "history"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.count(m, dir, false), a.count(m, dir, true)); err != nil {
		t.Error(err)
	}
	h, err := papers.ReadHistory(os.DirFS(dir), m.exhibit.Name)
	if err != nil || len(h.Runs) != 1 || h.Runs[0].Plan != m.digest || strings.Join(h.Runs[0].Deviations, " ") != "--quick" {
		t.Errorf("%+v: %v", h, err)
	}
}

// TestRunBegins checks that onBegin is called when the folder of a run exists, but not when the
// folder is refused. It must know whether the run is resumed.
func TestRunBegins(t *testing.T) {
	begun, wasResumed := 0, false
	s := session{dir: filepath.Join(t.TempDir(), "run"), onBegin: func(resumed bool) error {
		begun, wasResumed = begun+1, resumed
		return nil
	}}
	resumed := s
	resumed.resume = true
	for i, c := range []struct {
		session
		begun   int
		refused bool
	}{{resumed, 0, true}, {s, 1, false}, {s, 1, true}, {resumed, 2, false}} {
		r, err := c.openResults(result.Manifest{}, t.Output())
		if begun != c.begun || vitrine.IsBadInput(err) != c.refused {
			t.Errorf("case %d: started %d times, want %d; error %v", i, begun, c.begun, err)
		}
		if err == nil && wasResumed != c.resume {
			t.Errorf("case %d: onBegin got resumed %t", i, wasResumed)
		}
		if err == nil {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCampaignHasItsScripts checks that the install scripts of an exhibit exist until its campaign
// ends, and not longer.
func TestCampaignHasItsScripts(t *testing.T) {
	var scripts []string
	err := (&app{stderr: t.Output()}).withCampaign(planned(t, "contain-ed/store-delay"), reproduceFlags{}, func(c campaign) error {
		for _, i := range c.Deployment.Install {
			scripts = append(scripts, i.Script)
			if info, err := os.Stat(i.Script); err != nil || info.Mode()&0o100 == 0 {
				t.Errorf("%s cannot run: %v", i.Script, err)
			}
		}
		return nil
	})
	if err != nil || len(scripts) != 2 {
		t.Errorf("scripts %v: %v", scripts, err)
	}
	for _, s := range scripts {
		if _, err := os.Stat(s); err == nil {
			t.Errorf("%s is left", s)
		}
	}
}

// killedVariable makes TestKilledCampaignIsCleaned the process that is killed.
const killedVariable = "VITRINE_TEST_KILLED_CAMPAIGN"

// TestKilledCampaignIsCleaned checks that cleaning removes the specifications of a killed process,
// and leaves those of a live one.
func TestKilledCampaignIsCleaned(t *testing.T) {
	if os.Getenv(killedVariable) != "" {
		err := (&app{stderr: t.Output()}).withCampaign(planned(t, "contain-ed/store-delay"), reproduceFlags{}, func(campaign) error {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
		t.Fatalf("the process lives on: %v", err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledCampaignIsCleaned$")
	c.Env = append(os.Environ(), killedVariable+"=1")
	out, err := c.CombinedOutput()
	left, globErr := filepath.Glob(filepath.Join(dir, "vitrine-reproduce-*"))
	if err == nil || globErr != nil || len(left) != 1 {
		t.Fatalf("the killed process left %q, errors %v, %v:\n%s", left, err, globErr, out)
	}
	live, remove, err := makeSpecs()
	if err != nil {
		t.Fatal(err)
	}
	run, err := runstate.New(runstate.DefaultRoot())
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	a := &app{stdout: &said, stderr: &said}
	if err := a.cleanUp(t.Context(), run, &said); err != nil {
		t.Logf("something else on this host cannot be cleaned: %v", err)
	}
	if _, err := os.Stat(left[0]); !os.IsNotExist(err) || !strings.Contains(said.String(), "removed "+left[0]) {
		t.Errorf("the folder of the killed process: %v; cleaning printed %q", err, said.String())
	}
	if _, err := os.Stat(live); err != nil {
		t.Errorf("the folder of a live process: %v", err)
	}
	if err := errors.Join(remove(), run.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(live); !os.IsNotExist(err) {
		t.Errorf("the folder is left at the end: %v", err)
	}
}

// TestResumeBeginsTheRest checks that --resume continues runs that have begun, and begins the others.
func TestResumeBeginsTheRest(t *testing.T) {
	m := planned(t, "nfv-vital/table-2")
	m.dir = filepath.Join(t.TempDir(), "table-2")
	var f reproduceFlags
	f.resume = true
	if m.resumes(f) {
		t.Error("a run that has not begun is resumed")
	}
	r, err := result.Create(m.dir, result.Manifest{})
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if !m.resumes(f) || m.resumes(reproduceFlags{}) {
		t.Error("a run that has begun must be resumed, and only with --resume")
	}
}
