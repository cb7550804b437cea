package papers

import (
	"math"
	"strings"
	"testing"

	"vitrine"
	"vitrine/measure/delay"
)

func reading(mean, low, high float64) Reading {
	return Reading{Interval: delay.Interval{Mean: mean, Low: low, High: high, Repeats: 5, Confidence: 0.95}}
}

func testReadings() Readings {
	few, single, lost, marked := reading(20, 19, 21), reading(20, 20, 20), reading(20, 19, 21), reading(20, 19, 21)
	few.Repeats, single.Interval, lost.Lost, marked.Mark = 4, withoutInterval(20), 0.11, "emulated (tcg)"
	above, below := reading(40, 40, 40), reading(5, 0, 5)
	above.Bound, below.Bound = vitrine.CensoredAbove, vitrine.CensoredBelow
	turns, faster := reading(20, 10, 30), reading(22, 11, 33) // the host slowed down to a third
	turns.Turns, faster.Turns = []float64{30, 25, 20, 15, 10}, []float64{33, 27.5, 22, 16.51, 11}
	other := reading(40, 39, 41)
	other.Turns = []float64{60, 50, 40, 30, 20}
	return Readings{
		of: map[string]Reading{
			"a x": reading(10, 9.5, 10.5), "b x": reading(20, 19, 21), "c x": reading(10.2, 9.7, 10.7), "wide x": reading(20, 5, 40),
			"few x": few, "one x": single, "lost x": lost, "marked x": marked, "above x": above, "below x": below,
			"zero x": reading(0, -1, 1), "five x": reading(5, 4, 6),
			"p y@64": reading(1, 0.9, 1.1), "q y@64": reading(2, 1.9, 2.1), "p y@128": reading(1, 0.9, 1.1), "q y@128": reading(1.05, 0.95, 1.15),
			"s1 cap": reading(10, 9, 11), "s2 cap": reading(20, 19, 21), "s3 cap": reading(30, 29, 31), "s4 cap": few,
			"p z@64": reading(1, 0.9, 1.1), "q z@64": reading(2, 1.9, 2.1), "p z@128": reading(1, 0.9, 1.1), "q z@128": above,
			"use y": reading(0.8, 0.78, 0.82), "turns x": turns, "faster x": faster,
		},
		missing: map[string]string{"d": "no such device"},
		beside:  map[string]Readings{"other": {of: map[string]Reading{"b x": other}}},
	}
}

