package measured

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"vitrine/flex"
	"vitrine/redline"
)

func TestPageShowsEachMeasurement(t *testing.T) {
	at := time.Unix(1e9, 0)
	page, err := Page("<flex>.yaml", map[string][]flex.Measured{
		"registration": {
			{At: at, Size: "s", Instance: "registration-1", Verdict: redline.Within, Reason: "<first>", Rate: 30, Low: 28, High: 33, Before: 20, After: 28, Cost: flex.Cost{Each: 0.01}},
			{At: at.Add(time.Hour), Size: "s", Instance: "registration-2", Verdict: redline.Aborted, Why: "a fault", Before: 28, After: 28},
			{At: at.Add(2 * time.Hour), Size: "m", Instance: "registration-3", Verdict: redline.AtLeast, Why: "no more traffic", Rate: 12340, Low: 12340, Before: 9800, After: 12340},
		},
		"session": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, want := range []string{
		"registration-1", "&lt;first&gt;", "&lt;flex&gt;.yaml", "instead of 20/s", "a fault", "10 ms", "Nothing was measured yet",
		"in use for m", "in use for s", "nothing found", ">minutes since 2001-09-09 01:46 UTC</text>", "<title>30/s, between 28 and 33",
		"at least 12340/s: no more traffic; the capacity is 12340/s instead of 9800/s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	_, figure, _ := strings.Cut(text, "<svg")
	figure, _, _ = strings.Cut(figure, "</svg>")
	if arrows := regexp.MustCompile(`d="M[^AL"]*L[^AL"]*L[^AL"]*Z" style="fill:var\(--ink\)"`).FindAllString(figure, -1); len(arrows) != 1 {
		t.Errorf("%d arrows, want one, for the capacity without an upper bound:\n%s", len(arrows), figure)
	}
	if figure == "" || strings.Contains(figure, "NaN") || strings.Contains(figure, "Inf") || strings.Contains(text, "<first>") {
		t.Errorf("bad figure or text:\n%s", text)
	}
}

func TestPageWithoutTypes(t *testing.T) {
	page, err := Page("flex.yaml", nil)
	if err != nil || !strings.Contains(string(page), "No type of the file asks for redline") {
		t.Errorf("got %s, %v", page, err)
	}
}
