package size_test

import (
	"math"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
	"vitrine/search/size"
)

// TestSettingTellsMeasuredFromPredicted also checks that a second measurement
// replaces the first, and that the fit finds what the components cost.
func TestSettingTellsMeasuredFromPredicted(t *testing.T) {
	f := sim.IMS(1)
	f.Components[1].Idle, f.Components[1].Cluster = 0.1, 0.3
	space := ims(vitrine.Resources{VCPUs: 6})
	cfg := rate.Config{Min: 10, Max: 2000, Duration: 10 * time.Second, Repeat: 2, Thresholds: []float64{0.9, 0.8}, Seed: 1}
	var all []size.Profiled
	for i, name := range []string{"bn1s-sp1s-hs1s", "bn1s-sp2s-hs1s", "bn1s-sp1m-hs1m", "bn1s-sp1s-hs1s"} {
		m, history := f.Measure(sizing(t, name), rate.NewBisect(cfg), cfg)
		m.Again = i == 3
		if m.Again {
			m.Capacities[0].Rate++
		}
		all = append(all, size.Profiled{Measured: m, Boot: 1.5, History: history})
	}
	s := size.Setting(space, all, 1)
	found := map[string]vitrine.SizeProfile{}
	vcpus := 0.0
	for _, z := range s.Sizes {
		if _, twice := found[z.Sizing]; twice || z.VCPUs < vcpus {
			t.Errorf("%s is there twice, or after %g vCPUs", z.Sizing, vcpus)
		}
		found[z.Sizing], vcpus = z, z.VCPUs
	}
	small := found["bn1s-sp1s-hs1s"]
	if small.Source != vitrine.SourceMeasured || small.Rate != all[3].Capacities[0].Rate || len(small.Capacities) != 2 || small.Boot != 1.5 {
		t.Errorf("%+v", small)
	}
	if n := len(small.Latency); n < 3 || small.Latency[n-1].Fraction < 0.9 || small.Latency[0].P50 >= small.Latency[n-1].P50 {
		t.Errorf("latency %+v", small.Latency)
	}
	other := found["bn1s-sp1m-hs1s"]
	truth := f.Capacity(sizing(t, other.Sizing), 0.9)
	if other.Source != vitrine.SourcePredicted || math.Abs(other.Rate/truth-1) > 0.1 || other.Low > truth || other.High < truth || other.Boot != 0 {
		t.Errorf("predicted %+v, truly %.0f", other, truth)
	}
	sprout := s.Components[1]
	within := func(what string, e vitrine.Estimate, want, by float64) {
		if math.Abs(e.Value/want-1) > by || e.Low > e.Value || e.High < e.Value {
			t.Errorf("%s is %+v, truly %g", what, e, want)
		}
	}
	within("demand", sprout.Demand, f.Components[1].Demand, 0.1)
	within("idle", sprout.Idle, 0.1, 0.3)
	if c := sprout.Clustering[1]; sprout.Name != "sprout" || c.Instances != 2 || c.Source != vitrine.SourceMeasured || sprout.Clustering[2].Source != vitrine.SourcePredicted {
		t.Errorf("%+v", sprout)
	}
	within("two instances", sprout.Clustering[1].Factor, 1.3, 0.1)
}

// TestSettingWithoutBound checks that only measured sizings are in the setting.
func TestSettingWithoutBound(t *testing.T) {
	m := measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 350, Low: 340, High: 360}, nil)
	s := size.Setting(ims(vitrine.Resources{}), []size.Profiled{{Measured: m}}, 1)
	if len(s.Sizes) != 1 || s.Sizes[0].Source != vitrine.SourceMeasured || s.Components == nil {
		t.Errorf("%+v", s)
	}
	if s := size.Setting(ims(vitrine.Resources{VCPUs: 6}), nil, 1); len(s.Sizes) != 0 || s.Sizes == nil {
		t.Errorf("%+v", s)
	}
}

// TestPredictionsKnowHowSureIntervalsAre gives the same measurements with
// intervals of 60% and of 95% confidence. Both predict the same rates; at 60%,
// the predicted intervals are narrower.
func TestPredictionsKnowHowSureIntervalsAre(t *testing.T) {
	f := sim.IMS(1)
	cfg := rate.Config{Min: 10, Max: 2000, Duration: 10 * time.Second, Repeat: 2, Thresholds: []float64{0.9}, Seed: 1}
	const narrower = 0.8416212335729143 / 1.959963984540054 // half widths of 60% and of 95%, in standard deviations
	var usual, sixty []size.Profiled
	for _, name := range []string{"bn1s-sp1s-hs1s", "bn1s-sp2s-hs1s", "bn1s-sp1m-hs1m"} {
		m, history := f.Measure(sizing(t, name), rate.NewBisect(cfg), cfg)
		c := m.Capacities[0]
		c.Low, c.High = c.Rate*0.92, c.Rate*1.08
		m.Capacities = []vitrine.Capacity{c}
		usual = append(usual, size.Profiled{Measured: m, History: history})
		c.Low, c.High = c.Rate*(1-0.08*narrower), c.Rate*(1+0.08*narrower)
		m.Capacities, m.Confidence = []vitrine.Capacity{c}, 0.6
		sixty = append(sixty, size.Profiled{Measured: m, History: history})
	}
	space := ims(vitrine.Resources{VCPUs: 6})
	want, got := size.Setting(space, usual, 1).Sizes, size.Setting(space, sixty, 1).Sizes
	predicted := 0
	for i, w := range want {
		if g := got[i]; w.Source == vitrine.SourcePredicted {
			predicted++
			if math.Abs(g.Rate/w.Rate-1) > 1e-6 || g.Low <= w.Low || g.High >= w.High {
				t.Errorf("%s: %g [%g, %g] of 60%%, %g [%g, %g] of 95%%", w.Sizing, g.Rate, g.Low, g.High, w.Rate, w.Low, w.High)
			}
		}
	}
	if predicted == 0 {
		t.Error("nothing was predicted")
	}
}