func TestJudge(t *testing.T) {
	r := testReadings()
	for _, tt := range []struct {
		claim           Claim
		order, quantity string
		says            string
	}{
		// order
		{Claim{Less: "a x", More: "b x"}, Holds, "", "a x: 10.00 [9.50, 10.50], b x: 20.00"},
		{Claim{Less: "b x", More: "a x"}, Contrary, "", ""},
		{Claim{Less: "a x", More: "c x"}, Tied, "", ""},
		{Claim{Less: "zero x", More: "five x"}, Holds, "", ""}, // by the difference
		{Claim{Less: "five x", More: "zero x"}, Contrary, "", ""},
		{Claim{Less: "15", More: "b x"}, Holds, "", ""},
		{Claim{Less: "turns x", More: "faster x"}, Holds, "", ""}, // a tenth more in every turn
		{Claim{Less: "turns x", More: "faster x", Within: 1.11}, Holds, "", ""},
		{Claim{Less: "turns x", More: "b x"}, Tied, "", ""},                      // not measured in turns
		{Claim{Less: "turns x", More: "other: b x", Within: 2.01}, Tied, "", ""}, // in the turns of another run
		{Claim{Less: "a x", More: "above x"}, Holds, "", "(above)"},              // bounded, and that is enough
		{Claim{Less: "above x", More: "a x"}, Contrary, "", ""},
		{Claim{Less: "below x", More: "a x"}, Holds, "", ""},
		{Claim{Less: "below x", More: "five x"}, Tied, "", ""},
		// quantity, separate from the order
		{Claim{Less: "a x", More: "b x", Paper: &Span{2, 2}}, Holds, Agrees, ""},
		{Claim{Less: "a x", More: "b x", Paper: &Span{1.049, 1.049}}, Holds, Differs, ""},
		{Claim{Less: "a x", More: "b x", Paper: &Span{1.5, 2.5}}, Holds, Agrees, ""},
		{Claim{Less: "a x", More: "b x", Paper: &Span{1.95, 2.5}}, Holds, Open, ""}, // only a part of the interval
		{Claim{Less: "a x", More: "c x", Paper: &Span{1.03, 1.03}}, Tied, Open, ""}, // no difference fits too
		{Claim{Less: "a x", More: "wide x", Paper: &Span{2, 2}}, Tied, Open, ""},
		{Claim{Less: "a x", More: "above x", Paper: &Span{2, 2}}, Holds, NotJudged, "only bounded"},
		{Claim{Less: "zero x", More: "b x", Paper: &Span{2, 2}}, Holds, NotJudged, "not positive"},
		{Claim{Value: "use y", Paper: &Span{0.75, 0.85}}, "", Agrees, ""},
		{Claim{Value: "use y", Paper: &Span{0.8, 0.85}}, "", Open, ""},
		{Claim{Value: "use y", Paper: &Span{0.9, 0.95}}, "", Differs, ""},
		{Claim{Value: "above x", Paper: &Span{40, 40}}, "", NotJudged, "only bounded"},
		// alike
		{Claim{Less: "a x", More: "c x", Within: 1.25}, Holds, "", ""},
		{Claim{Less: "a x", More: "c x", Within: 1.03}, Tied, "", ""},
		{Claim{Less: "a x", More: "b x", Within: 1.25}, Contrary, "", ""},
		// not judged
		{Claim{Less: "a x", More: "few x", Paper: &Span{2, 2}}, NotJudged, NotJudged, "4 repeats, fewer than five"},
		{Claim{Less: "a x", More: "one x"}, NotJudged, "", "without an interval"},
		{Claim{Less: "lost x", More: "a x"}, NotJudged, "", "lost 0.11%"},
		{Claim{Less: "a x", More: "marked x"}, NotJudged, "", "emulated (tcg): not comparable"},
		{Claim{Less: "a x", More: "d x"}, NotJudged, "", "d: not measured: no such device"},
		{Claim{Less: "a x", More: "e x"}, NotJudged, "", "the run has no such value"},
		{Claim{Value: "e x", Paper: &Span{1, 1}}, "", NotJudged, "not measured"},
		// another run
		{Claim{Less: "a x", More: "other: b x", Paper: &Span{4, 4}}, Holds, Agrees, "other: b x: 40"},
		{Claim{Less: "a x", More: "none: b x"}, NotJudged, "", "b of none: not run by its committed plan"},
		// all of several
		{Claim{Less: "p y@*", More: "q y@*"}, Tied, "", "64: 2.00 [1.79, 2.25], holds; 128: 1.05"},
		{Claim{Less: "p y@*", More: "q y@*", Paper: &Span{1.45, 1.45}}, Tied, Agrees, ""},           // the mean of 2 and 1.05
		{Claim{Less: "p z@*", More: "q z@*", Paper: &Span{5, 5}}, Holds, NotJudged, "only bounded"}, // 64 differs, 128 has no mean
		{Claim{Less: "* cap", More: "s3 cap"}, NotJudged, "", "s1: 3.00"},
		{Claim{Less: "s3 cap", More: "* cap"}, Contrary, "", ""}, // one is enough
		{Claim{Less: "x z@*", More: "y z@*"}, NotJudged, "", "not measured"},
		{Claim{Less: "p y@*", More: "d y@*", Paper: &Span{2, 2}}, NotJudged, NotJudged, "64: not judged; 128: not judged"},
		// nothing claimed
		{Claim{Less: "a x", More: "b x", Free: true}, NoClaim, "", ""},
	} {
		v := tt.claim.judge(r)
		if all := v.Figures + v.Why; v.Order != tt.order || v.Quantity != tt.quantity || !strings.Contains(all, tt.says) {
			t.Errorf("%+v: order %q, quantity %q (%s; %s), want %q, %q (%s)", tt.claim, v.Order, v.Quantity, v.Figures, v.Why, tt.order, tt.quantity, tt.says)
		}
		if (v.Order == NotJudged || v.Quantity == NotJudged) && v.Why == "" {
			t.Errorf("%+v: not judged without a reason", tt.claim)
		}
	}
}

// TestBestOfAll checks that the best size is compared with each other size, not
// with itself.
func TestBestOfAll(t *testing.T) {
	r := testReadings()
	delete(r.of, "s4 cap")
	v := Claim{Less: "* cap", More: "s3 cap"}.judge(r)
	if v.Order != Holds || strings.Contains(v.Figures, "s3:") || !strings.Contains(v.Figures, "s2: 1.50") {
		t.Errorf("%s: %s", v.Order, v.Figures)
	}
}

