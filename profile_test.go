package vitrine

import (
	"encoding/json"
	"strings"
	"testing"
)

func profile(sizes ...SizeProfile) *Profile {
	for i := range sizes {
		if sizes[i].Source == "" {
			sizes[i].Source = SourcePredicted
		}
	}
	return &Profile{Version: ProfileVersion, Function: "ims", Unit: "calls/s", Thresholds: []float64{0.9}, Confidence: 0.95,
		Settings: []Setting{{Substrate: "process", Sizes: sizes}}}
}

func at(sizing string, vcpus, low, rate, high float64) SizeProfile {
	return SizeProfile{Sizing: sizing, VCPUs: vcpus, Rate: rate, Low: low, High: high, Censored: CensoredNone}
}

// TestCarrying checks that sizes are chosen by the lower end of their interval
// first, then by vCPUs. A size whose search did not end is not chosen.
func TestCarrying(t *testing.T) {
	below := at("bn1t", 0.5, 900, 900, 900)
	below.Censored = CensoredBelow
	stopped := at("bn3s", 1, 900, 900, 900)
	stopped.Unfinished = "the time limit --max-time is over"
	p := profile(at("bn1l", 4, 600, 650, 700), at("bn2s", 2, 350, 500, 700), at("bn1m", 2, 400, 450, 500), at("bn1s", 1, 0, 200, 400), below, stopped)
	p.Settings = append(p.Settings, Setting{Substrate: "docker", Sizes: []SizeProfile{at("bn1m", 2, 300, 350, 400)}})
	for rate, want := range map[float64]string{100: "bn1m", 400: "bn1m", 401: "bn1l", 600: "bn1l", 601: ""} {
		chosen, most := p.Carrying(rate)
		got := ""
		if chosen != nil {
			got = chosen.Size.Sizing
		}
		if got != want || most == nil || most.Size.Sizing != "bn1l" {
			t.Errorf("%g: %q and most %+v, want %q", rate, got, most, want)
		}
		if chosen != nil && chosen.Setting.Substrate != "process" {
			t.Errorf("%g on %s", rate, chosen.Setting.Substrate)
		}
	}
	if chosen, most := profile(below).Carrying(1); chosen != nil || most != nil {
		t.Errorf("%+v, %+v of nothing", chosen, most)
	}
}

func TestParseProfile(t *testing.T) {
	text, err := json.Marshal(profile(at("bn1s", 1, 300, 350, 400)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParseProfile(text)
	if err != nil || p.Settings[0].Sizes[0].Rate != 350 {
		t.Errorf("%+v, %v", p, err)
	}
	for change, want := range map[[2]string]string{
		{`"profile":1`, `"profile":2`}:                                  "version 2, and this program reads version 1",
		{`"profile":1,`, ``}:                                            "no field profile",
		{`"function":"ims"`, `"function":""`}:                           "without its function",
		{`"thresholds":[0.9]`, `"thresholds":[]`}:                       "or thresholds",
		{`"sizing":"bn1s"`, `"sizing":"huge"`}:                          "not a sizing",
		{`"source":"predicted"`, `"source":"guessed"`}:                  `source "guessed"`,
		{`"capacity":350`, `"capacity":450`}:                            "450 is not within its interval [300, 400]",
		{`"vcpus":1`, `"vcpus":0`}:                                      "0 vCPUs",
		{`"unit"`, `"unti"`}:                                            `unknown field "unti"`,
		{`{"profile"`, `["profile"`}:                                    "not a capacity profile",
		{`"capacity_low":300,"capacity_high":400`, `"capacity_low":-1`}: "not within its interval",
	} {
		bad := strings.Replace(string(text), change[0], change[1], 1)
		if bad == string(text) {
			t.Fatalf("no %s in %s", change[0], text)
		}
		if _, err := ParseProfile([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change[1], err, want)
		}
	}
}

// FuzzParseProfile checks that an accepted profile can be queried, and parses
// again when it is written.
func FuzzParseProfile(f *testing.F) {
	text, err := json.Marshal(profile(at("bn1s", 1, 300, 350, 400)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"profile":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProfile(text)
		if err != nil {
			return
		}
		p.Carrying(300)
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseProfile(again); err != nil {
			t.Errorf("%s is not read again: %v", again, err)
		}
	})
}
