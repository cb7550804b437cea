package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/report"
	"vitrine/result"
)

var (
	update = flag.Bool("update", false, "write the golden files anew")
	shared string // folder of simulated runs, for the life of the tests
)

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if shared, err = os.MkdirTemp("", "report"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(shared)
	os.Exit(code)
}

// golden compares with testdata/name.golden, or writes it under -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	hosttest.Golden(t, *update, filepath.Join("testdata", name+".golden"), got)
}

func writeReport(t *testing.T, datas ...*result.Data) (dir, page string) {
	t.Helper()
	dir = t.TempDir()
	if err := report.Write(dir, datas...); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, report.PageFile))
	if err != nil {
		t.Fatal(err)
	}
	return dir, string(b)
}

func pageOf(t *testing.T, datas ...*result.Data) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Page(&b, datas...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// drawn is the report of directedReport.
var drawn struct {
	sync.Once
	data      *result.Data
	dir, page string
}

// directedReport returns the run of directed, and the folder and the page of its report. They are made
// once, because it takes long to draw the figures, and no test may change them.
func directedReport(t *testing.T) (d *result.Data, dir, page string) {
	t.Helper()
	drawn.Do(func() {
		d := simulate(t, directed(), "run")
		dir, err := os.MkdirTemp(shared, "directed-")
		if err == nil {
			err = report.Write(dir, d)
		}
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(dir, report.PageFile))
		if err != nil {
			t.Fatal(err)
		}
		drawn.data, drawn.dir, drawn.page = d, dir, string(page)
	})
	if drawn.data == nil {
		t.Fatal("another test could not write the report")
	}
	return drawn.data, drawn.dir, drawn.page
}

// withoutDrawings removes the contents of figures, which have their own golden
// files.
func withoutDrawings(page string) []byte {
	page = regexp.MustCompile(`(?s)(<svg [^>]*>).*?</svg>`).ReplaceAllString(page, "$1…</svg>")
	page = regexp.MustCompile(`(?s)<style>.*?</style>`).ReplaceAllString(page, "<style>…</style>")
	return []byte(regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAllString(page, "<script>…</script>"))
}

