package papers

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine/internal/hosttest"
	"vitrine/measure/delay"
	"vitrine/result"
)

var update = flag.Bool("update", false, "rewrite the pages and golden files")

// TestPlansAreRecorded checks that the history has every plan, so that it is
// committed before a run.
func TestPlansAreRecorded(t *testing.T) {
	for _, e := range exhibits(t) {
		if e.As != "" {
			continue
		}
		p, err := e.Plan(Full)
		if err != nil {
			t.Fatal(err)
		}
		is, err := p.Digest()
		if err != nil {
			t.Fatal(err)
		}
		h, err := ReadHistory(Files(), e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if now := h.Committed(); now == nil || now.Digest != is {
			t.Errorf("%s: plan %s is not recorded. What it measures or how it is judged has changed: say why with\n"+
				"\tvitrine reproduce papers/%s --because TEXT && go test ./papers -update\nand commit papers/%s/history and the page",
				e.Name, is, e.Paper(), e.Paper())
		}
	}
}

// TestPages checks that the pages are made of the committed records and
// histories.
func TestPages(t *testing.T) {
	var shown []string
	for _, name := range []string{"nfv-vital", "container-networking", "contain-ed", "resource-flexing"} {
		path := filepath.Join("..", "docs", name+".md")
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Fill(path, string(page), Files())
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if string(page) != want {
			t.Errorf("%s is not what papers/%s makes of it: go test ./papers -update", path, name)
		}
		for _, e := range exhibits(t) {
			if e.Paper() == name && e.Shows(string(page)) {
				shown = append(shown, e.Name)
			}
		}
	}
	for _, e := range exhibits(t) {
		if !slices.Contains(shown, e.Name) {
			t.Errorf("no page shows %s", e.Name)
		}
	}
}

// library returns a folder with the exhibit's plan, two runs and a record.
func library(t *testing.T, e Exhibit) (fstest.MapFS, *Record) {
	t.Helper()
	date := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	p, err := e.Plan(Full)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Spec()
	if err != nil {
		t.Fatal(err)
	}
	is := "0123456789abcdef" // in place of the plan's own, so that the page does not change with it
	d := &result.Data{Manifest: result.Manifest{
		Tool: "vitrine v1", Started: date.Add(2 * time.Hour), Finished: date.Add(2*time.Hour + 38*time.Minute), Specs: []result.Spec{s},
		Host: result.Host{CPUModel: "a CPU", CPUs: 2, Kernel: "6.18"}, NotIsolated: []string{"CPU 1 is shared"},
	}}
	interval := func(mean, half float64) Reading {
		return Reading{Interval: delay.Interval{Mean: mean, Low: mean - half, High: mean + half, Repeats: 6, Confidence: 0.95}}
	}
	r := newReadings()
	r.of["bn1s-sp1m-hs1m capacity@0.9"] = interval(80.123456, 4)
	r.of["bn1s-sp1m-hs1m cpu.bono"] = interval(0.7, 0.05)
	r.of["bn1s-sp1s-hs1s capacity@0.9"] = interval(40, 3)
	r.of["bn1s-sp1m-hs1s capacity@0.9"] = interval(77, 4)
	r.of["bn1s-sp1m-hs1s not.shown"] = interval(1, 0)
	record, err := e.NewRecord(d, r)
	if err != nil {
		t.Fatal(err)
	}
	record.Plan = is
	h := History{
		Plans: []Planned{{"fedcba9876543210", date.Add(-time.Hour), "First plan."}, {is, date, "Longer windows."}},
	}
	h = h.WithRun(Begun{Started: record.Started.Add(-time.Second), Plan: is, Tool: "vitrine v1"})
	h = h.WithRun(Begun{Started: date, Plan: "fedcba9876543210", Deviations: []string{"--quick"}, Tool: "vitrine v1"})
	text, err := yaml.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := record.Write(dir); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(recordFile(e.Name))))
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{historyFile(e.Name): {Data: text}, recordFile(e.Name): {Data: kept}}, record
}

