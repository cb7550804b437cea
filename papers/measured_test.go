package papers

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
)

// everything is what a run of the exhibit reads when nothing is missing.
func everything(t *testing.T, e Exhibit) Readings {
	t.Helper()
	r := Readings{of: map[string]Reading{}, missing: map[string]string{}}
	i := delay.Interval{Mean: 2, Low: 1, High: 3, Repeats: 3, Confidence: 0.95}
	spread := measure.Spread{Mean: i, Deviation: i, P50: i, P99: i}
	if e.Chain != nil {
		s := e.ChainSettings(Quick)
		report := chain.Report{Settings: s}
		for _, p := range s.Paths() {
			c := chain.Chain{Path: p}
			for _, n := range s.Lengths {
				c.Points = append(c.Points, chain.Point{Length: n, RoundTrip: i, Mean: i, P99: i, Jitter: i})
			}
			for _, of := range []string{chain.RoundTripMean, chain.Variation} {
				c.Fits = append(c.Fits, chain.Fit{Of: of, Slope: i})
			}
			report.Chains = append(report.Chains, c)
		}
		r.chains(report)
		return r
	}
	s := e.NetworkSettings(Quick)
	plan, err := measure.MakePlan(s, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	sum := measure.Summary{Settings: s}
	for _, where := range plan.Combinations {
		for _, metric := range s.Metrics {
			sizes := []int{s.SmallSize}
			if metric == measure.Latency {
				sizes = s.Sizes
			}
			for _, size := range sizes {
				sum.Rows = append(sum.Rows, measure.Row{
					Combination: where, Metric: metric, Way: measure.RoundTrip, Size: size, Repeats: 3, Sent: 10,
					Delay: &spread, Jitter: spread, Lateness: spread, CPU: &measure.Use{Total: i, Relative: &i, Split: &cpu.Split{}},
				})
			}
		}
	}
	r.network(sum)
	return r
}

// Every figure that an exhibit shows, or that the paper states something of, is
// one that its measurement gives, at every scale.
func TestMeasuredExhibitsAreValid(t *testing.T) {
	exhibits, err := List()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, e := range exhibits {
		if !e.Measured() {
			continue
		}
		seen++
		t.Run(e.Name, func(t *testing.T) {
			for _, scale := range []Scale{Quick, Usual, Full} {
				if e.Chain != nil {
					s := e.ChainSettings(scale)
					if err := s.Check(); err != nil {
						t.Error(err)
					}
					continue
				}
				s := e.NetworkSettings(scale)
				if err := s.Check(); err != nil {
					t.Error(err)
				}
			}
			r := everything(t, e)
			for _, row := range e.Table.Rows {
				if len(row.Paper) > len(e.Table.Columns) {
					t.Errorf("%s: %d figures of the paper in %d columns", row.On, len(row.Paper), len(e.Table.Columns))
				}
				for _, c := range e.Table.Columns {
					if _, ok := r.Find(row.On + " " + c); !ok {
						t.Errorf("%s %s is not measured", row.On, c)
					}
				}
			}
			for _, f := range e.JudgeReadings(r) {
				if f.Result == Unmeasured {
					t.Errorf("%s: %s", f.Claim, f.Detail)
				}
			}
		})
	}
	if seen != 10 {
		t.Errorf("%d exhibits of packets, want Tables I to III and figures 2 to 6, 8, 9", seen)
	}
}

func TestRelations(t *testing.T) {
	at := func(mean, half float64) Reading {
		return Reading{Interval: delay.Interval{Mean: mean, Low: mean - half, High: mean + half, Repeats: 3, Confidence: 0.95}}
	}
	r := Readings{
		of: map[string]Reading{
			"a x": at(10, 1), "b x": at(20, 1), "c x": at(10.5, 1),
			"one x":   {Interval: delay.Interval{Mean: 5, Low: 5, High: 5, Repeats: 1}},
			"a max":   {Interval: alone(7)},
			"a x@64":  at(1, 0.1),
			"b x@64":  at(2, 0.1),
			"a x@128": at(1, 0.1),
			"b x@128": at(1.05, 0.1),
		},
		missing: map[string]string{"d": "no such device"},
	}
	for _, tt := range []struct {
		less, more string
		within     float64
		want, says string
	}{
		{"a x", "b x", 0, Holds, "10 [9, 11], b x: 20"},
		{"b x", "a x", 0, Contrary, ""},
		{"a x", "c x", 0, Tied, ""},
		{"a x", "c x", 1.1, Holds, ""},
		{"a x", "b x", 1.1, Contrary, ""},
		{"one x", "b x", 0, Tied, "one repeat"},
		{"a x", "d x", 0, Unmeasured, "d: no such device"},
		{"a x", "e x", 0, Unmeasured, "e: not measured"},
		{"6.5", "a max", 0, Holds, "6.5, a max: 7"},
		{"7.5", "a max", 0, Contrary, ""},
		{"a x@*", "b x@*", 0, Tied, "64 bytes: 2, holds; 128 bytes: 1.05, tied"},
		{"a x@*", "d x@*", 0, Unmeasured, "d: no such device"},
	} {
		f := Relation{Less: tt.less, More: tt.more, Within: tt.within}.judge(r, []int{64, 128})
		if f.Result != tt.want || !strings.Contains(f.Detail, tt.says) {
			t.Errorf("%s below %s: %s (%s), want %s (%s)", tt.less, tt.more, f.Result, f.Detail, tt.want, tt.says)
		}
	}
}

// What was not measured is a row with its reason, in both forms.
func TestShowsWhatIsMissing(t *testing.T) {
	e, err := Find(Prefix + "container-networking/table-1")
	if err != nil {
		t.Fatal(err)
	}
	r := everything(t, e)
	for name := range r.of {
		if strings.HasPrefix(name, "process/sriov ") {
			delete(r.of, name)
		}
	}
	r.missing["process/sriov"] = "needs a network card\nwith virtual functions"
	for name, x := range r.of {
		if strings.HasPrefix(name, "qemu/") {
			x.Mark = "emulated (tcg)"
			r.of[name] = x
		}
	}
	var text, markdown bytes.Buffer
	found := e.JudgeReadings(r)
	if err := e.Text(&text, r, found); err != nil {
		t.Fatal(err)
	}
	if err := e.Markdown(&markdown, r, found); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"not measured: needs a network card with virtual functions", "qemu on ovs, for the paper's Xen+OVS", "emulated (tcg): not comparable", "2.00 [1.00, 3.00] (6.79)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("no %q in\n%s", want, markdown.String())
		}
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Result == Unmeasured && strings.Contains(f.Detail, "network card") }) {
		t.Error("no statement about SR-IOV is not measured")
	}
}
