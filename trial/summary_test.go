package trial

import (
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/document"
	"vitrine/result"
	"vitrine/search/size"
	"vitrine/spec"
	"vitrine/testbed"
)

// TestMostSizingsOfDecimals checks the bound if the limit is a multiple of the flavor, but the
// quotient of the two decimals is not whole: 0.3/0.1 is below 3.
func TestMostSizingsOfDecimals(t *testing.T) {
	c := &Campaign{Config: Config{Deployment: &spec.Deployment{Mode: spec.Mode{Name: spec.Directed, Scaling: spec.ScaleOut}}}}
	c.space = size.Space{
		Components: []vitrine.Component{{Name: "front", Short: "fr"}},
		Flavors:    []vitrine.Flavor{{Name: "small", VCPUs: 0.1}},
		Limit:      vitrine.Resources{VCPUs: 0.3},
	}
	if got, err := c.mostSizings(); got != 3 || err != nil { // fr1s, fr2s, fr3s
		t.Errorf("at most %d sizings, %v; want 3", got, err)
	}
}

// TestPlanOfAdaptive checks that the plan knows the long windows of the search adaptive. With these
// settings it took a median of 14 minutes of load for a size at a precision of 0.1, and 31 at 0.05.
func TestPlanOfAdaptive(t *testing.T) {
	w := &spec.Workload{Range: spec.Range{100, 11500}, Duration: 10 * time.Second, Repeat: 1, Search: spec.Adaptive}
	for precision, least := range map[float64]time.Duration{0: 15 * time.Minute, 0.1: 10 * time.Minute} {
		w.Precision = precision
		trials, window := adaptiveTrials(w)
		if load := time.Duration(trials) * window; load < least || load > 31*time.Minute {
			t.Errorf("precision %g: %d trials of %s are %s of load, want %s or more", precision, trials, window, load, least)
		}
	}
}

// TestMedianBootTime checks that the boot time of two deployments is between the two.
func TestMedianBootTime(t *testing.T) {
	s := &site{boots: []time.Duration{9 * time.Second, 3 * time.Second}}
	if got := s.boot(); got != 6 {
		t.Errorf("got %v s, want 6 s", got)
	}
}

// TestReasonOfTheChosenSize checks the reason if only one of two substrates has a size that
// reaches the workload. The reason must be about that size, whichever was measured last.
func TestReasonOfTheChosenSize(t *testing.T) {
	d := &spec.Deployment{
		Components: []spec.Component{{Name: "front", Short: "fr", Scalable: true}},
		Flavors:    []spec.Flavor{{Name: "small", VCPUs: 1}},
		Mode:       spec.Mode{Name: spec.Model, Objective: spec.FewestVCPUs, Reach: 300, ScaleOn: vitrine.CPU},
	}
	d.Servers.Fabric, d.Servers.Pinning = document.OneOrMany[string]{"bridge"}, document.OneOrMany[document.Switch]{false}
	d.Servers.CFSPeriod, d.Servers.KeepAwake = document.OneOrMany[time.Duration]{spec.DefaultCFSPeriod}, document.OneOrMany[document.Switch]{false}
	for _, order := range [][]string{{"process", "docker"}, {"docker", "process"}} {
		d.Servers.Substrate = order
		cfg := Config{Deployment: d, Workload: &spec.Workload{}, CPUs: testbed.CPUs{Function: []int{0}}, Seed: 1}
		c := &Campaign{Config: cfg, choices: d.Servers.Choices()}
		var err error
		if c.search, err = c.sizeSearch(c.sizeSpace()); err != nil {
			t.Fatal(err)
		}
		for _, choice := range d.Servers.Choices() {
			capacity := vitrine.Capacity{Rate: 400, Low: 390, High: 410, Censored: vitrine.CensoredNone}
			if choice.Substrate == "docker" {
				capacity = vitrine.Capacity{Rate: 100, Low: 98, High: 102, Censored: vitrine.CensoredNone}
			}
			sizing := d.Space().Smallest()
			for _, again := range []bool{false, true} {
				c.found = append(c.found, finding{choice: choice, Profiled: size.Profiled{Measured: vitrine.Measured{
					Sizing: sizing, Resources: d.Resources(sizing), Capacities: []vitrine.Capacity{capacity}, Again: again,
				}}})
			}
		}
		finalists, why := c.finalists()
		if len(finalists) != 1 || c.found[finalists[0]].choice.Substrate != "process" || strings.Contains(why, "no sizing") {
			t.Errorf("%v: %v, %q", order, finalists, why)
		}
	}
}

// TestStoppedSizeIsNotOptimal checks that a size whose search was stopped is never called the best, even
// if its few trials show the highest capacity.
func TestStoppedSizeIsNotOptimal(t *testing.T) {
	measured := func(name string, rate float64, stopped string) finding {
		sizing, err := vitrine.ParseSizing(name)
		if err != nil {
			t.Fatal(err)
		}
		capacity := vitrine.Capacity{Rate: rate, Low: rate, High: rate, Censored: vitrine.CensoredNone}
		return finding{unfinished: stopped, Profiled: size.Profiled{Measured: vitrine.Measured{Sizing: sizing, Capacities: []vitrine.Capacity{capacity}}}}
	}
	const stopped = "the time limit --max-time is over"
	for want, found := range map[string][]finding{
		"fr1s": {measured("fr1s", 100, ""), measured("fr2s", 200, stopped)},
		"":     {measured("fr2s", 200, stopped)},
	} {
		c := &Campaign{
			Config:  Config{Deployment: &spec.Deployment{}, Workload: &spec.Workload{}},
			choices: []spec.Choice{{}}, search: size.NewCustom(nil), found: found,
		}
		for _, f := range found {
			c.summary.Sizings = append(c.summary.Sizings, result.Sizing{Name: f.Sizing.String(), Unfinished: f.unfinished})
		}
		c.conclude()
		got := ""
		if c.summary.Optimal != nil {
			got = c.summary.Optimal.Sizing
		}
		if got != want {
			t.Errorf("optimal is %q, want %q", got, want)
		}
		if why := c.summary.StoppedBecause; want == "" && !strings.Contains(why, "no size is optimal: the search for the capacity of fr2s did not end") {
			t.Errorf("the summary says %q", why)
		}
	}
}

// TestStoppedConfirmation checks the optimal size if its second measurement was stopped: its first one
// counts, also in the profile.
func TestStoppedConfirmation(t *testing.T) {
	s := result.Summary{
		Sizings: []result.Sizing{{Name: "fr1s"}, {Name: "fr1s", Again: true, Unfinished: "interrupted"}},
		Optimal: &result.Optimal{Sizing: "fr1s"},
	}
	if s.Best() != &s.Sizings[0] {
		t.Errorf("the best entry is %+v", s.Best())
	}
	measured := func(rate float64, stopped string) finding {
		capacity := vitrine.Capacity{Rate: rate, Low: rate, High: rate, Censored: vitrine.CensoredNone}
		return finding{unfinished: stopped, Profiled: size.Profiled{Measured: vitrine.Measured{
			Sizing: vitrine.Sizing{{Short: "fr", Count: 1, Initial: 's'}}, Capacities: []vitrine.Capacity{capacity},
		}}}
	}
	c := &Campaign{found: []finding{measured(100, ""), measured(50, "interrupted")}}
	profiled, _ := c.setting(spec.Choice{})
	if z := profiled.Sizes; len(z) != 1 || z[0].Rate != 100 || z[0].Unfinished != "" {
		t.Errorf("the profile has %+v", z)
	}
}
