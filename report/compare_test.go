package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"vitrine"
	"vitrine/report"
	"vitrine/result"
)

// TestPredictionsAtAnotherThresholdAreLeftOut compares a run with one that predicts capacities at
// another first threshold.
func TestPredictionsAtAnotherThresholdAreLeftOut(t *testing.T) {
	t.Parallel()
	runs := []*result.Data{listed(row("bn1s-sp1s-hs1s", 0.3, 85, vitrine.CensoredNone)), simulate(t, modelled(), "other")}
	runs[1].Summary.Thresholds = []float64{0.8, 0.9}
	for i := range runs[1].Summary.Sizings {
		z := &runs[1].Summary.Sizings[i]
		slices.Reverse(z.Capacities)
		z.Capacity = z.Capacities[0]
	}
	page := pageOf(t, runs...)
	if strings.Contains(page, `id="prediction"`) || strings.Contains(part(t, page, "frontier"), "predicted") {
		t.Error("the page shows predictions at success ratio 0.8 among capacities at 0.9")
	}
	for _, want := range []string{
		"predicted capacities are left out: they are at success ratio 0.8, and this page compares at 0.9",
		"(178 to 213, at success ratio 0.8)", "predicted 158, 141 to 176, at success ratio 0.8",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestOneDeploymentIsSaid checks a ramp on one deployment of each size. Its intervals claim no confidence.
func TestOneDeploymentIsSaid(t *testing.T) {
	t.Parallel()
	m := directed()
	m.repeats, m.search = 1, result.Search{Name: "ramp", Min: 40, Max: 260, Increase: 20, Duration: 3, Repeat: 1}
	d := simulate(t, m, "run")
	var text, compared bytes.Buffer
	if err := errors.Join(report.Text(&text, d), report.Compare(&compared, d)); err != nil {
		t.Fatal(err)
	}
	for name, shown := range map[string]string{"text": text.String(), "comparison": compared.String(), "page": pageOf(t, d)} {
		if !strings.Contains(shown, "one deployment of each size (repeat: 1)") || strings.Contains(shown, "95% interval") {
			t.Errorf("the %s claims confidence, or does not say why there is none", name)
		}
	}
}

// TestTwoKindsOfDeploymentsAreSaid checks a size that is not optimal and has deployments of two kinds:
// the page says so in its text, and not only under the pointer.
func TestTwoKindsOfDeploymentsAreSaid(t *testing.T) {
	t.Parallel()
	two := row("bn1s-sp1s-hs1s", 0.3, 100, vitrine.CensoredNone)
	two.Deployments, two.States = 6, &vitrine.TwoStates{Lower: 100, Upper: 130, Share: 0.5, ShareLow: 0.2, ShareHigh: 0.8}
	changed := row("bn1m-sp1s-hs1s", 0.4, 120, vitrine.CensoredNone)
	changed.Deployments, changed.Fresh = 6, 140
	d := listed(two, changed, row("bn1s-sp1m-hs1s", 0.4, 200, vitrine.CensoredNone))
	var text bytes.Buffer
	if err := report.Compare(&text, d); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, d)
	for _, want := range []string{
		"bn1s-sp1s-hs1s: deployments at success ratio 0.9: there are two kinds, with 100 and 130 calls/s; 50% (20% to 80%) are of the lower kind, whose capacity counts",
		"bn1m-sp1s-hs1s: deployments at success ratio 0.9: before an overload they carry 140 calls/s, and the lower capacity counts",
	} {
		if !strings.Contains(page, "<li>"+want+"</li>") || !strings.Contains(text.String(), want+"\n") {
			t.Errorf("the page or the comparison lacks %q", want)
		}
	}
}

// TestCapacityThatIsNoValueIsNotSorted checks that "< 40" does not sort above a measured 35, and that an
// estimate without an interval does not sort at all.
func TestCapacityThatIsNoValueIsNotSorted(t *testing.T) {
	t.Parallel()
	below := row("bn1s-sp1s-hs1s", 0.3, 40, vitrine.CensoredBelow)
	below.Low = 0
	stopped := row("bn1m-sp1s-hs1s", 0.4, 50, vitrine.CensoredNone)
	stopped.Unfinished = "the time limit --max-time is over"
	section := part(t, pageOf(t, listed(below, stopped, row("bn1s-sp1m-hs1s", 0.4, 35, vitrine.CensoredNone))), "capacity")
	for _, want := range []string{`data-sort="" title="even the lowest rate tried, 40 calls/s, failed">&lt; 40`, `data-sort="">50 `, `data-sort="35">35 `} {
		if !strings.Contains(section, want) {
			t.Errorf("the table of capacities lacks %q", want)
		}
	}
}

// TestDifferencesOfRunsAreSaid checks that a comparison names what the second run does not share with the
// first. The speeds of two hosts have no ratio, because each is a share of the host's own best.
func TestDifferencesOfRunsAreSaid(t *testing.T) {
	for _, c := range []struct {
		want      string
		change    func(*result.Manifest)
		otherHost bool
	}{
		{"", func(*result.Manifest) {}, false},
		{"Intel Xeon with 2 CPUs instead of AMD EPYC with 2 CPUs", func(m *result.Manifest) { m.Host.CPUModel = "Intel Xeon" }, true},
		{"other files: workload, program bono", func(m *result.Manifest) {
			m.Specs[1].SHA256 = "another"
			m.Specs = append(m.Specs, result.NewSpec("program bono", "bono", nil))
		}, false},
		{"the function epc instead of the function ims; vitrine 2.0 instead of vitrine 1.0; --slowdown 0.1 instead of trials not checked (--shared-cpus)", func(m *result.Manifest) {
			m.VNF, m.Tool, m.Slowdown = "epc", "vitrine 2.0", 0.1
		}, false},
	} {
		runs := twoRuns(t)
		c.change(&runs[1].Manifest)
		for _, o := range runs[1].Outcomes {
			o.Host.During *= 0.8
		}
		var text, js bytes.Buffer
		if err := errors.Join(report.Compare(&text, runs...), report.CompareJSON(&js, runs...)); err != nil {
			t.Fatal(err)
		}
		var got report.Comparison
		if err := json.Unmarshal(js.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var warnings []string
		if c.want != "" {
			warnings = []string{"tuesday differs from monday: " + c.want}
		}
		if !slices.Equal(got.Warnings, warnings) || c.want != "" && !strings.HasPrefix(text.String(), warnings[0]+"\n") {
			t.Errorf("got warnings %q, want %q, also in\n%s", got.Warnings, warnings, &text)
		}
		if slower := strings.Contains(text.String(), "; the host ran at 0.80 times the speed"); slower == c.otherHost || (got.Pairs[0].HostRatio == nil) != c.otherHost {
			t.Errorf("%q: got pairs %+v in\n%s", c.want, got.Pairs, &text)
		}
		if c.otherHost && !strings.Contains(pageOf(t, runs...), "<li>"+warnings[0]+"</li>") {
			t.Errorf("the page lacks %q", warnings[0])
		}
	}
}
