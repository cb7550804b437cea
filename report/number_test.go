package report

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"vitrine"
	"vitrine/result"
	"vitrine/spec"
)

func TestIntervalsThatOverlapAreTied(t *testing.T) {
	enclosed := func(low, rate, high float64) vitrine.Capacity {
		return vitrine.Capacity{Threshold: 0.9, Rate: rate, Low: low, High: high, Censored: vitrine.CensoredNone}
	}
	above := vitrine.Capacity{Rate: 300, Low: 280, High: 300, Censored: vitrine.CensoredAbove}
	below := vitrine.Capacity{Rate: 50, Low: 0, High: 50, Censored: vitrine.CensoredBelow}
	nothing := vitrine.Capacity{Censored: vitrine.CensoredGenerator}
	for _, c := range []struct {
		a, b vitrine.Capacity
		want string
	}{
		{enclosed(100, 110, 120), enclosed(119, 130, 140), "tied"},
		{enclosed(100, 110, 120), enclosed(121, 130, 140), "lower"},
		{enclosed(121, 130, 140), enclosed(100, 110, 120), "higher"},
		{enclosed(200, 210, 270), above, "lower"},
		{enclosed(200, 290, 500), above, "tied"}, // above may be anything above 280
		{enclosed(400, 450, 500), above, "tied"},
		{above, above, "tied"},
		{below, enclosed(60, 70, 80), "lower"},
		{below, enclosed(20, 30, 80), "tied"},
		{nothing, enclosed(60, 70, 80), "unknown"},
		{enclosed(60, 70, 80), nothing, "unknown"},
	} {
		if got := relation(c.a, c.b); got != c.want {
			t.Errorf("%+v to %+v is %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

func TestNumbersReadWell(t *testing.T) {
	for want, got := range map[string]string{
		"1235": number(1234.56), "350": number(350), "87.5": number(87.54), "3": number(3), "0.25": number(0.25),
		"0.012": number(0.0123), "0.0045": number(0.0045), "-0.050": number(-0.05), "0.000000001": number(1e-9),
		"0.3": tidy(0.1 + 0.2), "0": tidy(math.Copysign(0, -1)), "96%": percent(0.9612),
		"768 MiB": byteCount(768 << 20), "1.5 GiB": byteCount(3 << 29), missing: byteCount(0), "100 B": byteCount(100),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRatiosStayOnTheirSideOfTheThreshold: a trial that failed does not show the ratio that passes.
func TestRatiosStayOnTheirSideOfTheThreshold(t *testing.T) {
	for _, c := range []struct {
		ratio, threshold float64
		want             string
	}{
		{0.75, 0.9, "0.750"}, {0.99999, 0.9, "1.000"}, {math.Nextafter(0.9, 0), 0.9, "0.900"},
		{0.9986, 0.999, "0.9986"}, {0.9991, 0.999, "0.999"}, {2999.0 / 3000, 1, "0.9997"}, {1, 1, "1.000"},
	} {
		if got := RatioText(c.ratio, []float64{c.threshold, 0.5}); got != c.want {
			t.Errorf("%g at threshold %g is %s, want %s", c.ratio, c.threshold, got, c.want)
		}
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	for _, r := range [][2]float64{{0, 1}, {0, 3}, {0, 226.6}, {0, 1133}, {0, 0.004}, {-1, 7}, {5, 5}} {
		list := ticks{}.Ticks(r[0], r[1])
		if len(list) == 0 || len(list) > 8 {
			t.Errorf("%v has ticks %v", r, list)
		}
		for _, tick := range list {
			if tick.Value < r[0]-1e-9 || tick.Value > r[1]+1e-9 || len(tick.Label) > 6 {
				t.Errorf("%v has tick %v", r, tick)
			}
		}
	}
}

func TestThinningKeepsTheMean(t *testing.T) {
	var points plotter.XYs
	for i := range 1000 {
		points = append(points, plotter.XY{X: float64(i), Y: float64(i % 10)})
	}
	thinned := thin(points)
	if len(thinned) > 120 || len(thinned) < 60 {
		t.Fatalf("%d points", len(thinned))
	}
	sum := 0.0
	for _, p := range thinned {
		sum += p.Y / float64(len(thinned))
	}
	if math.Abs(sum-4.5) > 0.2 {
		t.Errorf("the mean is %v, not 4.5", sum)
	}
}

// TestNaNLiesBeyondTheAxis checks that values that are not numbers count, and hide no other value.
func TestNaNLiesBeyondTheAxis(t *testing.T) {
	points := steps([]float64{2, math.NaN(), math.Inf(1), 1}, 0, 3)
	if last := points[len(points)-1]; len(points) != 6 || last != (plotter.XY{X: 3, Y: 50}) {
		t.Errorf("the staircase is %v", points)
	}
}

// TestWithinThePredictedInterval checks that a capacity that was not enclosed is outside only if all
// of its range is.
func TestWithinThePredictedInterval(t *testing.T) {
	predicted := vitrine.Capacity{Rate: 500, Low: 450, High: 550, Censored: vitrine.CensoredNone}
	for name, x := range map[string]struct {
		measured vitrine.Capacity
		want     bool
	}{
		"inside":            {vitrine.Capacity{Rate: 460, Low: 440, High: 480, Censored: vitrine.CensoredNone}, true},
		"below":             {vitrine.Capacity{Rate: 440, Low: 420, High: 460, Censored: vitrine.CensoredNone}, false},
		"at least a lower":  {vitrine.Capacity{Rate: 400, Low: 390, High: 400, Censored: vitrine.CensoredAbove}, true},
		"at least a higher": {vitrine.Capacity{Rate: 600, Low: 590, High: 600, Censored: vitrine.CensoredAbove}, false},
		"less than a lower": {vitrine.Capacity{Rate: 400, High: 400, Censored: vitrine.CensoredBelow}, false},
	} {
		if got := (prediction{predicted: predicted, measured: x.measured}).within(); got != x.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestCurvesShareFigures(t *testing.T) {
	curvesOf := func(sizings string) []curve {
		var curves []curve
		for _, name := range sizings {
			curves = append(curves, curve{subject: &subject{sizing: string(name)}})
		}
		return curves
	}
	for sizings, want := range map[string][]int{
		"": nil, "a": {1}, "abcdefgh": {8}, "abcdefghi": {5, 4}, "abcdefghij": {5, 5},
		"aabbccddee": {6, 4}, "aaaaaaaaaa": {8, 2}, "abcdefghijklmnopq": {6, 6, 5},
	} {
		var got []int
		for _, part := range split(curvesOf(sizings)) {
			got = append(got, len(part))
		}
		if len(got) != len(want) {
			t.Errorf("%q is split into %v, want %v", sizings, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%q is split into %v, want %v", sizings, got, want)
			}
		}
	}
}

func TestRunNamesAreUnique(t *testing.T) {
	names := runNames([]*result.Data{{Dir: "/a/x/run"}, {Dir: "/a/y/run/"}, {Dir: "other"}})
	if names[0] != "x/run" || names[1] != "y/run" || names[2] != "other" {
		t.Errorf("%q", names)
	}
	if names := runNames([]*result.Data{{Dir: "a"}, {Dir: "a"}}); names[0] == names[1] {
		t.Errorf("%q", names)
	}
}

func TestTonesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, tone := range tones() {
		if other, ok := seen[tone.light]; ok {
			t.Errorf("%s and %s have the same colour, so the page cannot distinguish them", tone.name, other)
		}
		seen[tone.light] = tone.name
		tone.color() // panics if the colour is malformed
	}
}

// TestIntervalsShowTheirConfidence checks that intervals show the confidence of the
// search, or none when the search claims none.
func TestIntervalsShowTheirConfidence(t *testing.T) {
	of := func(searches ...*result.Search) *set {
		var z []result.Sizing
		for _, s := range searches {
			z = append(z, result.Sizing{Search: s})
		}
		return &set{runs: []*run{{Data: &result.Data{Summary: &result.Summary{Sizings: z}}}}}
	}
	ramp := func(repeat int) *result.Search { return &result.Search{Name: spec.Ramp, Repeat: repeat} }
	adaptive, sixty, mlr := &result.Search{Name: spec.Adaptive}, &result.Search{Name: spec.Adaptive, Confidence: 0.6}, &result.Search{Name: spec.MLR}
	for name, test := range map[string]struct {
		set  *set
		want string
	}{
		"nothing":   {of(), "95% "},
		"not given": {of(nil, adaptive), "95% "},
		"given":     {of(sixty, sixty), "60% "},
		"both":      {of(adaptive, sixty), ""},
		"mlr":       {of(mlr), ""},
		"one ramp":  {of(ramp(1)), ""},
		"ramps":     {of(ramp(3)), "95% "},
	} {
		if got := test.set.sure(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestDeploymentsText(t *testing.T) {
	c := vitrine.Capacity{Rate: 100, Censored: vitrine.CensoredNone, Deployments: 6, SD: 4, Single: 93}
	plain := "6 deployments, standard deviation 4 calls/s; a new deployment carries 93 calls/s with 90% probability"
	for name, x := range map[string]struct {
		capacity vitrine.Capacity
		want     string
	}{
		"a search that does not distinguish deployments": {vitrine.Capacity{Rate: 100, Censored: vitrine.CensoredNone}, ""},
		"one kind":         {c, plain},
		"an older summary": {with(c, func(c *vitrine.Capacity) { c.Single = 0 }), "6 deployments, standard deviation 4 calls/s"},
		"censored":         {vitrine.Capacity{Rate: 100, Censored: vitrine.CensoredAbove, Deployments: 5}, ""},
		"two kinds": {with(c, func(c *vitrine.Capacity) {
			c.States = &vitrine.TwoStates{Lower: 100, Upper: 130, Share: 0.5, ShareLow: 0.2, ShareHigh: 0.8}
		}), plain + "; there are two kinds, with 100 and 130 calls/s; 50% (20% to 80%) are of the lower kind, whose capacity counts"},
		"hysteresis": {with(c, func(c *vitrine.Capacity) { c.Fresh = 140 }),
			plain + "; before an overload they carry 140 calls/s, and the lower capacity counts"},
	} {
		if got := deploymentsText(x.capacity, "calls/s"); got != x.want {
			t.Errorf("%s: got %q, want %q", name, got, x.want)
		}
	}
}

func with(c vitrine.Capacity, change func(*vitrine.Capacity)) vitrine.Capacity {
	change(&c)
	return c
}

// TestResourceOfSeveralRuns checks that a figure of runs that scale on different resources names
// none of them.
func TestResourceOfSeveralRuns(t *testing.T) {
	on := func(resource string) *subject {
		return &subject{run: &run{Data: &result.Data{Summary: &result.Summary{ScaleOn: resource}}}}
	}
	for _, c := range []struct {
		rows []*subject
		want string
	}{
		{[]*subject{on(""), on(vitrine.CPU)}, "CPU"},
		{[]*subject{on(vitrine.Memory), on(vitrine.Memory)}, "Memory"},
		{[]*subject{on(vitrine.Network)}, "Share of the traffic"},
		{[]*subject{on(vitrine.CPU), on(vitrine.Memory)}, "The resource of each run's scale_on"},
	} {
		if got := resourceNames(c.rows); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if axis, caption := useTexts([]*subject{on(vitrine.Network)}); axis != "% of the traffic of all components" || strings.Contains(caption, "may use") {
		t.Errorf("the network, which has no limit, has %q and %q", axis, caption)
	}
	if axis, caption := useTexts([]*subject{on(vitrine.CPU)}); axis != "% of what it may use" || !strings.Contains(caption, "may use") {
		t.Errorf("CPU has %q and %q", axis, caption)
	}
}