// TestRecordNamesSwitchAndDevice checks that the record of a run, and the page, say with which virtual
// switch and on which network card it was made.
func TestRecordNamesSwitchAndDevice(t *testing.T) {
	e, err := Find("container-networking/figure-2")
	if err != nil {
		t.Fatal(err)
	}
	record, err := e.NewRecord(&result.Data{Manifest: result.Manifest{
		FabricVersions: map[string]string{"ovs": "Open vSwitch 3.1.0, datapath netdev"},
		Measurement:    []byte(`{"options": {"sriov": {"parent": "eno1"}}}`),
	}}, newReadings())
	if err != nil {
		t.Fatal(err)
	}
	text := record.circumstances(History{})
	for _, want := range []string{"Fabric `ovs`: Open vSwitch 3.1.0, datapath netdev.", `Options of sriov {"parent":"eno1"}.`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
}

func TestGoldenPage(t *testing.T) {
	e, err := Find("nfv-vital/reg-invite")
	if err != nil {
		t.Fatal(err)
	}
	from, record := library(t, e)
	if _, kept := record.Readings["bn1s-sp1m-hs1s not.shown"]; kept || record.Readings["bn1s-sp1m-hs1m capacity@0.9"].Mean != 80.123 {
		t.Errorf("kept %v", record.Readings)
	}
	begin, end := marks(Prefix + e.Name)
	got, err := Fill("page.md", "# Before\n\n"+begin+"\nold\n"+end+"\n\n# After\n", from)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Golden(t, *update, "testdata/page.md", []byte(got))
	if again, err := Fill("page.md", got, from); err != nil || again != got {
		t.Errorf("filled twice, the page changes: %v", err)
	}
}

// TestSharedRunLinks checks that an exhibit that shows another's run links to that section. On a page
// without that section it lists the plans itself.
func TestSharedRunLinks(t *testing.T) {
	e, err := Find("nfv-vital/figure-1")
	if err != nil {
		t.Fatal(err)
	}
	from, _ := library(t, e)
	place := func(name string) string {
		begin, end := marks(Prefix + name)
		return begin + "\n" + end + "\n"
	}
	const link = "[`papers/nfv-vital/figure-1`](#figure-1-success-against-offered-rate-scaling-up)"
	for _, tt := range []struct {
		page   string
		linked bool
	}{
		{place("nfv-vital/figure-1") + place("nfv-vital/figure-3"), true},
		{place("nfv-vital/figure-3"), false},
	} {
		got, err := Fill("page.md", tt.page, from)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, link) != tt.linked || strings.Count(got, "<details>") != 1 {
			t.Errorf("want a link: %v, and the plans once:\n%s", tt.linked, got)
		}
	}
	if got, want := anchor("Table I: delay (RFC 3550) of 64-byte frames, µs"), "#table-i-delay-rfc-3550-of-64-byte-frames-µs"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestBeside checks that a statement about another run needs a record of that run by its committed
// plan and of the same kind of machine.
func TestBeside(t *testing.T) {
	e, err := Find("nfv-vital/reg-invite")
	if err != nil {
		t.Fatal(err)
	}
	const base, name = "nfv-vital/figure-6", "bn1s-sp1m-hs1m/pinning=on capacity@0.9"
	date := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	record := &Record{
		Exhibit: base, Plan: "new", Started: date, Host: result.Host{CPUModel: "a CPU", CPUs: 2, Kernel: "6.18"}.Described(),
		Readings: map[string]Reading{name: {Interval: delay.Interval{Mean: 600}}},
	}
	for _, tt := range []struct{ committed, cpu, missing string }{
		{"new", "a CPU", ""},
		{"newer", "a CPU", "not run by its committed plan"},
		{"new", "another CPU", "recorded on another machine (a CPU with 2 CPUs)"},
	} {
		dir := t.TempDir()
		h := History{Plans: []Planned{{Digest: tt.committed, Date: date}}}
		if err := errors.Join(record.Write(dir), h.Write(dir, base)); err != nil {
			t.Fatal(err)
		}
		r := newReadings()
		r.machine = result.Host{CPUModel: tt.cpu, CPUs: 2}.Machine()
		if r, err = r.Beside(os.DirFS(dir), e); err != nil {
			t.Fatal(err)
		}
		x, missing := r.read("figure-6: " + name)
		if missing == "" != (tt.missing == "") || !strings.Contains(missing, tt.missing) || (missing == "") != (x.Mean == 600) {
			t.Errorf("%+v: got %g, %q", tt, x.Mean, missing)
		}
	}
}

func TestFillRefuses(t *testing.T) {
	begin, _ := marks(Prefix + "nfv-vital/table-2")
	for _, page := range []string{"no marks\n", begin + "\n"} {
		if _, err := Fill("page.md", page, Files()); err == nil || !strings.Contains(err.Error(), "page.md") {
			t.Errorf("%q: %v", page, err)
		}
	}
}

func TestHistoryRefuses(t *testing.T) {
	date := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	h := History{Plans: []Planned{{Digest: "old", Date: date.Add(-time.Hour)}, {Digest: "new", Date: date}}}
	for _, tt := range []struct {
		plan    string
		started time.Time
		want    string
	}{
		{"new", date.Add(time.Second), ""},
		{"old", date.Add(time.Second), "plan old is not the committed plan new"},
		{"", date.Add(time.Second), "kept no plan"},
		{"new", date.Add(-time.Second), "recorded after the run began"},
	} {
		if got := h.Refuses(tt.plan, tt.started); got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s at %s: %q, want %q", tt.plan, tt.started, got, tt.want)
		}
	}
	h.Plans = append(h.Plans, Planned{Digest: "old", Date: date.Add(time.Hour)})
	if got := h.Refuses("old", date); got != "" {
		t.Errorf("the plan changed back to what it was before the run, and the run is refused: %s", got)
	}
	if got := (History{}).Refuses("new", date); got != "no plan is committed" {
		t.Error(got)
	}
}