// TestRefusedRun checks that a run that may not be judged leaves every verdict
// open, and says why.
func TestRefusedRun(t *testing.T) {
	e := Exhibit{Claims: []Claim{
		{Less: "a x", More: "b x", Paper: &Span{2, 2}}, {Value: "use y", Paper: &Span{0.75, 0.85}}, {Less: "a x", More: "b x", Free: true},
	}}
	want := [][2]string{{NotJudged, NotJudged}, {"", NotJudged}, {NoClaim, ""}}
	for i, v := range e.Judge(testReadings(), "another plan") {
		if v.Order != want[i][0] || v.Quantity != want[i][1] || v.Why != "another plan" {
			t.Errorf("%d: %q, %q, %q", i, v.Order, v.Quantity, v.Why)
		}
	}
}

func TestRatio(t *testing.T) {
	near := func(got, want float64) bool {
		return math.IsInf(want, 1) && math.IsInf(got, 1) || math.Abs(got-want) < 1e-3
	}
	for _, tt := range []struct {
		less, more Reading
		want       Ratio
	}{
		// Factors of 1.1 and 1.2 either way: exp(hypot(ln 1.1, ln 1.2)) = 1.2284.
		{reading(1, 1/1.1, 1.1), reading(2, 2/1.2, 2.4), Ratio{2, 2 / 1.2284, 2 * 1.2284}},
		{reading(2, 2, 2), reading(2, 2, 2), Ratio{1, 1, 1}},
		{reading(1, -1, 3), reading(2, 1, 3), Ratio{2, 2 / 3.6663, math.Inf(1)}}, // hypot(ln 3, ln 2) = ln 3.6663
	} {
		got, ok := ratio(tt.less, tt.more)
		if !ok || !near(got.Mean, tt.want.Mean) || !near(got.Low, tt.want.Low) || !near(got.High, tt.want.High) {
			t.Errorf("%v / %v: %v, want %v", tt.more, tt.less, got, tt.want)
		}
	}
	if _, ok := ratio(reading(0, -1, 1), reading(1, 0, 2)); ok {
		t.Error("a ratio to nothing")
	}
	if mean := average([]Ratio{{2, 1, 4}, {8, 4, 16}}); !near(mean.Mean, 4) || !near(mean.High, 8) || !near(mean.Low, 2) {
		t.Errorf("average %v, want an interval as wide as that of one ratio", mean)
	}
	two, eight := []float64{math.Log(2) + 0.1, math.Log(2) - 0.1}, []float64{math.Log(8) - 0.1, math.Log(8) + 0.1}
	if mean, ok := averageInTurns([][]float64{two, eight}); !ok || !near(mean.Mean, 4) || !near(mean.High, 4) || !near(mean.Low, 4) {
		t.Errorf("average in turns %v, %v, want 4 in both turns", mean, ok)
	}
	if _, ok := averageInTurns([][]float64{two, nil}); ok {
		t.Error("an average in turns, although one ratio has none")
	}
}

// TestUserSpaceSwitchIsNotComparable checks that Open vSwitch in user space is compared only with itself.
func TestUserSpaceSwitchIsNotComparable(t *testing.T) {
	const userSpace = "Open vSwitch 3.1.0, datapath netdev, ports by socket"
	for _, tt := range []struct{ version, less, more, order string }{
		{userSpace, "docker/macvlan rtt", "docker/ovs rtt", NotJudged},
		{userSpace, "docker/macvlan/packet rtt", "docker/ovs/packet rtt", NotJudged},
		{userSpace, "10", "docker/ovs rtt", NotJudged},
		{userSpace, "process/ovs rtt", "docker/ovs rtt", Holds},
		{userSpace, "docker/macvlan rtt", "docker/bridge rtt", Holds},
		{"Open vSwitch 3.1.0, datapath kernel", "docker/macvlan rtt", "docker/ovs rtt", Holds},
		{"", "docker/macvlan rtt", "docker/ovs rtt", Holds}, // a record without versions
	} {
		record := &Record{Fabrics: map[string]string{"ovs": tt.version}, Readings: map[string]Reading{
			tt.less: reading(10, 9, 11), tt.more: reading(20, 19, 21),
		}}
		v := Claim{Less: tt.less, More: tt.more}.judge(record.readings())
		if v.Order != tt.order || strings.Contains(v.Why, "Open vSwitch in user space") != (tt.order == NotJudged) {
			t.Errorf("%+v: %s (%s)", tt, v.Order, v.Why)
		}
	}
	r := Readings{of: map[string]Reading{"docker/ovs rtt": reading(10, 9, 11)}, netdev: true}
	if v := (Claim{Value: "docker/ovs rtt", Paper: &Span{10, 10}}).judge(r); v.Quantity != NotJudged {
		t.Errorf("the paper's figure: %s", v.Quantity)
	}
}
