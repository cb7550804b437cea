package report_test

import (
	"fmt"
	"html"
	"math"
	"regexp"
	"strings"
	"testing"

	"vitrine"
	"vitrine/result"
)

var predictionRow = regexp.MustCompile(`<tr[^>]*><td class="n">(\d+)</td><th scope="row" class="mono">([^ <]*)[^/]*(?:</span>)?</th><td class="n">[^<]*</td>` +
	`<td class="n" data-sort="[^"]*">([^<]*) <small>[^<]*</small></td><td class="n strong" data-sort="[^"]*">([^<]*) <small>[^<]*</small></td><td class="n" data-sort="[^"]*">([^<]*)</td><td>([^<]*)</td></tr>`)

func TestPredictionsAreComparedWithMeasurements(t *testing.T) {
	believed := func(rate, low, high float64) *vitrine.Capacity {
		return &vitrine.Capacity{Threshold: 0.9, Rate: rate, Low: low, High: high, Censored: vitrine.CensoredNone}
	}
	d := listed(
		row("bn1s-sp1s-hs1s", 0.3, 100, vitrine.CensoredNone),
		row("bn1m-sp1s-hs1s", 0.4, 110, vitrine.CensoredNone),
		row("bn1s-sp1m-hs1s", 0.4, 160, vitrine.CensoredNone),
		row("bn1s-sp1m-hs1m", 0.5, 200, vitrine.CensoredNone),
		row("bn1m-sp1m-hs1m", 0.6, 300, vitrine.CensoredAbove),
	)
	d.Summary.Path = []result.Step{
		{Sizing: "bn1s-sp1s-hs1s", Why: "the smallest"},
		{Sizing: "bn1m-sp1s-hs1s", Why: "next", Predicted: believed(121, 105, 140)},
		{Sizing: "bn1s-sp1m-hs1s", Why: "next", Predicted: believed(120, 100, 150)},
		{Sizing: "bn1s-sp1m-hs1m", Why: "next", Predicted: believed(190, 170, 210)},
		{Sizing: "bn1m-sp1m-hs1m", Why: "next", Predicted: believed(400, 300, 500)},
	}
	section := part(t, pageOf(t, d), "prediction")
	var got []string
	for _, m := range predictionRow.FindAllStringSubmatch(section, -1) {
		got = append(got, html.UnescapeString(strings.Join(m[1:], " ")))
	}
	want := []string{
		"1 bn1m-sp1s-hs1s 121 110 +10.0% yes",
		"2 bn1s-sp1m-hs1s 120 160 -25.0% no",
		"3 bn1s-sp1m-hs1m 190 200 -5.0% yes",
		"4 bn1m-sp1m-hs1m 400 ≥ 300 – –", // the error is unknown, because the capacity is
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the table has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := "Of 3 predictions the median error is 10.0% and the largest 25.0%; the capacity of 2 of 3 sizes was in its predicted interval."; !strings.Contains(section, "<p>"+want) {
		t.Errorf("the page lacks %q", want)
	}
	if !strings.Contains(section, "measured outside it") {
		t.Error("the legend has no entry for a size outside its interval")
	}
}

// TestStoppedSearchIsNoMeasuredPrediction checks that a size whose search was stopped says nothing about
// the accuracy of predictions.
func TestStoppedSearchIsNoMeasuredPrediction(t *testing.T) {
	d := listed(
		row("bn1s-sp1s-hs1s", 0.3, 100, vitrine.CensoredNone),
		row("bn1m-sp1s-hs1s", 0.4, 110, vitrine.CensoredNone),
		row("bn1s-sp1m-hs1s", 0.4, 50, vitrine.CensoredNone),
	)
	d.Summary.Sizings[2].Unfinished = "the time limit --max-time is over"
	believed := &vitrine.Capacity{Threshold: 0.9, Rate: 120, Low: 105, High: 140, Censored: vitrine.CensoredNone}
	d.Summary.Path = []result.Step{
		{Sizing: "bn1s-sp1s-hs1s", Why: "the smallest"},
		{Sizing: "bn1m-sp1s-hs1s", Why: "next", Predicted: believed},
		{Sizing: "bn1s-sp1m-hs1s", Why: "next", Predicted: believed},
	}
	section := part(t, pageOf(t, d), "prediction")
	if rows := predictionRow.FindAllString(section, -1); len(rows) != 1 || !strings.Contains(section, "Of 1 predictions the median error is 9.1% and the largest 9.1%") {
		t.Errorf("%d rows, want 1, and an error of 9.1%%:\n%s", len(rows), section)
	}
}

func TestNoPredictionSectionWithoutPredictions(t *testing.T) {
	page := pageOf(t, simulate(t, directed(), "run"))
	if strings.Contains(page, `id="prediction"`) || strings.Contains(page, "#prediction") {
		t.Error("the page has a section on predictions without any prediction")
	}
}

func TestSummaryRefusesPredictionsWithNaN(t *testing.T) {
	r, err := result.Create(t.TempDir()+"/run", directed().manifest())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	err = r.SaveSummary(result.Summary{Path: []result.Step{{Sizing: "bn1s", Predicted: &vitrine.Capacity{High: math.Inf(1)}}}})
	if err == nil || !strings.Contains(err.Error(), "bn1s") {
		t.Errorf("SaveSummary returns %v", err)
	}
}
