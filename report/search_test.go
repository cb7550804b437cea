package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/report"
	"vitrine/result"
	"vitrine/search/rate"
)

// part returns the page's section with that id.
func part(t *testing.T, page, id string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `<section id="`+id+`">`)
	section, _, closed := strings.Cut(rest, "</section>")
	if !found || !closed {
		t.Fatalf("the page has no section %s", id)
	}
	return section
}

// A known is a row of a search's table.
type known struct {
	rate, ratio, judged, verdict, why string
	capacity, low, high               float64 // high: +Inf if the interval is open
}

var (
	searchRow = regexp.MustCompile(`<tr[^>]*><td class="n">\d+</td><td class="n">[\d.]+</td><td class="n">\d+</td><td class="n">([^<]*)</td><td class="n">[^<]*</td>` +
		`<td class="n">[^<]*</td><td class="n">([^<]*)</td>(?:<td class="n">([^<]*)</td>)?<td>([^<]*)</td><td>([^<]*)</td>(?:<td>([^<]*)</td>)?</tr>`)
	knownCell = regexp.MustCompile(`^[<≥]? ?([\d.]+) \((?:from )?([\d.]+) (?:to ([\d.]+)|up)\)$`)
)

// searchOf returns the table of one size.
func searchOf(t *testing.T, page, sizing string) []known {
	t.Helper()
	_, rest, found := strings.Cut(part(t, page, "search"), "<summary>Table of "+sizing+"</summary>")
	table, _, closed := strings.Cut(rest, "</table>")
	if !found || !closed {
		t.Fatalf("the page has no search of %s", sizing)
	}
	var rows []known
	for _, m := range searchRow.FindAllStringSubmatch(table, -1) {
		r := known{rate: m[1], ratio: m[2], judged: m[3], verdict: m[4], why: html.UnescapeString(m[6])}
		if cell := knownCell.FindStringSubmatch(html.UnescapeString(m[5])); cell != nil {
			r.capacity, r.low, r.high = parse(t, cell[1]), parse(t, cell[2]), math.Inf(1)
			if cell[3] != "" {
				r.high = parse(t, cell[3])
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// shows reports whether the row has the capacity, to the digits that are shown.
func (k known) shows(c vitrine.Capacity) bool {
	low, high := c.Low, c.High
	switch c.Censored {
	case vitrine.CensoredBelow:
		low = 0
	case vitrine.CensoredAbove, vitrine.CensoredGenerator:
		high = math.Inf(1)
	}
	same := func(a, b float64) bool { return a == b || math.Abs(a-b) <= 0.006*math.Abs(b) }
	return same(k.capacity, c.Rate) && same(k.low, low) && same(k.high, high)
}

func outcomesOf(d *result.Data, sizing string) []vitrine.Outcome {
	return slices.DeleteFunc(slices.Clone(d.Outcomes), func(o vitrine.Outcome) bool { return o.Subject != sizing })
}

func TestPageOfAModelSearch(t *testing.T) {
	t.Parallel()
	d := simulate(t, modelled(), "run")
	dir, page := writeReport(t, d)
	golden(t, "modelled.html", withoutDrawings(page))
	for _, name := range []string{"search-bn1s-sp1m-hs1m", "frontier", "prediction"} {
		path := filepath.Join(dir, "figures", name+".svg")
		checkSVG(t, path)
		checkPNG(t, filepath.Join(dir, "figures", name+".png"))
		svg, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".svg", svg)
	}
}

// TestSearchShowsEachEstimate checks that the page has, after every trial, the estimate from the
// trials so far.
func TestSearchShowsEachEstimate(t *testing.T) {
	d := simulate(t, directed(), "run")
	page := pageOf(t, d)
	narrower := 0
	for _, z := range d.Summary.Sizings {
		rows, history := searchOf(t, page, z.Name), outcomesOf(d, z.Name)
		if len(rows) != len(history) {
			t.Fatalf("%s: %d rows of %d trials", z.Name, len(rows), len(history))
		}
		for i, r := range rows {
			c := rate.Estimate(history[:i+1], rate.Config{Thresholds: []float64{0.9}, Seed: 7})[0]
			if !r.shows(c) {
				t.Errorf("%s, trial %d: %+v, want %+v", z.Name, i+1, r, c)
			}
			want := "passed"
			switch o := history[i]; {
			case !o.Valid:
				want = "invalid"
			case o.SuccessRatio() < 0.9:
				want = "failed"
			}
			if r.verdict != want || parse(t, r.rate) != history[i].Rate {
				t.Errorf("%s, trial %d at %s: %s, want %s", z.Name, i+1, r.rate, r.verdict, want)
			}
			if r.why != "" {
				t.Errorf("%s, trial %d: the reason %q, which no search gave", z.Name, i+1, r.why)
			}
		}
		last := rows[len(rows)-1]
		if !last.shows(z.Capacity) {
			t.Errorf("%s: the last row is %+v, want the summary's %+v", z.Name, last, z.Capacity)
		}
		if last.high-last.low < rows[0].high-rows[0].low {
			narrower++
		}
	}
	if narrower != len(d.Summary.Sizings) {
		t.Errorf("the interval became narrower in only %d searches", narrower)
	}
}

func TestSearchMarksItsTrials(t *testing.T) {
	t.Parallel()
	d, dir, _ := directedReport(t)
	for _, z := range d.Summary.Sizings {
		passed, failed, invalid := 0, 0, 0
		for _, o := range outcomesOf(d, z.Name) {
			switch {
			case !o.Valid:
				invalid++
			case o.SuccessRatio() >= 0.9:
				passed++
			default:
				failed++
			}
		}
		svg, err := os.ReadFile(filepath.Join(dir, "figures", "search-"+z.Name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		text := string(svg) // the legend has one more of each mark
		if p, f := strings.Count(text, "fill:#009E73"), strings.Count(text, "fill:#D55E00"); p != passed+1 || f != failed+1 {
			t.Errorf("%s: %d marks passed and %d failed, want %d and %d", z.Name, p, f, passed+1, failed+1)
		}
		if strings.Contains(text, ">invalid (") != (invalid > 0) {
			t.Errorf("%s: %d invalid trials, but the legend disagrees", z.Name, invalid)
		}
	}
}

// searched runs a real search on a simulated function.
func searched(m simulation, search rate.Search, recorded result.Search, cfg rate.Config) *result.Data {
	const sizing = "bn1s-sp1m-hs1m"
	size, _ := vitrine.ParseSizing(sizing)
	limit, _ := m.limit(size)
	var history []vitrine.Outcome
	step := search.Next(nil)
	for ; !step.Done; step = search.Next(history) {
		o := vitrine.Outcome{Key: vitrine.Key{Seq: len(history) + 1, Attempt: 1, Subject: sizing, Substrate: m.substrate, Repeat: step.Repeat, Rate: step.Rate}, Duration: step.Duration, Valid: true}
		for range int(step.Duration / time.Second) {
			due := int64(step.Rate)
			good := int64(float64(due) * min(1, limit/step.Rate))
			o.Seconds = append(o.Seconds, vitrine.Second{Scheduled: due, Offered: due, Succeeded: good, Failed: due - good})
			o.Scheduled, o.Offered, o.Succeeded = o.Scheduled+due, o.Offered+due, o.Succeeded+good
		}
		history = append(history, o)
	}
	z := result.Sizing{Name: sizing, Substrate: m.substrate, VCPUs: 0.5, Trials: len(history), Search: &recorded, Capacities: search.(rate.Estimator).Estimate(history)}
	z.Capacity = z.Capacities[0]
	return &result.Data{Dir: "run", Manifest: m.manifest(), Outcomes: history,
		Summary: &result.Summary{Unit: "calls/s", Thresholds: cfg.Thresholds, Sizings: []result.Sizing{z}, StoppedBecause: step.Why}}
}

// TestSearchIsShownByItsOwnEstimate checks that the page shows a search's own estimate if it has
// one, and every trial with the search's reason.
func TestSearchIsShownByItsOwnEstimate(t *testing.T) {
	m := directed()
	cfg := rate.Config{Min: 20, Max: 2000, Duration: 20 * time.Second, Repeat: 1, Thresholds: []float64{0.9, 0.8}, Seed: m.seed, Precision: 0.02}
	recorded := result.Search{Min: 20, Max: 2000, Duration: 20, Repeat: 1, Precision: 0.02}
	for name, search := range map[string]rate.Search{"adaptive": rate.NewAdaptive(cfg), "mlr": rate.NewMLR(cfg)} {
		recorded.Name = name
		d := searched(m, search, recorded, cfg)
		page := pageOf(t, d)
		rows := searchOf(t, page, "bn1s-sp1m-hs1m")
		if len(rows) != len(d.Outcomes) || len(rows) < 4 {
			t.Fatalf("%s: %d rows of %d trials", name, len(rows), len(d.Outcomes))
		}
		others := 0
		for i, r := range rows {
			history := d.Outcomes[:i+1]
			if c := search.(rate.Estimator).Estimate(history)[0]; r.capacity != 0 && !r.shows(c) {
				t.Errorf("%s, trial %d: %+v, want %+v", name, i+1, r, c)
			}
			if !r.shows(rate.Estimate(history, cfg)[0]) {
				others++
			}
			if want := search.Next(d.Outcomes[:i]).Why; r.why != want || want == "" {
				t.Errorf("%s, trial %d: the reason is %q, want %q", name, i+1, r.why, want)
			}
		}
		if others == 0 {
			t.Errorf("%s: the search's estimate never differs from the plain estimate, so this test proves nothing", name)
		}
		if !strings.Contains(part(t, page, "search"), "The larger a mark, the longer its trial") {
			t.Errorf("%s: the caption does not explain the several lengths of trials", name)
		}
		if success := part(t, page, "success"); !strings.Contains(success, "The line is a decreasing fit through all trials.") || strings.Contains(success, "gives the capacity") {
			t.Errorf("%s: the caption says that the line gives the capacity", name)
		}
	}
}

// TestUnsearchedRatiosAreNotCompared checks a run that searched another success ratio than the first
// run, by a search with its own estimate. Its capacity is a fit that allows no comparison.
func TestUnsearchedRatiosAreNotCompared(t *testing.T) {
	m := directed()
	var runs []*result.Data
	for _, threshold := range []float64{0.9, 0.8} {
		cfg := rate.Config{Min: 20, Max: 2000, Duration: 20 * time.Second, Repeat: 1, Thresholds: []float64{threshold}, Seed: m.seed, Precision: 0.02}
		recorded := result.Search{Name: "adaptive", Min: 20, Max: 2000, Duration: 20, Repeat: 1, Precision: 0.02}
		d := searched(m, rate.NewAdaptive(cfg), recorded, cfg)
		d.Dir = fmt.Sprintf("run-%g", threshold)
		d.Summary.Optimal = &result.Optimal{Sizing: d.Summary.Sizings[0].Name, Why: "it is the only one"}
		runs = append(runs, d)
	}
	var text, js bytes.Buffer
	if err := errors.Join(report.Compare(&text, runs...), report.CompareJSON(&js, runs...)); err != nil {
		t.Fatal(err)
	}
	var c report.Comparison
	if err := json.Unmarshal(js.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	const note = "no interval: searched at success ratio 0.8"
	if len(c.Rows) != 2 || c.Rows[0].Relation != "best" || c.Rows[0].Note != "" || c.Rows[1].Relation != "unknown" || c.Rows[1].Note != note {
		t.Errorf("got rows %+v", c.Rows)
	}
	if len(c.Pairs) != 1 || c.Pairs[0].Relation != "unknown" || c.Pairs[0].Ratio != nil {
		t.Errorf("got pairs %+v", c.Pairs)
	}
	page := pageOf(t, runs...)
	if !strings.Contains(text.String(), note) || !strings.Contains(part(t, page, "capacity"), note) {
		t.Errorf("the note is missing in the page, or in\n%s", &text)
	}
	_, heading, _ := strings.Cut(page, `aria-label="Result of run-0.8"`)
	heading, _, _ = strings.Cut(heading, "</section>")
	if !strings.Contains(heading, "an estimate at success ratio 0.9, "+note) || strings.Contains(heading, "95% interval") {
		t.Errorf("the heading has an interval: %s", heading)
	}
	if search := part(t, page, "search"); strings.Count(search, "the band is its spread ("+note+").") != 1 || strings.Count(search, "with its spread ("+note+").") != 1 {
		t.Error("the search does not show the estimate of one run as a mere estimate")
	}
}

// TestStoppedSearchIsNotCompared checks a size whose search was stopped. Its estimate is shown, but
// without an interval, and nothing follows from it.
func TestStoppedSearchIsNotCompared(t *testing.T) {
	runs := twoRuns(t)
	best := runs[1].Summary.Best()
	best.Unfinished = "the time limit --max-time is over"
	var text, js bytes.Buffer
	if err := errors.Join(report.Text(&text, runs[1]), report.CompareJSON(&js, runs...)); err != nil {
		t.Fatal(err)
	}
	var c report.Comparison
	if err := json.Unmarshal(js.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Rows {
		stopped := r.Run == "tuesday" && r.Sizing == best.Name
		if stopped != (r.Relation == "unknown") || stopped != (r.Note == "no interval: the search did not end") {
			t.Errorf("got row %+v", r)
		}
	}
	page := pageOf(t, runs...)
	if !strings.Contains(text.String(), "at success ratio 0.9, no interval: the search did not end") {
		t.Errorf("the mark is missing in\n%s", &text)
	}
	for _, id := range []string{"capacity", "path"} {
		if !strings.Contains(part(t, page, id), "no interval: the search did not end") {
			t.Errorf("the mark is missing in the section %s", id)
		}
	}
}

// TestSearchDoesNotSeeDisturbedTrials adds a disturbed trial at a rate above all before it. The page
// shows the trial; all others keep their reasons and capacities.
func TestSearchDoesNotSeeDisturbedTrials(t *testing.T) {
	m := directed()
	cfg := rate.Config{Min: 20, Max: 2000, Duration: 20 * time.Second, Repeat: 1, Thresholds: []float64{0.9}, Seed: m.seed, Precision: 0.02}
	recorded := result.Search{Name: "adaptive", Min: 20, Max: 2000, Duration: 20, Repeat: 1, Precision: 0.02}
	d := searched(m, rate.NewAdaptive(cfg), recorded, cfg)
	want := searchOf(t, pageOf(t, d), "bn1s-sp1m-hs1m")
	const k = 2
	disturbed := d.Outcomes[k]
	disturbed.Valid, disturbed.Disturbed, disturbed.Reason = false, true, "disturbed: a neighbour"
	d.Outcomes = slices.Insert(d.Outcomes, k, disturbed)
	d.Outcomes[k+1].Attempt = 2
	d.Summary.Sizings[0].Trials++
	got := searchOf(t, pageOf(t, d), "bn1s-sp1m-hs1m")
	if got[k].verdict != "invalid" {
		t.Errorf("the disturbed trial: %+v", got[k])
	}
	for i, r := range slices.Delete(got, k, k+1) {
		if r.why != want[i].why || r.why == "" || r.capacity != want[i].capacity {
			t.Errorf("trial %d: %+v, without the disturbed one %+v", i+1, r, want[i])
		}
	}
}

// TestTrialsThatAreNotSteady checks trials that meet the ratio while their backlog grows. They do
// not show as passed after a search that judges the backlog, but do after a ramp.
func TestTrialsThatAreNotSteady(t *testing.T) {
	m := directed()
	cfg := rate.Config{Min: 20, Max: 2000, Duration: 20 * time.Second, Repeat: 1, Thresholds: []float64{0.9}, Seed: m.seed, Precision: 0.02}
	recorded := result.Search{Name: "adaptive", Min: 20, Max: 2000, Duration: 20, Repeat: 1, Precision: 0.02}
	d := searched(m, rate.NewAdaptive(cfg), recorded, cfg)
	i := slices.IndexFunc(d.Outcomes, func(o vitrine.Outcome) bool { return o.Succeeded == o.Scheduled })
	growing, lost := &d.Outcomes[i], slices.Clone(d.Outcomes)[i]
	for k := range 200 { // by 5% of the rate
		growing.InFlight = append(growing.InFlight, int64(0.05*growing.Rate*float64(k)/10))
	}
	rows := searchOf(t, pageOf(t, d), "bn1s-sp1m-hs1m")
	if got := rows[i]; got.verdict != "not steady" || got.ratio != "1.000" || got.judged != "1.000" {
		t.Errorf("a growing backlog: %+v", got)
	}
	// The backlog does not grow, and a quarter of the calls is lost.
	lost.InFlight = slices.Repeat([]int64{5}, 200)
	lost.Succeeded -= lost.Scheduled / 4
	d.Outcomes[i] = lost
	if got := searchOf(t, pageOf(t, d), "bn1s-sp1m-hs1m")[i]; got.verdict != "failed" || got.judged != "0.750" {
		t.Errorf("a steady trial that fails: %+v", got)
	}
	d.Summary.Sizings[0].Search.Name = "ramp"
	if got := searchOf(t, pageOf(t, d), "bn1s-sp1m-hs1m")[i]; got.judged != "" {
		t.Errorf("a ramp that judges the backlog: %+v", got)
	}
}

// TestRatioOfAFailedTrialIsBelowTheThreshold: the ratio beside "failed" is not rounded up to the threshold.
func TestRatioOfAFailedTrialIsBelowTheThreshold(t *testing.T) {
	m := directed()
	cfg := rate.Config{Min: 20, Max: 2000, Duration: 20 * time.Second, Repeat: 1, Thresholds: []float64{0.9}, Seed: m.seed, Precision: 0.02}
	d := searched(m, rate.NewAdaptive(cfg), result.Search{Name: "adaptive"}, cfg)
	d.Summary.Thresholds, d.Summary.Sizings[0].Search = []float64{0.999}, nil
	o := &d.Outcomes[0]
	o.Scheduled, o.Offered, o.Succeeded = 3000, 3000, 2996
	page := pageOf(t, d)
	if got := searchOf(t, page, "bn1s-sp1m-hs1m")[0]; got.verdict != "failed" || got.ratio != "0.9987" {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(part(t, page, "trials"), `<td class="n">0.9987</td>`) {
		t.Error("the table of trials has another ratio")
	}
}

// TestSearchOfOtherRatesHasNoReasons checks that the page does not show a reason that belongs to
// another trial.
func TestSearchOfOtherRatesHasNoReasons(t *testing.T) {
	m := modelled()
	m.search.Increase = 7
	d := simulate(t, m, "run")
	page := pageOf(t, d)
	for _, z := range d.Summary.Sizings {
		for i, r := range searchOf(t, page, z.Name) {
			if i > 0 && r.why != "" {
				t.Errorf("%s, trial %d at %s: %q", z.Name, i+1, r.rate, r.why)
			}
		}
	}
}

// TestSizeMeasuredAgain checks that another measurement starts without the earlier trials, and
// that each step of the path has its own figure.
func TestSizeMeasuredAgain(t *testing.T) {
	d := simulate(t, modelled(), "run")
	first := d.Summary.Sizings[2]
	more := outcomesOf(d, first.Name)
	for i := range more {
		more[i].Seq += 1000
	}
	again := first
	again.Again, again.Trials = true, len(more)
	again.Capacity = vitrine.Capacity{Threshold: 0.9, Rate: 151, Low: 149, High: 153, Censored: vitrine.CensoredNone}
	again.Capacities = []vitrine.Capacity{again.Capacity}
	d.Outcomes = append(d.Outcomes, more...)
	d.Summary.Sizings = append(d.Summary.Sizings, again)
	end := d.Summary.Path[3]
	d.Summary.Path = append(d.Summary.Path[:3:3], result.Step{Sizing: first.Name, Why: "once more", Predicted: &first.Capacity}, end)

	page := pageOf(t, d)
	rows := searchOf(t, page, first.Name)
	if len(rows) != 2*len(more) {
		t.Fatalf("%d rows of 2 times %d trials", len(rows), len(more))
	}
	for i := range more {
		if rows[i] != rows[i+len(more)] {
			t.Errorf("trial %d: %+v the first time, %+v the second time", i+1, rows[i], rows[i+len(more)])
		}
	}
	path := part(t, page, "path")
	if strings.Count(path, "carries 151 calls/s") != 1 || strings.Count(path, "carries 177 calls/s") != 1 {
		t.Error("the path does not have the capacities of both measurements")
	}
	if n := strings.Count(part(t, page, "prediction"), ">"+first.Name); n != 1 {
		t.Errorf("%s is predicted %d times, want once, before its first measurement", first.Name, n)
	}
	stoppedConfirmation(t, d)
}

// stoppedConfirmation checks that the first measurement of the optimal size counts if the last entry of
// the summary, its second measurement, was stopped.
func stoppedConfirmation(t *testing.T, d *result.Data) {
	t.Helper()
	d.Summary.Sizings[len(d.Summary.Sizings)-1].Unfinished = "the time limit --max-time is over"
	var text, js bytes.Buffer
	if err := errors.Join(report.Text(&text, d), report.CompareJSON(&js, d)); err != nil {
		t.Fatal(err)
	}
	var c report.Comparison
	if err := json.Unmarshal(js.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	if best := c.Rows[0]; best.Relation != "best" || best.Note != "" || best.Sizing != d.Summary.Optimal.Sizing || math.Round(best.Rate) != 177 {
		t.Errorf("the best row is %+v", best)
	}
	if !strings.Contains(text.String(), "177 calls/s at success ratio 0.9, 95% interval") || strings.Contains(text.String(), "did not end") {
		t.Errorf("the text does not have the first measurement:\n%s", &text)
	}
	page := pageOf(t, d)
	_, optimal, _ := strings.Cut(part(t, page, "path"), `<li class="optimal">`)
	optimal, _, _ = strings.Cut(optimal, "</li>")
	if !strings.Contains(page, `<dd class="big">177 <small>`) || !strings.Contains(optimal, "carries 177 calls/s") {
		t.Error("the page does not call the first measurement optimal")
	}
}
