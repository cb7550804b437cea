package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/document"
	"vitrine/internal/hosttest"
	"vitrine/internal/thread"
	"vitrine/measure"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/trial"
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

// TestResumeNotesAnotherSwitch checks that a run that continues with another datapath says so, and
// that a run of a program that did not record the switch gets no note.
func TestResumeNotesAnotherSwitch(t *testing.T) {
	with := func(ovs string) result.Manifest {
		return result.Manifest{FabricVersions: map[string]string{"ovs": ovs}}
	}
	netdev, kernel := with("Open vSwitch 3.1.0, datapath netdev"), with("Open vSwitch 3.1.0, datapath kernel")
	want := []string{"the run began with Open vSwitch 3.1.0, datapath netdev, but was resumed with Open vSwitch 3.1.0, datapath kernel"}
	if got := resumptionNotes(netdev, kernel); !slices.Equal(got, want) {
		t.Errorf("another datapath: got notes %q, want %q", got, want)
	}
	for _, old := range []result.Manifest{kernel, {}} {
		if got := resumptionNotes(old, kernel); len(got) > 0 {
			t.Errorf("began with %q: got notes %q", old.FabricVersions, got)
		}
	}
}

// TestResumeNotesUnknownBuild checks that builds without a version or commit do not count as the same.
func TestResumeNotesUnknownBuild(t *testing.T) {
	for tool, want := range map[string]bool{"vitrine development": true, "vitrine development+3fa9c1d0a1b2-dirty": false, "vitrine v0.1.0": false} {
		m := result.Manifest{Tool: tool}
		if got := resumptionNotes(m, m); (len(got) > 0) != want {
			t.Errorf("%s: got notes %q, want one: %t", tool, got, want)
		}
	}
}

// TestResumeNotesAnotherHost checks that a run that continues on another host, or on one with other
// settings, says so, and that it lists what is not isolated there.
func TestResumeNotesAnotherHost(t *testing.T) {
	begun := result.Manifest{
		Host:        result.Host{Name: "node01", Governor: "performance"},
		Generator:   result.Generator{Name: "sipp", Version: "3.6"},
		NotIsolated: []string{"a kernel is shared"},
	}
	const governor = "the CPU frequency governor "
	for _, x := range []struct {
		want   string
		change func(*result.Manifest)
	}{
		{"the run began with the host node01, but was resumed with the host node02", func(m *result.Manifest) { m.Host.Name = "node02" }},
		{"the run began with " + governor + "performance, but was resumed with " + governor + "unknown", func(m *result.Manifest) { m.Host.Governor = "" }},
		{"the run began with the generator sipp 3.6, but was resumed with the generator sipp 3.7", func(m *result.Manifest) { m.Generator.Version = "3.7" }},
		{"turbo is on", func(m *result.Manifest) { m.NotIsolated = append(slices.Clone(m.NotIsolated), "turbo is on") }},
	} {
		now := begun
		x.change(&now)
		if got := resumptionNotes(begun, now); !slices.Equal(got, []string{begun.NotIsolated[0], x.want}) {
			t.Errorf("got notes %q, want %q", got, x.want)
		}
	}
}