// TestRunsWithinAMinuteAllCount: a run may end at once, and the next one begin within the minute. The
// page must not hide the first.
func TestRunsWithinAMinuteAllCount(t *testing.T) {
	date := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	h := History{}.Begin(Begun{Started: date, Plan: "new"}).Begin(Begun{Started: date.Add(50 * time.Second), Plan: "new"})
	record := &Record{Plan: "new", Started: date.Add(45 * time.Second)} // the manifest is written before the history
	if got := h.WithRun(Begun{Started: record.Started, Plan: "new"}); len(got.Runs) != 2 {
		t.Errorf("the second run's folder adds another run: %v", got.Runs)
	}
	if got := h.before(record); len(got) != 1 || !got[0].Started.Equal(date) {
		t.Errorf("runs before the second: %v, want the first", got)
	}
}

// TestDeviationsMakeAnotherPlan checks that flags that change what is measured
// make another plan, which is never the committed one.
func TestDeviationsMakeAnotherPlan(t *testing.T) {
	for _, name := range []string{"nfv-vital/table-2", "container-networking/table-1", "container-networking/figure-8"} {
		e, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, plan := range []func() (Plan, error){
			func() (Plan, error) { return e.Plan(Full) },
			func() (Plan, error) { return e.Plan(Quick) },
			func() (Plan, error) { return e.Plan(Full, "--max-time 1m0s") },
		} {
			p, err := plan()
			if err != nil {
				t.Fatal(err)
			}
			s, err := p.Spec()
			if err != nil {
				t.Fatal(err)
			}
			is, err := p.Digest()
			if err != nil || seen[is] {
				t.Errorf("%s: plan %s twice: %v", name, is, err)
			}
			seen[is] = true
			if kept, _, err := PlanOf(result.Manifest{Specs: []result.Spec{{Role: "deployment"}, s}}); err != nil || kept != is {
				t.Errorf("%s: the manifest keeps %s of %s: %v", name, kept, is, err)
			}
		}
	}
}
