package size_test

import (
	"strings"
	"testing"

	"vitrine"
	"vitrine/search/size"
)

func TestOptimal(t *testing.T) {
	at := func(name string, vcpus, rate, low, high float64) vitrine.Measured {
		return measured(t, name, vcpus, vitrine.Capacity{Threshold: 0.9, Rate: rate, Low: low, High: high}, nil)
	}
	below := measured(t, "bn1s", 1, vitrine.Capacity{Rate: 1000, High: 1000, Censored: vitrine.CensoredBelow}, nil)
	above := measured(t, "bn1m", 2, vitrine.Capacity{Rate: 1100, Low: 1100, High: 1100, Censored: vitrine.CensoredAbove}, nil)
	for name, test := range map[string]struct {
		measured  []vitrine.Measured
		objective size.Objective
		want, why string
	}{
		"highest": {[]vitrine.Measured{at("bn1s", 1, 350, 300, 400), at("bn1l", 4, 650, 600, 700), at("bn1m", 2, 550, 500, 590)},
			size.Objective{Unit: "calls/s"}, "bn1l", "bn1l carries 650 calls/s [600, 700] with 4 vCPUs"},
		"tie": {[]vitrine.Measured{at("bn1s", 1, 350, 300, 400), at("bn1l", 4, 650, 600, 700), at("bn1m", 2, 640, 600, 700)},
			size.Objective{}, "bn1m", "does not differ significantly"},
		"a wide interval of its own is no tie": {[]vitrine.Measured{at("bn1s", 1, 350, 200, 700), at("bn1l", 4, 650, 600, 700)},
			size.Objective{}, "bn1l", ""},
		"nor is a wide one of the best's": {[]vitrine.Measured{at("bn1s", 1, 350, 300, 400), at("bn1l", 4, 650, 200, 900)},
			size.Objective{}, "bn1l", ""},
		"equal vCPUs": {[]vitrine.Measured{at("bn2s", 2, 640, 600, 700), at("bn1m", 2, 650, 600, 700)}, size.Objective{}, "bn1m", ""},
		"limit": {[]vitrine.Measured{at("bn1s", 1, 350, 300, 400), at("bn1l", 4, 650, 600, 700)},
			size.Objective{Limit: vitrine.Resources{VCPUs: 3}}, "bn1s", ""},
		"reach": {[]vitrine.Measured{at("bn1l", 4, 650, 600, 700), at("bn1m", 2, 550, 500, 590), at("bn1s", 1, 510, 450, 600)},
			size.Objective{Reach: 500}, "bn1m", "fewest vCPUs that reach 500"},
		"price": {[]vitrine.Measured{at("bn1m", 2, 550, 500, 590), at("bn1l", 4, 650, 600, 700)},
			size.Objective{Reach: 500, Price: func(s vitrine.Sizing) float64 { return map[string]float64{"bn1m": 7, "bn1l": 5}[s.String()] }},
			"bn1l", "the lowest price that reaches 500, 5"},
		"out of reach": {[]vitrine.Measured{at("bn1l", 4, 650, 600, 700)}, size.Objective{Reach: 800}, "", "the closest: bn1l"},
		"below":        {[]vitrine.Measured{below, at("bn1l", 4, 650, 600, 700)}, size.Objective{}, "bn1l", ""},
		"only below":   {[]vitrine.Measured{below}, size.Objective{}, "", "even the lowest rate"},
		"above":        {[]vitrine.Measured{above, at("bn1l", 4, 650, 600, 700)}, size.Objective{}, "bn1m", "at least 1100"},
		"nothing":      {nil, size.Objective{}, "", "no sizing"},
	} {
		got, why := size.Optimal(test.measured, test.objective)
		if got.String() != test.want || why == "" || !strings.Contains(why, test.why) {
			t.Errorf("%s: got %q, %q; want %q, %q", name, got, why, test.want, test.why)
		}
	}
}

// TestBestTellsOptionsApart uses one sizing, measured with pinning off and on.
func TestBestTellsOptionsApart(t *testing.T) {
	off := measured(t, "bn1s", 1, vitrine.Capacity{Rate: 300, Low: 290, High: 310}, nil)
	on := measured(t, "bn1s", 1, vitrine.Capacity{Rate: 350, Low: 340, High: 360}, nil)
	if i, why := size.Best([]vitrine.Measured{off, on, off}, size.Objective{}); i != 1 || why == "" {
		t.Errorf("%d: %s", i, why)
	}
	if i, why := size.Best(nil, size.Objective{}); i != -1 || why == "" {
		t.Errorf("%d: %s", i, why)
	}
}