// TestRunGivesBackItsCPUs checks that a run that has ended, or could not begin, leaves this process
// its CPUs. Otherwise the next run of the process has no CPU for the function.
func TestRunGivesBackItsCPUs(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	before, err := thread.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	if len(before) < 2 {
		t.Skip("a run needs two CPUs")
	}
	a := &app{stdout: io.Discard, stderr: io.Discard, cpuLocks: t.TempDir()}
	m := result.Manifest{}
	manifest := func(*backends) (result.Manifest, error) { return m, nil }
	dir := t.TempDir()
	for i, name := range []string{"first", "second", "first"} {
		refused := i == 2 // as a run of another accelerator, when the run has its CPUs
		if refused {
			m.Accelerator = vitrine.Emulation
		}
		cpus, err := testbed.ShareCPUs(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := a.begin(t.Context(), session{dir: filepath.Join(dir, name), resume: refused, cpus: cpus, options: new(options)}, manifest)
		if (err != nil) != refused {
			t.Fatalf("run %d: %v", i, err)
		}
		if err == nil {
			if during, err := thread.Allowed(); err != nil || !slices.Equal(during, cpus.Generator) {
				t.Errorf("run %d is on CPUs %v, %v", i, during, err)
			}
			if err := r.end(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if after, err := thread.Allowed(); err != nil || !slices.Equal(after, before) {
			t.Errorf("after run %d this process has CPUs %v, before %v; %v", i, after, before, err)
		}
	}
}

// newSession returns a program and a session of a new run, with folders of their own.
func newSession(t *testing.T) (*app, session) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	cpus, err := testbed.ShareCPUs(nil, nil)
	hosttest.Need(t, err)
	a := &app{stdout: io.Discard, stderr: io.Discard, cpuLocks: t.TempDir()}
	return a, session{dir: filepath.Join(t.TempDir(), "run"), cpus: cpus, options: new(options)}
}

// TestRunOfAnotherSearchStaysAsItWas checks that a finished run stays finished, with its report, if it
// is resumed by a build that chooses other trials.
func TestRunOfAnotherSearchStaysAsItWas(t *testing.T) {
	a, s := newSession(t)
	var before []string
	for _, failed := range []error{nil, result.ErrDiverged} {
		r, err := a.begin(t.Context(), s, func(*backends) (result.Manifest, error) { return result.Manifest{Started: time.Now()}, nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.end(t.Context(), failed); !errors.Is(err, failed) {
			t.Fatalf("got the error %v, want %v", err, failed)
		}
		var after []string
		for _, name := range []string{"manifest.json", "report.html"} {
			text, err := os.ReadFile(filepath.Join(s.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			after = append(after, string(text))
		}
		if before != nil && !slices.Equal(after, before) {
			t.Errorf("the resumed run has\n%s\nbefore\n%s", after[0], before[0])
		}
		before, s.resume = after, true
	}
}

// TestRunRefusesTrialsOfAnotherProgram checks that a run accepts no trial once the file of this program
// is another one, or none.
func TestRunRefusesTrialsOfAnotherProgram(t *testing.T) {
	a, s := newSession(t)
	r, err := a.begin(t.Context(), s, func(*backends) (result.Manifest, error) { return result.Manifest{Started: time.Now()}, nil })
	if err != nil {
		t.Fatal(err)
	}
	key := vitrine.Key{Seq: 1, Attempt: 1}
	if err := r.results.CheckNew(key); err != nil {
		t.Errorf("the program that runs: %v", err)
	}
	other := filepath.Join(t.TempDir(), "vitrine")
	r.backends.self = other
	missing := r.results.CheckNew(key)
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Error(err)
	}
	for _, err := range []error{missing, r.results.CheckNew(key)} {
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), other+": replaced or removed") || !strings.Contains(err.Error(), "--resume") {
			t.Errorf("got the error %v, want one that names %s and --resume", err, other)
		}
	}
	if err := r.end(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestResumeNeedsTheSameSlowdown checks that a run is not resumed with another --slowdown, which would
// judge its later trials by another limit. A run that began with --shared-cpus has no limit, and then gets one.
func TestResumeNeedsTheSameSlowdown(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	cpus, err := testbed.ShareCPUs(nil, nil)
	hosttest.Need(t, err)
	var said strings.Builder
	a := &app{stdout: io.Discard, stderr: &said, cpuLocks: t.TempDir()}
	s := session{dir: filepath.Join(t.TempDir(), "run"), cpus: cpus, options: new(options)}
	interrupted := errors.New("interrupted")
	for i, c := range []struct {
		cpuSharing
		refused bool
	}{{cpuSharing{shared: true}, false}, {cpuSharing{slowdown: 0.1}, false}, {cpuSharing{slowdown: 0.45}, true}, {cpuSharing{shared: true}, false}, {cpuSharing{slowdown: 0.1}, false}} {
		s.cpuSharing, s.resume = c.cpuSharing, i > 0
		r, err := a.begin(t.Context(), s, func(*backends) (result.Manifest, error) { return result.Manifest{}, nil })
		if c.refused {
			if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "the run began with --slowdown 0.1, but now has 0.45") {
				t.Errorf("begin %d: error %v", i, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("begin %d: %v", i, err)
		}
		if err := r.end(t.Context(), interrupted); !errors.Is(err, interrupted) {
			t.Fatal(err)
		}
	}
	if want := "what was measured is in " + s.dir + "; continue it with --resume"; !strings.Contains(said.String(), want) {
		t.Errorf("printed %q, want %q", said.String(), want)
	}
}

// TestOVSRunsOnAllCPUsOfTheRun checks that the run's own Open vSwitch may use the function's CPUs,
// although the run's process keeps to the generator's. A sender would keep it waiting there.
func TestOVSRunsOnAllCPUsOfTheRun(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	cpus, err := testbed.ShareCPUs(nil, nil)
	hosttest.Need(t, err)
	a := &app{stdout: io.Discard, stderr: io.Discard, cpuLocks: t.TempDir()}
	r, err := a.begin(t.Context(), session{dir: filepath.Join(t.TempDir(), "run"), cpus: cpus, options: new(options)},
		func(*backends) (result.Manifest, error) { return result.Manifest{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	hosttest.AtEnd(t, func() error { return r.end(context.Background(), nil) })
	f, err := r.backends.fabric(t.Context(), spec.Choice{Fabric: "ovs"}, document.Node{})
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return f.Close(context.Background()) })
	text, err := os.ReadFile(filepath.Join(r.label.Dir(), "ovs", "ovs-vswitchd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		t.Fatal(err)
	}
	for _, cpu := range slices.Concat(cpus.Generator, cpus.Function) {
		if !set.IsSet(cpu) {
			t.Errorf("the switch may not run on CPU %d", cpu)
		}
	}
}

// TestCampaignResumesOnlyWhereItBegan checks that a campaign can be resumed only on the CPUs and the
// fabric and with the accelerator with which it began, and that its manifest has the other differences.
func TestCampaignResumesOnlyWhereItBegan(t *testing.T) {
	d, derr := spec.ParseDeployment("deployment.yaml", []byte(sharedDeployment), knownBackends())
	w, werr := spec.ParseWorkload("workload.yaml", []byte("generator: sip\nparameters: {scenario: reg-dereg}\nrange: [1, 2]\nduration: 1s\n"), knownBackends())
	b, berr := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err := errors.Join(derr, werr, berr); err != nil {
		t.Fatal(err)
	}
	begun := func(generator int, function ...int) result.Manifest {
		m := campaignManifest(t.Context(), &trial.Config{Deployment: d, Workload: w, CPUs: testbed.CPUs{Function: function, Generator: []int{generator}}}, b)
		m.Fabrics = []string{"loopback"} // auto depends on the host
		m.Tool = "vitrine v8"            // tests do not know their commit
		return m
	}
	dir := filepath.Join(t.TempDir(), "run")
	open := func(resume bool, m result.Manifest) (notes []string, err error) {
		r, err := openResults(dir, resume, m, t.Output())
		if err != nil {
			return nil, err
		}
		return r.Manifest().NotIsolated, r.Close()
	}
	first, err := open(false, begun(0, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	emulated, bridged := begun(0, 1, 2), begun(0, 1, 2)
	emulated.Accelerator, bridged.Fabrics = vitrine.Emulation, []string{"bridge"}
	for want, m := range map[string]result.Manifest{
		"the run began on CPUs [1 2] (generator on [0]), but is now on CPUs [1] (generator on [0])":   begun(0, 1),
		"the run began on CPUs [1 2] (generator on [0]), but is now on CPUs [0 2] (generator on [1])": begun(1, 0, 2),
		"the run began with the accelerator none, but now has tcg":                                    emulated,
		"the run began on the fabric loopback, but is now on bridge":                                  bridged,
	} {
		if _, err := open(true, m); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	same, other := begun(0, 1, 2), begun(0, 1, 2)
	same.Tool += "-dirty"
	other.Tool, other.Host.Kernel, other.Substrates = "vitrine v9", "9.9.9", map[string]string{"process": "another kernel"}
	if notes, err := open(true, same); err != nil || !slices.Equal(notes, first) {
		t.Errorf("resumed in the same way: got notes %q, %v, want %q", notes, err, first)
	}
	for range 2 {
		notes, err := open(true, other)
		if err != nil || len(notes) != len(first)+3 {
			t.Fatalf("resumed in another way: got notes %q, %v", notes, err)
		}
		for i, want := range []string{"vitrine v9", "Linux 9.9.9", "process another kernel"} {
			if note := notes[len(first)+i]; !strings.HasPrefix(note, "the run began with ") || !strings.HasSuffix(note, want) {
				t.Errorf("got note %q, want %s", note, want)
			}
		}
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