func TestPageOfADirectedSearch(t *testing.T) {
	t.Parallel()
	_, dir, page := directedReport(t)
	golden(t, "directed.html", withoutDrawings(page))
	svg, err := os.ReadFile(filepath.Join(dir, "figures", "capacity.svg"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "capacity.svg", svg)

	want := []string{"capacity", "demand", "frontier", "search-bn1s-sp1m-hs1m", "search-bn1s-sp1m-hs1s", "search-bn1s-sp1s-hs1s", "success", "time-bn1s-sp1m-hs1m", "time-bn1s-sp1m-hs1s", "time-bn1s-sp1s-hs1s", "use"}
	for _, name := range want {
		checkSVG(t, filepath.Join(dir, "figures", name+".svg"))
		checkPNG(t, filepath.Join(dir, "figures", name+".png"))
	}
	if files, err := os.ReadDir(filepath.Join(dir, "figures")); err != nil || len(files) != 2*len(want) {
		t.Errorf("%d files of figures, want %d: %v", len(files), 2*len(want), err)
	}
	if n := strings.Count(page, "<svg "); n != len(want) {
		t.Errorf("%d figures in the page, want %d", n, len(want))
	}
	if n := strings.Count(page, `<circle class="tip"`); n < 30 {
		t.Errorf("only %d points have a tip", n)
	}
}

func checkSVG(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	checkXML(t, f)
}

func checkXML(t *testing.T, r io.Reader) {
	t.Helper()
	for x := xml.NewDecoder(r); ; {
		if _, err := x.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func checkPNG(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	colors := map[any]bool{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y += 3 {
		for x := b.Min.X; x < b.Max.X; x += 3 {
			colors[img.At(x, y)] = true
		}
	}
	if b.Dx() != 2000 || len(colors) < 5 {
		t.Errorf("%s is %d pixels wide with %d colours", path, b.Dx(), len(colors))
	}
}

// TestPageIsOneFile checks that the page loads nothing from elsewhere.
func TestPageIsOneFile(t *testing.T) {
	t.Parallel()
	page := pageOf(t, simulate(t, modelled(), "run"))
	for _, m := range regexp.MustCompile(`(?i)(?:src|href|xlink:href|action|data)\s*=\s*"([^"]*)"|url\(([^)]*)\)|@import`).FindAllStringSubmatch(page, -1) {
		if to := m[1]; !strings.HasPrefix(to, "#") && !strings.HasPrefix(to, "figures/") {
			t.Errorf("the page refers to %q", m[0])
		}
	}
	for _, m := range regexp.MustCompile(`https?://[^"' ]*`).FindAllString(page, -1) {
		if !strings.HasPrefix(m, "http://www.w3.org/") { // XML namespaces, not addresses
			t.Errorf("the page names %s", m)
		}
	}
}

// TestEverythingFromOutsideIsEscaped checks that the page shows all text from the user or a
// function as plain text.
func TestEverythingFromOutsideIsEscaped(t *testing.T) {
	t.Parallel()
	const evil = "</title><script>alert(\"1\")</script>\n<img src=x onerror='x'>&amp;\x01"
	d := simulate(t, modelled(), "run")
	d.Profile.Settings[0].Options = evil
	for i := range d.Profile.Settings[0].Sizes {
		d.Profile.Settings[0].Sizes[i].Sizing, d.Profile.Settings[0].Sizes[i].Bottleneck = evil, evil
	}
	d.Dir += `/<script>alert(2)</script>`
	d.Manifest.VNF, d.Summary.VNF = evil, evil
	d.Summary.Unit = "calls/<script>s"
	d.Manifest.Command = []string{evil}
	d.Manifest.NotIsolated = []string{evil}
	d.Manifest.Specs[0].Path, d.Manifest.Specs[0].Text = evil, evil
	d.Manifest.Host.Missing["governor"] = evil
	d.Manifest.Unsupported = map[string]string{evil: evil}
	d.Summary.Optimal.Why, d.Summary.StoppedBecause, d.Summary.Path[0].Why = evil, evil, evil
	d.Summary.Sizings[0].Bottleneck = evil
	d.Summary.Sizings[0].Utilization[evil] = 0.5
	d.Warnings = []string{evil}
	for i := range d.Outcomes {
		d.Outcomes[i].Options = evil
		d.Outcomes[i].Failed = map[string]int64{evil: 1}
		d.Outcomes[i].Reason = evil
	}
	page := pageOf(t, d)
	if strings.Count(page, "<script") != 1 || strings.Contains(page, "<img") {
		t.Error("text from outside became markup")
	}
	if title := regexp.MustCompile(`<title>[^<]*</title>`).FindString(page); !strings.Contains(title, "&lt;script&gt;") {
		t.Errorf("the title is %s", title)
	}
	drawings := regexp.MustCompile(`(?s)<svg [^>]*>.*?</svg>`).FindAllString(page, -1)
	if len(drawings) < 3 {
		t.Fatalf("%d figures", len(drawings))
	}
	for _, drawing := range drawings {
		checkXML(t, strings.NewReader(drawing))
	}
}

func TestMissingValuesHaveAReason(t *testing.T) {
	d := simulate(t, directed(), "run")
	if err := os.RemoveAll(filepath.Join(d.Dir, "usage")); err != nil {
		t.Fatal(err)
	}
	for i := range d.Summary.Sizings {
		delete(d.Summary.Sizings[i].Utilization, "homestead")
	}
	for i := range d.Outcomes {
		for instance, u := range d.Outcomes[i].Use {
			if u.Component == "homestead" {
				u.CPU, u.Missing = nil, map[string]string{"cpu": "no cpu controller"}
				d.Outcomes[i].Use[instance] = u
			}
		}
	}
	d.Summary.Sizings[0].Capacities = []vitrine.Capacity{
		{Threshold: 0.9, Rate: 40, Low: 0, High: 40, Censored: vitrine.CensoredBelow},
		{Threshold: 0.8, Censored: vitrine.CensoredGenerator},
	}
	d.Summary.Sizings[1].Capacities[0].Censored = vitrine.CensoredGenerator
	page := pageOf(t, d)
	for what, want := range map[string]string{
		"use":       "not known: no cpu controller",
		"samples":   "no samples were kept of",
		"below":     "&lt; 40",
		"lowest":    "even the lowest rate tried, 40 calls/s, failed",
		"generator": "was valid: the table of trials says why",
		"nothing":   "no valid trial",
		"host":      "not known: the kernel does not show CPU frequency control",
		"invalid":   "1 trial is invalid and left out of every estimate: generator: offered 0.97 of its schedule",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s: the page lacks %q", what, want)
		}
	}
}

func TestUnfinishedRunIsShown(t *testing.T) {
	d := simulate(t, directed(), "run")
	d.Summary = nil
	page := pageOf(t, d)
	for _, want := range []string{"The run is not finished", "bn1s-sp1m-hs1m", "No path was recorded"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if section := part(t, page, "capacity"); !strings.Contains(section, ">177 <small>no interval: the search did not end<") || strings.Contains(section, "160 to 191") {
		t.Error("the page has an interval of a search that did not end")
	}
	var b bytes.Buffer
	if err := report.Text(&b, d); err != nil || !strings.Contains(b.String(), "continue it with --resume") {
		t.Errorf("Text wrote %q, %v", b.String(), err)
	}
}

// TestKilledRunIsNotFinished checks a run whose summary has no end, because the summary is saved
// after every size. The sizes that the summary lacks are not compared.
func TestKilledRunIsNotFinished(t *testing.T) {
	d := simulate(t, directed(), "run")
	d.Summary.StoppedBecause, d.Summary.Optimal = "", nil
	d.Summary.Sizings = d.Summary.Sizings[:1]
	page := pageOf(t, d)
	for _, want := range []string{"The run is not finished", "bn1s-sp1m-hs1m"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	const note = "no interval: the search did not end"
	if section := part(t, page, "capacity"); strings.Count(section, "<small>"+note+"<") != 2*2 || strings.Count(section, ">unknown<") != 2 {
		t.Errorf("the table of capacities does not have the note at both thresholds of two sizes: %s", section)
	}
	if !strings.Contains(part(t, page, "search"), "the band is its spread ("+note+").") {
		t.Error("the page calls the spread of an estimate an interval")
	}
	var js bytes.Buffer
	if err := report.CompareJSON(&js, d); err != nil {
		t.Fatal(err)
	}
	var c report.Comparison
	if err := json.Unmarshal(js.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	for i, r := range c.Rows {
		if (i == 0) != (r.Relation == "best") || (i > 0) != (r.Relation == "unknown" && r.Note == note) {
			t.Errorf("got row %+v", r)
		}
	}
}

func TestRunsOfDifferentThresholdsAreComparedAtOne(t *testing.T) {
	t.Parallel()
	runs := twoRuns(t)
	z := runs[1].Summary.Sizings
	for i := range z {
		z[i].Capacities = z[i].Capacities[1:] // only 0.8
		z[i].Capacity = z[i].Capacities[0]
	}
	runs[1].Summary.Thresholds = []float64{0.8}
	var b bytes.Buffer
	if err := report.CompareJSON(&b, runs...); err != nil {
		t.Fatal(err)
	}
	var c report.Comparison
	if err := json.Unmarshal(b.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Rows) != 6 {
		t.Fatalf("got %d rows, want 6", len(c.Rows))
	}
	page := pageOf(t, runs...)
	for _, r := range c.Rows {
		if r.Threshold != 0.9 || r.Rate == 0 || r.Relation == "unknown" || r.Note != "" {
			t.Errorf("%+v is not a capacity at success ratio 0.9", r)
		}
		perCPU := fmt.Sprintf(`<td class="n">%.0f</td><td><span class="relation`, r.Rate/r.VCPUs)
		if r.Censored == vitrine.CensoredNone && !strings.Contains(page, perCPU) {
			t.Errorf("%s of %s: the page lacks %q", r.Sizing, r.Run, perCPU)
		}
	}
}

func TestOldFiguresAreRemoved(t *testing.T) {
	dir := t.TempDir()
	figures := filepath.Join(dir, "figures")
	if err := os.Mkdir(figures, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"success-9.svg", "demand-2.svg", "time-old.png", "search-old.svg", "frontier.png", "prediction.svg", ".success-2.svg.123456.tmp", "mine.svg", ".mine.svg.1.tmp"} {
		if err := os.WriteFile(filepath.Join(figures, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := report.Write(dir, &result.Data{Dir: "empty"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(figures)
	if err != nil || len(entries) != 2 || entries[0].Name() != ".mine.svg.1.tmp" || entries[1].Name() != "mine.svg" {
		t.Errorf("left are %v, %v", entries, err)
	}
}

// TestMeasuredFiguresAreApartAndMarked checks the figures of runs that measured something other than
// capacities: each run has its own files, and emulation is marked.
func TestMeasuredFiguresAreApartAndMarked(t *testing.T) {
	measured := func(dir string) *result.Data {
		return &result.Data{
			Dir:      dir,
			Manifest: result.Manifest{Unit: "packets/s", Accelerator: vitrine.Emulation, Measurement: json.RawMessage(`{"kind": "packets"}`)},
			Sections: []result.Section{{Name: "latency", Title: "Latency", Charts: []result.Chart{{Name: "latency-median", Title: "Median", Bars: []result.Bar{{Name: "bridge", Whole: 1}}}}}},
		}
	}
	dir, page := writeReport(t, measured("monday"), measured("tuesday"))
	for _, name := range []string{"measured-latency-median.svg", "measured-latency-median-2.svg"} {
		svg, err := os.ReadFile(filepath.Join(dir, "figures", name))
		if err != nil {
			t.Error(err)
		}
		if !bytes.Contains(svg, []byte("not comparable: ")) || !strings.Contains(page, "figures/"+name) {
			t.Errorf("%s has no mark, or the page has no link to it", name)
		}
	}
}

// TestLegendOfManyCurvesFits checks that no text of a chart with many curves is below its lower edge.
func TestLegendOfManyCurvesFits(t *testing.T) {
	t.Parallel()
	chart := result.Chart{Name: "latency-mean", Title: "Mean"}
	for i := range 40 {
		chart.Curves = append(chart.Curves, result.Curve{Name: fmt.Sprintf("curve %d", i+1), Points: []result.Point{{X: 1, Y: 1}, {X: 2, Y: 1}}})
	}
	page := pageOf(t, &result.Data{Dir: "run", Manifest: result.Manifest{Unit: "packets/s", Measurement: json.RawMessage(`{"kind": "packets"}`)},
		Sections: []result.Section{{Name: "latency", Title: "Latency", Charts: []result.Chart{chart}}}})
	entries := regexp.MustCompile(`<text x="[^"]*" y="([^"]*)"[^>]*>curve \d+</text>`).FindAllStringSubmatch(page, -1)
	if len(entries) != 40 {
		t.Fatalf("the legend has %d entries, want 40", len(entries))
	}
	for _, m := range entries {
		if y := parse(t, m[1]); y > -2 { // y is the height above the lower edge, times -1
			t.Errorf("an entry of the legend is at %g", y)
		}
	}
}

func TestRunWithoutTrials(t *testing.T) {
	d := &result.Data{Dir: "runs/empty", Manifest: directed().manifest()}
	page := pageOf(t, d)
	for _, want := range []string{"No trial was finished", "No size was measured", "Provenance"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if err := report.Compare(io.Discard, d); err != nil {
		t.Error(err)
	}
}

func TestNoVerdictWithoutValidTrials(t *testing.T) {
	d := simulate(t, directed(), "run")
	d.Summary = nil
	for i := range d.Outcomes {
		d.Outcomes[i].Valid, d.Outcomes[i].Reason = false, "the generator crashed"
	}
	page := pageOf(t, d)
	if !strings.Contains(page, "not measured: no valid trial") || strings.Contains(page, `>optimal<`) {
		t.Error("a run without valid trials has a verdict")
	}
}

func TestTextIsShort(t *testing.T) {
	d := simulate(t, directed(), "run")
	var b bytes.Buffer
	if err := report.Text(&b, d); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, report.PageFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := report.Text(&b, d); err != nil {
		t.Fatal(err)
	}
	golden(t, "directed.txt", bytes.ReplaceAll(b.Bytes(), []byte(d.Dir), []byte("runs/demo")))
}

// twoRuns returns runs of the same sizes on a slow machine and on a fast one.
func twoRuns(t *testing.T) []*result.Data {
	t.Helper()
	slow, fast := directed(), directed()
	fast.speed, fast.seed, fast.options = 1.6, 9, "pinning=on"
	slow.options = "pinning=off"
	return []*result.Data{simulate(t, slow, "monday"), simulate(t, fast, "tuesday")}
}

func TestRunsAreCompared(t *testing.T) {
	runs := twoRuns(t)
	var text, js bytes.Buffer
	if err := report.Compare(&text, runs...); err != nil {
		t.Fatal(err)
	}
	if err := report.CompareJSON(&js, runs...); err != nil {
		t.Fatal(err)
	}
	golden(t, "compared.txt", text.Bytes())
	golden(t, "compared.json", js.Bytes())
	var c report.Comparison
	if err := json.Unmarshal(js.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Rows) != 6 || len(c.Pairs) != 3 || c.Rows[0].Relation != "best" || c.Rows[0].Run != "tuesday" {
		t.Errorf("compared: %+v", c)
	}
	runs[1].Summary.Interleaved = true
	page := pageOf(t, runs...)
	golden(t, "compared.html", withoutDrawings(page))
}

// TestTrialsShowTheirDisturbance checks the columns about the backlog, the host and the monitor, and the
// warnings about generator and function. A run without these readings must not have them.
func TestTrialsShowTheirDisturbance(t *testing.T) {
	d := simulate(t, directed(), "run")
	failed := 0
	for i := range d.Outcomes {
		switch o := &d.Outcomes[i]; {
		case !o.Valid:
			o.InstanceEnded, o.Late = o.Seq == 11, time.Minute
		case o.SuccessRatio() >= 0.9:
			o.Late = time.Minute
		default:
			o.Late = []time.Duration{520 * time.Millisecond, 100 * time.Millisecond}[min(failed, 1)]
			failed++
		}
	}
	page := pageOf(t, d)
	for _, want := range []string{"calls began up to 0.52 s late in 1 trial that missed", "an instance of the function ended in 1 trial"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not warn that %s", want)
		}
	}
	_, row, _ := strings.Cut(part(t, page, "trials"), `data-sort="14">14</td>`)
	row, _, _ = strings.Cut(row, "</tr>")
	for _, want := range []string{">1.00 0.53 0.99</td>", ">0.004</td>", `data-sort="">–</td>`, ">0.1</td>", "<strong>invalid</strong>: disturbed: a fixed amount of work took 1.9 times as long"} {
		if !strings.Contains(row, want) {
			t.Errorf("trial 14 lacks %q: %s", want, row)
		}
	}
	if !strings.Contains(page, "the monitor was held up in 1 trial, for up to 1.30 s") {
		t.Error("the page does not warn of the gap")
	}
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		o.Host, o.Sampling, o.InFlight, o.Late, o.InstanceEnded = nil, nil, nil, 0, false
	}
	page = pageOf(t, d)
	for _, gone := range []string{">Steal</th>", ">Speed</th>", ">Gap</th>", ">Backlog</th>", "held up", "calls began", "an instance of the function ended"} {
		if strings.Contains(page, gone) {
			t.Errorf("a run without readings has %q", gone)
		}
	}
}

func TestRunsOfDifferentUnitsAreRefused(t *testing.T) {
	runs := twoRuns(t)
	runs[1].Summary.Unit = "kpps"
	err := report.Write(t.TempDir(), runs...)
	if err == nil || !strings.Contains(err.Error(), "tuesday in kpps") {
		t.Errorf("Write returns %v", err)
	}
	if err := report.Compare(io.Discard, runs...); err == nil {
		t.Error("Compare wrote nothing")
	}
}

// TestManySizesAreSplit shows the ten sizes of Table II, which are more than one figure of curves
// can hold.
func TestManySizesAreSplit(t *testing.T) {
	t.Parallel()
	m := directed()
	m.repeats, m.rates = 1, []float64{20, 40, 60, 80, 120, 240, 360}
	m.path = nil
	for _, s := range []string{
		"bn1s-sp1s-hs1s", "bn1m-sp1m-hs1m", "bn1m-sp2s-hs2s", "bn1l-sp1l-hs1l", "bn1l-sp1l-hs2m",
		"bn1l-sp2m-hs1l", "bn1l-sp2m-hs2m", "bn1l-sp1l-hs4s", "bn1l-sp4s-hs1l", "bn1l-sp4s-hs4s",
	} {
		m.path = append(m.path, result.Step{Sizing: s, Why: "listed"})
	}
	page := pageOf(t, simulate(t, m, "ten"))
	drawings := regexp.MustCompile(`(?s)<svg [^>]*>.*?</svg>`).FindAllString(page, -1)
	shown := map[string]int{}
	for _, drawing := range drawings[:2] {
		for _, s := range m.path {
			if strings.Contains(drawing, ">"+s.Sizing+": ") {
				shown[s.Sizing]++
			}
		}
	}
	if len(shown) != 10 || slices.Max(slices.Collect(maps.Values(shown))) != 1 {
		t.Errorf("number of figures per size: %v, want 1 each", shown)
	}
	_, times, _ := strings.Cut(page, `<section id="time">`)
	if n := strings.Count(times, "<summary class=\"mono\">"); n != 10 {
		t.Errorf("%d sizes over time", n)
	}
	section := demandSection(t, page)
	for _, s := range m.path {
		if n := strings.Count(section, ">"+s.Sizing+"</text>"); n != 1 {
			t.Errorf("%s has %d panels of CPU per call", s.Sizing, n)
		}
	}
	if figures, folded := strings.Count(section, "<figure>"), strings.Count(section, "<details>"); figures != 2 || folded != 2 {
		t.Errorf("CPU per call of ten sizes: %d figures, and %d parts folded; want 2, and 2 with the table", figures, folded)
	}
}

// TestEmulationIsMarkedEverywhere checks that every table and figure of a run in emulation has a
// mark, and that those of other runs have none.
func TestEmulationIsMarkedEverywhere(t *testing.T) {
	t.Parallel()
	m := directed()
	m.path = slices.Delete(m.path, 2, 3) // two sizes have figures of every kind
	emulated, hardware := simulate(t, m, "emulated"), simulate(t, m, "hardware")
	emulated.Manifest.Accelerator = "tcg"
	hardware.Manifest.Accelerator = "kvm"
	const mark = "not comparable: "
	for _, datas := range [][]*result.Data{{emulated}, {hardware, emulated}} {
		page := pageOf(t, datas...)
		tables, captions := strings.Count(page, "<table"), regexp.MustCompile(`<caption[^>]*><strong class="mark">`+mark).FindAllString(page, -1)
		if tables < 4 || len(captions) != tables {
			t.Errorf("%d of %d tables are marked", len(captions), tables)
		}
		figures := regexp.MustCompile(`<figcaption><strong class="mark">`+mark).FindAllString(page, -1)
		drawings := regexp.MustCompile(`(?s)<svg [^>]*>.*?</svg>`).FindAllString(page, -1)
		if len(drawings) < 4 || len(figures) != len(drawings) {
			t.Errorf("%d of %d figures on the page are marked", len(figures), len(drawings))
		}
		for _, drawing := range drawings {
			if !strings.Contains(drawing, ">"+mark) { // the page hides this mark, but the figure's file shows it
				t.Errorf("a figure has no mark in its file: %.200s", drawing)
			}
		}
		var text bytes.Buffer
		if err := report.Compare(&text, datas...); err != nil || !strings.HasPrefix(text.String(), mark) {
			t.Errorf("%v\n%s", err, text.String())
		}
		if len(datas) > 1 && !strings.Contains(page, mark+"emulated: ") {
			t.Error("the mark does not name its run")
		}
	}
	var text bytes.Buffer
	if err := report.Text(&text, emulated); err != nil || !strings.Contains(text.String(), mark) {
		t.Errorf("%v\n%s", err, text.String())
	}
	if page := pageOf(t, hardware); strings.Contains(page, mark) {
		t.Error("a run under KVM has a mark")
	}
}
