package report_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vitrine"
	"vitrine/report"
	"vitrine/result"
)

var demandRow = regexp.MustCompile(`<tr[^>]*><th scope="row" class="mono">([^<]*)</th><td><i class="dot"[^>]*></i>([^<]*)</td>` +
	`<td class="n strong" data-sort="[^"]*">([^<]*)</td><td class="n" data-sort="[^"]*">([^<]*)</td><td class="n" data-sort="[^"]*">([^<]*)</td><td class="n" data-sort="[^"]*">([^<]*)</td><td class="n">(\d+)</td></tr>`)

// demandSection returns the page's section on CPU per call.
func demandSection(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `<section id="demand">`)
	section, _, closed := strings.Cut(rest, "</section>")
	if !found || !closed {
		t.Fatal("the page has no section on CPU per call")
	}
	return section
}

func parse(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// fitted counts the trials that a component's line is fitted to.
func fitted(d *result.Data, sizing, component string) int {
	n := 0
	for _, o := range d.Outcomes {
		if o.Subject != sizing || !o.Valid || o.SuccessRatio() < 0.9 {
			continue
		}
		free := true // no instance at its quota
		for _, u := range o.Use {
			free = free && (u.Component != component || u.VCPUs == 0 || *u.CPU < 0.9*u.VCPUs)
		}
		if free {
			n++
		}
	}
	return n
}

// TestCPUPerCallIsFound checks that the report finds the cost of a call that the
// simulation uses.
func TestCPUPerCallIsFound(t *testing.T) {
	m := directed()
	d := simulate(t, m, "run")
	for i := range d.Outcomes { // a fixed amount of idle work, which must not count as work for calls
		for instance, u := range d.Outcomes[i].Use {
			if u.Component == "bono" {
				cpu := *u.CPU + 0.02
				u.CPU = &cpu
				d.Outcomes[i].Use[instance] = u
			}
		}
	}
	section := demandSection(t, pageOf(t, d))
	rows := demandRow.FindAllStringSubmatch(section, -1)
	if len(rows) != 3*len(m.components) {
		t.Fatalf("%d lines, want one for each of 3 sizes and 4 components:\n%v", len(rows), rows)
	}
	for _, row := range rows {
		size, component := row[1], row[2]
		idle := 0.0
		if component == "bono" {
			idle = 0.02
		}
		if ms := parse(t, row[3]); math.Abs(ms-cost(component)*1000) > 0.1*cost(component)*1000 {
			t.Errorf("%s, %s: %g ms of CPU per call, want about %g", size, component, ms, cost(component)*1000)
		}
		if cpus := parse(t, row[4]); math.Abs(cpus-idle) > 0.006 {
			t.Errorf("%s, %s: idle CPU %g, want about %g", size, component, cpus, idle)
		}
		if r2 := parse(t, row[5]); r2 < 0.9 || r2 > 1 {
			t.Errorf("%s, %s: R² %g", size, component, r2)
		}
		if row[6] != "–" {
			if r2 := parse(t, row[6]); r2 < 0.9 || r2 > 1 {
				t.Errorf("%s, %s: R² of the medians %g", size, component, r2)
			}
		}
		if n := int(parse(t, row[7])); n != fitted(d, size, component) || n < 4 {
			t.Errorf("%s, %s: %d trials, want %d", size, component, n, fitted(d, size, component))
		}
	}
	if strings.Contains(section, "generator") {
		t.Error("the generator counts as a component")
	}
}

// TestCPUPerCallShowsItsTrials checks that each trial that a line uses has a mark, and that no
// other trial has one.
func TestCPUPerCallShowsItsTrials(t *testing.T) {
	t.Parallel()
	d, dir, _ := directedReport(t)
	svg, err := os.ReadFile(filepath.Join(dir, "figures", "demand.svg"))
	if err != nil {
		t.Fatal(err)
	}
	want := 1 // in the legend
	for _, s := range d.Summary.Sizings {
		want += fitted(d, s.Name, "bono")
	}
	bono := regexp.MustCompile(`<path d="[^"]*A[^"]*"\s+style="fill:#0072B2`) // a filled circle
	if got := len(bono.FindAll(svg, -1)); got != want {
		t.Errorf("%d marks of bono, want %d", got, want)
	}
}

func TestUnknownCPUPerCallHasAReason(t *testing.T) {
	d := simulate(t, directed(), "run")
	first, second := d.Summary.Sizings[0].Name, d.Summary.Sizings[1].Name
	kept := map[string]int{}
	d.Outcomes = slices.DeleteFunc(d.Outcomes, func(o vitrine.Outcome) bool { // keep two trials of the first size, below its quotas
		kept[o.Subject]++
		return o.Subject == first && kept[o.Subject] > 2
	})
	for _, o := range d.Outcomes {
		if u := o.Use["homer-1"]; o.Subject == second {
			u.CPU, u.Missing = nil, map[string]string{vitrine.CPU: "no <cpu> controller"}
			o.Use["homer-1"] = u
		}
	}
	section := demandSection(t, pageOf(t, d))
	for _, want := range []string{
		"Too few valid trials with a success ratio of at least 0.9, or too few different rates among them, to draw a line through: " + first + ".",
		"CPU was not read (no &lt;cpu&gt; controller): " + second + " homer.",
	} {
		if !strings.Contains(section, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := len(demandRow.FindAllString(section, -1)); n != 3+4 {
		t.Errorf("%d lines, want 3 of the second size and 4 of the third", n)
	}

	d.Outcomes = slices.DeleteFunc(d.Outcomes, func(o vitrine.Outcome) bool { return o.Rate != 100 })
	section = demandSection(t, pageOf(t, d))
	if strings.Contains(section, "<figure>") || strings.Contains(section, "<table") || !strings.Contains(section, "Too few valid trials") {
		t.Error("the page has lines through trials at a single rate")
	}
}

// TestCPUPerCallOfNearRatesIsUnknown checks a component whose CPU falls as the rate
// rises, and one whose CPU differs between deployments alone. Neither has a cost.
func TestCPUPerCallOfNearRatesIsUnknown(t *testing.T) {
	d := simulate(t, directed(), "run")
	name := d.Summary.Sizings[1].Name
	for _, o := range d.Outcomes {
		if o.Subject != name {
			continue
		}
		for instance, cpu := range map[string]float64{
			"bono-1":   0.05 - 0.0001*o.Rate,
			"sprout-1": 0.05 + 0.001*float64(o.Repeat),
		} {
			u := o.Use[instance]
			u.CPU = &cpu
			o.Use[instance] = u
		}
	}
	section := demandSection(t, pageOf(t, d))
	costs, err := report.CallCosts(d)
	if err != nil {
		t.Fatal(err)
	}
	rows := demandRow.FindAllStringSubmatch(section, -1)
	if !slices.EqualFunc(costs, rows, func(c report.CallCost, row []string) bool {
		return c.Sizing == row[1] && c.Component == row[2] && math.Abs(1000*c.PerCall-parse(t, row[3])) < 0.01*1000*c.PerCall
	}) {
		t.Errorf("CallCosts returns %v, and the page has %v", costs, rows)
	}
	note := fmt.Sprintf("CPU per call is not known, because the rates of the trials are too close to tell it from chance: %s bono, %s sprout.", name, name)
	if !strings.Contains(section, note) {
		t.Errorf("the page lacks %q", note)
	}
	var lined []string
	for _, row := range rows {
		if row[1] == name {
			lined = append(lined, row[2])
		}
	}
	if want := []string{"homestead", "homer"}; !slices.Equal(lined, want) {
		t.Errorf("the page has lines of %v, want %v", lined, want)
	}
}

// TestComponentAtItsQuotaHasAReason checks a component that is at its quota at all rates but the lowest, and
// one that is just below.
func TestComponentAtItsQuotaHasAReason(t *testing.T) {
	for _, share := range []float64{0.89, 0.91} {
		d := simulate(t, directed(), "run")
		name, all, full := d.Summary.Sizings[1].Name, 0, 0
		for _, o := range d.Outcomes {
			if o.Subject != name || !o.Valid || o.SuccessRatio() < 0.9 {
				continue
			}
			all++
			u := o.Use["homer-1"]
			cpu := u.VCPUs / 2
			if o.Rate > 40 { // the lowest rate has a trial on each of three deployments
				full++
				cpu = share * u.VCPUs
			}
			u.CPU = &cpu
			o.Use["homer-1"] = u
		}
		section := demandSection(t, pageOf(t, d))
		note := fmt.Sprintf("At its CPU quota in %d of the %d valid trials with a success ratio of at least 0.9, which leaves too few to draw a line through: %s homer.", full, all, name)
		if strings.Contains(section, note) != (share > 0.9) || strings.Contains(section, "Too few valid trials") {
			t.Errorf("at %g of its quota: the page has %q: %t", share, note, share <= 0.9)
		}
		lined := slices.ContainsFunc(demandRow.FindAllStringSubmatch(section, -1), func(row []string) bool { return row[1] == name && row[2] == "homer" })
		if lined != (share < 0.9) {
			t.Errorf("at %g of its quota: there is a line: %t", share, lined)
		}
	}
}

// TestCPUOverTimeIsAShareOfTheQuota checks that percentages over time are shares of each
// instance's quota.
func TestCPUOverTimeIsAShareOfTheQuota(t *testing.T) {
	d := simulate(t, directed(), "run")
	page := pageOf(t, d)
	for _, want := range []string{">CPU, % of its quota</text>", ">sprout-1</text>", ">generator (of 1 CPU)</text>",
		"as a share of the instance&#39;s quota.", "The thin grey line is the load generator"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	d.Manifest.CPUs.Generator = []int{0, 1}
	for _, o := range d.Outcomes {
		u := o.Use["sprout-1"]
		u.VCPUs = 0
		o.Use["sprout-1"] = u
	}
	page = pageOf(t, d)
	for _, want := range []string{">CPU, % of its quota</text>", ">sprout-1 (of 1 CPU)</text>", ">generator (of 2 CPU)</text>", "or of one CPU if it has no limit"} {
		if !strings.Contains(page, want) {
			t.Errorf("with an instance without limit the page lacks %q", want)
		}
	}
	for _, o := range d.Outcomes {
		for instance, u := range maps.Clone(o.Use) {
			u.VCPUs = 0
			o.Use[instance] = u
		}
	}
	page = pageOf(t, d)
	for _, want := range []string{">CPU, % of one CPU</text>", "as a share of one CPU, because the instances have no limit"} {
		if !strings.Contains(page, want) {
			t.Errorf("without limits the page lacks %q", want)
		}
	}
}
