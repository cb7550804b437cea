package profile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/flex/profile"
	"vitrine/result"
)

func host() result.Host {
	return result.Host{CPUModel: "Model X", CPUs: 8, Virtualization: "none"}
}

// characterized writes a run folder with a profile of a measured and a predicted size.
func characterized(t *testing.T, z vitrine.SizeProfile) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	r, err := result.Create(dir, result.Manifest{VNF: "ims", Unit: "calls/s", Host: host()})
	if err != nil {
		t.Fatal(err)
	}
	predicted := vitrine.SizeProfile{Sizing: "sp2s", VCPUs: 2, Source: vitrine.SourcePredicted, Rate: 200, Low: 170, High: 230, Censored: vitrine.CensoredNone}
	err = r.SaveProfile(vitrine.Profile{Version: vitrine.ProfileVersion, Function: "ims", Unit: "calls/s", Thresholds: []float64{0.99, 0.9}, Confidence: 0.95,
		Settings:   []vitrine.Setting{{Substrate: "process", Sizes: []vitrine.SizeProfile{z, predicted}, Components: []vitrine.ComponentProfile{}}},
		Provenance: vitrine.ProfileSource{Specs: map[string]string{}}})
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func measured() vitrine.SizeProfile {
	return vitrine.SizeProfile{Sizing: "sp1s", VCPUs: 1, Source: vitrine.SourceMeasured, Rate: 100, Low: 92, High: 108, Censored: vitrine.CensoredNone, Boot: 4.5,
		Capacities: []vitrine.Capacity{
			{Threshold: 0.99, Rate: 100, Low: 92, High: 108, Censored: vitrine.CensoredNone, Single: 88},
			{Threshold: 0.9, Rate: 120, Low: 110, High: 130, Censored: vitrine.CensoredNone, Single: 105},
		},
		Latency: []vitrine.LatencyPoint{{Rate: 30, P99: 10}, {Rate: 60, P99: 20}, {Rate: 90, P99: 80}},
	}
}

func TestAnInstanceCarriesTheLowerToleranceBound(t *testing.T) {
	dir := characterized(t, measured())
	single := measured()
	single.Capacities[0].Single = 0
	without := characterized(t, single)
	for name, c := range map[string]struct {
		path string
		q    profile.Question
		rate float64
	}{
		"first threshold":                {dir, profile.Question{Size: "sp1s"}, 88},
		"the file instead of the folder": {filepath.Join(dir, "profile.json"), profile.Question{Size: "sp1s"}, 88},
		"objective of success":           {dir, profile.Question{Size: "sp1s", Success: 0.95}, 88},
		"lower objective of success":     {dir, profile.Question{Size: "sp1s", Success: 0.85}, 105},
		"objective of latency":           {dir, profile.Question{Size: "sp1s", P99: 50 * time.Millisecond}, 60},
		"latency that no rate breaks":    {dir, profile.Question{Size: "sp1s", P99: time.Second}, 88},
		"no latency is known above":      {dir, profile.Question{Size: "sp1s", Success: 0.85, P99: time.Second}, 90},
		"no tolerance bound":             {without, profile.Question{Size: "sp1s"}, 92},
		"predicted":                      {dir, profile.Question{Size: "sp2s"}, 170},
	} {
		t.Run(name, func(t *testing.T) {
			c.q.Function, c.q.Host = "ims", host()
			a, err := profile.Read(c.path, c.q)
			if err != nil || a.Rate != c.rate || a.Says == "" {
				t.Errorf("got %+v, error %v, want rate %v", a, err, c.rate)
			}
			if c.q.Size == "sp1s" && a.Boot != 4500*time.Millisecond {
				t.Errorf("got boot time %v, want 4.5s", a.Boot)
			}
		})
	}
}

func TestAProfileOfSomethingElseIsRefused(t *testing.T) {
	dir := characterized(t, measured())
	other := host()
	other.CPUs = 4
	below := measured()
	below.Capacities[0].Censored = vitrine.CensoredBelow
	unfinished := measured()
	unfinished.Unfinished = "the time limit --max-time is over"
	later := characterized(t, measured())
	if err := os.WriteFile(filepath.Join(later, "profile.json"), []byte(`{"profile": 999}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		q    profile.Question
		want string
	}{
		"another function":         {dir, profile.Question{Function: "epc", Size: "sp1s", Host: host()}, "a profile of ims"},
		"another host":             {dir, profile.Question{Function: "ims", Size: "sp1s", Host: other}, "Model X with 8 CPUs there, Model X with 4 CPUs here"},
		"another substrate":        {dir, profile.Question{Function: "ims", Size: "sp1s", Host: host(), Substrate: "docker"}, "on substrate process"},
		"another size":             {dir, profile.Question{Function: "ims", Size: "sp9l", Host: host()}, "without size sp9l"},
		"a higher success ratio":   {dir, profile.Question{Function: "ims", Size: "sp1s", Host: host(), Success: 0.99999}, "below the objective of 0.99999: characterize with a threshold of at least 0.99999"},
		"a latency that none met":  {dir, profile.Question{Function: "ims", Size: "sp1s", Host: host(), P99: time.Millisecond}, "99th percentile of 10 ms"},
		"a latency nobody knows":   {dir, profile.Question{Function: "ims", Size: "sp2s", Host: host(), P99: time.Second}, "size sp2s (predicted) without a latency"},
		"a size that carries none": {characterized(t, below), profile.Question{Function: "ims", Size: "sp1s", Host: host()}, "at no rate"},
		"an unfinished search":     {characterized(t, unfinished), profile.Question{Function: "ims", Size: "sp1s", Host: host()}, "did not end: the time limit --max-time is over"},
		"another version":          {later, profile.Question{Function: "ims", Size: "sp1s", Host: host()}, "a capacity profile of version 999"},
		"no run":                   {t.TempDir(), profile.Question{Function: "ims"}, "holds no run"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := profile.Read(c.path, c.q)
			if _, bad := errors.AsType[*vitrine.BadInput](err); !bad || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want bad input with %q", err, c.want)
			}
		})
	}
}
