package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vitrine"
	"vitrine/result"
)

// namedIn returns the names in a figure.
func namedIn(svg string) map[string]bool {
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`>(bn[^<]*)</text>`).FindAllStringSubmatch(svg, -1) {
		named[m[1]] = true
	}
	return named
}

func listed(rows ...result.Sizing) *result.Data {
	d := &result.Data{Dir: "run", Manifest: directed().manifest(), Summary: &result.Summary{Unit: "calls/s", Thresholds: []float64{0.9}, Sizings: rows, StoppedBecause: "all are measured"}}
	for i := range rows {
		rows[i].Substrate, rows[i].Threshold = "process", 0.9
		rows[i].Capacities = []vitrine.Capacity{rows[i].Capacity}
	}
	d.Summary.Optimal = &result.Optimal{Sizing: rows[len(rows)-1].Name, Why: "it carries the most"}
	return d
}

func row(name string, vcpus, capacity float64, censored string) result.Sizing {
	return result.Sizing{Name: name, VCPUs: vcpus, Capacity: vitrine.Capacity{Rate: capacity, Low: capacity * 0.95, High: capacity * 1.05, Censored: censored}}
}

// TestFrontierNamesTheBest checks that the best sizes are those that no other
// size with as many vCPUs or fewer matches.
func TestFrontierNamesTheBest(t *testing.T) {
	t.Parallel()
	section := part(t, pageOf(t, listed(
		row("bn1s-sp1s-hs1s", 0.3, 100, vitrine.CensoredNone),
		row("bn2s-sp1s-hs1s", 0.4, 90, vitrine.CensoredNone),   // more vCPUs, less capacity
		row("bn1m-sp1s-hs1s", 0.4, 110, vitrine.CensoredNone),  // the next size has as many vCPUs and is better
		row("bn1s-sp1m-hs1s", 0.4, 140, vitrine.CensoredNone),  //
		row("bn1s-sp1s-hs1m", 0.4, 600, vitrine.CensoredBelow), // failed already at 600: no capacity
		row("bn1m-sp1m-hs1s", 0.5, 140, vitrine.CensoredNone),  // more vCPUs, no more capacity
		row("bn1m-sp1m-hs1m", 0.6, 200, vitrine.CensoredAbove),
	)), "frontier")
	want := map[string]bool{"bn1s-sp1s-hs1s": true, "bn1s-sp1m-hs1s": true, "bn1m-sp1m-hs1m": true}
	if named := namedIn(section); fmt.Sprint(named) != fmt.Sprint(want) {
		t.Errorf("the figure names %v, want %v", named, want)
	}
	if n := strings.Count(section, "fill:var(--c0)"); n != 7+1+1 { // sizes, the legend, the arrow of an open interval
		t.Errorf("%d marks, want 9", n)
	}
	if !strings.Contains(section, ">optimal</text>") || strings.Contains(section, ">predicted</text>") {
		t.Error("the legend does not match the marks")
	}
}

func TestOneSizeHasNoFrontier(t *testing.T) {
	page := pageOf(t, listed(row("bn1s-sp1s-hs1s", 0.3, 100, vitrine.CensoredNone)))
	if strings.Contains(page, `id="frontier"`) {
		t.Error("a single size has a figure")
	}
}

// TestFrontierMarksPredictedSizes checks that predicted sizes look different from measured sizes,
// and leave the table once they are measured.
func TestFrontierMarksPredictedSizes(t *testing.T) {
	t.Parallel()
	m := modelled()
	d := simulate(t, m, "run")
	sizes := d.Profile.Settings[0].Sizes
	for i := range sizes { // a profile from before the last size was measured
		if sizes[i].Sizing == "bn1s-sp1m-hs1m" {
			sizes[i].Source = vitrine.SourcePredicted
		}
	}
	section := part(t, pageOf(t, d), "frontier") // with the figure
	named := namedIn(section)
	for _, name := range m.untried {
		if strings.Count(section, `class="mono">`+name+"<") != 1 || named[name] {
			t.Errorf("%s is not shown as predicted", name)
		}
		if !strings.Contains(section, name+", predicted and not measured: ") {
			t.Errorf("%s has no mark", name)
		}
	}
	for _, z := range d.Summary.Sizings {
		if strings.Contains(section, `class="mono">`+z.Name+"<") || !strings.Contains(section, z.Name+", measured: ") {
			t.Errorf("%s was measured and is shown as predicted", z.Name)
		}
	}
	if !strings.Contains(section, ">predicted</text>") || !strings.Contains(section, "Hollow marks were not measured") {
		t.Error("the page does not explain hollow marks")
	}
}

// TestFrontierOfVeryManySizes checks that of very many predicted sizes, the best
// of each number of vCPUs stay.
func TestFrontierOfVeryManySizes(t *testing.T) {
	t.Parallel()
	d := simulate(t, modelled(), "run")
	setting := &d.Profile.Settings[0]
	setting.Sizes = setting.Sizes[:3]
	for cpus := range 20 {
		for i := range 100 {
			r := float64(10*(cpus+1) + i)
			setting.Sizes = append(setting.Sizes, vitrine.SizeProfile{Sizing: fmt.Sprintf("bn%ds-sp%ds-hs1l", cpus+1, i+1), VCPUs: float64(cpus + 1),
				Source: vitrine.SourcePredicted, Rate: r, Low: r / 2, High: r * 2, Censored: vitrine.CensoredNone})
		}
	}
	section := part(t, pageOf(t, d), "frontier")
	for _, want := range []string{"Of 2000 such sizes the 300 that carry the most for their vCPUs are shown.", "There are too many to show their intervals.", "300 sizes that were predicted and not measured, of 2000"} {
		if !strings.Contains(section, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for cpus := range 20 {
		for i := range 100 {
			if shown := strings.Contains(section, fmt.Sprintf(`class="mono">bn%ds-sp%ds-hs1l<`, cpus+1, i+1)); shown != (i >= 85) {
				t.Fatalf("the size of %d vCPUs with the %dth capacity: shown is %v", cpus+1, 100-i, shown)
			}
		}
	}
}

func TestUnreadableProfileIsLeftOut(t *testing.T) {
	d := simulate(t, modelled(), "run")
	if err := os.WriteFile(filepath.Join(d.Dir, "profile.json"), []byte(`{"profile": 99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, load(t, d.Dir))
	if !strings.Contains(page, "profile.json was left out: a capacity profile of version 99") || strings.Contains(part(t, page, "frontier"), "predicted") {
		t.Error("the page does not say why it shows no prediction")
	}
}
