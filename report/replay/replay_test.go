package replay

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/simulate"
)

// replayed returns the page of a burst under all policies.
func replayed(t *testing.T, seconds int) (string, []simulate.Result) {
	t.Helper()
	c := simulate.Case{Boot: 5 * time.Second, Load: simulate.Day(seconds, 2000), Type: decide.Type{Name: "a <type>", Min: 2, Max: 40,
		Objective: decide.Objective{P99: 100 * time.Millisecond, Success: 0.999}, Flavors: []decide.Flavor{{Name: "s", Capacity: 100, CPUs: 1}}}}
	Prepare(&c)
	all, err := simulate.Compare(c, []string{"fixed", "hpa", "knative"})
	if err != nil {
		t.Fatal(err)
	}
	html, err := Page("a <day>", c, all)
	if err != nil {
		t.Fatal(err)
	}
	return string(html), all
}

func TestPageHasAllPolicies(t *testing.T) {
	html, all := replayed(t, 1200)
	for _, r := range all {
		for _, want := range []string{">" + r.Scaler + "</th>", ">" + r.Scaler + ": "} {
			if len(r.Acts) > 0 && !strings.Contains(html, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	}
	for _, want := range []string{
		"a &lt;day&gt;", "a &lt;type&gt;: 1200 s, at most ", "success ratio of at least 0.999", "A start takes 5s.",
		"hpa: ", " pods; ", "<td>start</td>", "<td>drain</td>", "in panic, ", ">minutes</text>", "var(--c1)", "--card:",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<day>", "<type>", "+Inf"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

// TestThePageOpensOffline checks that the page loads nothing, and that its figures are XML
// with numbers.
func TestThePageOpensOffline(t *testing.T) {
	html, _ := replayed(t, 300)
	figures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1)
	if len(figures) != 3 {
		t.Fatalf("%d figures, want 3", len(figures))
	}
	for _, figure := range figures {
		if strings.Contains(figure, "NaN") || strings.Contains(figure, "Inf") {
			t.Errorf("a figure has NaN or an infinity: %s", figure)
		}
		for d := xml.NewDecoder(strings.NewReader(figure)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	html = strings.ReplaceAll(html, "http://www.w3.org/2000/svg", "") // a namespace, not an address
	if found := regexp.MustCompile(`(?i)(https?:|//[a-z]+\.|src=|@import|url\()`).FindString(html); found != "" {
		t.Errorf("the page refers to something outside: %q", found)
	}
}

func TestLongLoadKeepsThePageSmall(t *testing.T) {
	html, _ := replayed(t, 86400)
	if n := len(html); n > 1<<20 {
		t.Errorf("the page of a day has %d bytes", n)
	}
	if !strings.Contains(html, ">hours</text>") {
		t.Error("the axis of a day is not in hours")
	}
}

func TestMarksCoverMissedObjective(t *testing.T) {
	got := marks([]simulate.Point{{Second: 0}, {Second: 10, Over: 3}, {Second: 20, Over: 5}, {Second: 30, Over: 5}, {Second: 40, Over: 6}}, 10)
	if len(got) != 2 || got[0].From != 0 || got[0].To != 2 || got[1].From != 3 || got[1].To != 4 {
		t.Errorf("%+v, want 0 to 2 and 3 to 4", got)
	}
}
