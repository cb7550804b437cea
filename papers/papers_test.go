package papers

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
	"vitrine/spec"
)

func exhibits(t *testing.T) []Exhibit {
	t.Helper()
	list, err := List()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d exhibits: %v", len(list), err)
	}
	return list
}

// TestClaimsAreValid checks that every claim can be judged, and that every
// exhibit has an estimate of its time.
func TestClaimsAreValid(t *testing.T) {
	packets := 0
	for _, e := range exhibits(t) {
		for _, c := range e.Claims {
			if err := c.check(); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
		for _, row := range e.Table.Rows {
			if len(row.Paper) > len(e.Table.Columns) {
				t.Errorf("%s: %s: %d figures of the paper in %d columns", e.Name, row.On, len(row.Paper), len(e.Table.Columns))
			}
		}
		switch {
		case e.Measured():
			packets++
		case e.Expect == nil || e.Expect.Wall(time.Second) < time.Minute:
			t.Errorf("%s: no estimate of its time", e.Name)
		}
	}
	if packets != 10 {
		t.Errorf("%d exhibits of packets, want Tables I to III and figures 2 to 6, 8, 9", packets)
	}
}

// check returns an error if the claim makes no sense.
func (c Claim) check() error {
	two := c.Less != "" && c.More != ""
	switch {
	case c.Says == "":
		return fmt.Errorf("a claim without words")
	case two == (c.Value != ""):
		return fmt.Errorf("%s: want less and more, or value", c.Says)
	case c.Value != "" && c.Paper == nil:
		return fmt.Errorf("%s: want the paper's figure", c.Says)
	case c.Within != 0 && c.Within <= 1:
		return fmt.Errorf("%s: within is %g: want more than 1", c.Says, c.Within)
	case c.Free && (c.Paper != nil || c.Within != 0):
		return fmt.Errorf("%s: a free ratio is judged by nothing", c.Says)
	case c.Paper != nil && c.Paper.Low > c.Paper.High:
		return fmt.Errorf("%s: the paper's %s falls", c.Says, c.Paper)
	}
	return nil
}

// TestOtherRunsKeepWhatClaimsName checks that the record of another run keeps the readings that a
// claim about two runs names. A record keeps what its own exhibits show or judge.
func TestOtherRunsKeepWhatClaimsName(t *testing.T) {
	for _, e := range exhibits(t) {
		for _, c := range e.Claims {
			for _, name := range c.names() {
				other, reading, ok := strings.Cut(name, ": ")
				if !ok {
					continue
				}
				kept, err := named(path.Join(e.Paper(), other))
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(kept, func(pattern string) bool {
					_, fits := match(pattern, reading)
					return fits || pattern == reading
				}) {
					t.Errorf("%s: the record of %s does not keep %s", e.Name, other, reading)
				}
			}
		}
	}
}

// TestContainedFiguresAreComplete checks that figures 5 and 7 of Contain-ed show the peak, the minimum
// and the maximum at each rate, as the paper does, and what the director costs.
func TestContainedFiguresAreComplete(t *testing.T) {
	for _, name := range []string{"figure-5", "figure-5-contained", "figure-7", "figure-7-contained"} {
		e, err := Find("contain-ed/" + name)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"goodput.peak"}
		rates := 0
		for _, column := range e.Table.Columns {
			rate, ok := strings.CutPrefix(column, "goodput@")
			if !ok {
				continue
			}
			want = append(want, "least "+column, "most "+column)
			if rates++; rates <= 2 {
				want = append(want, "percall.all@"+rate, "latency.p50@"+rate, "latency.p99@"+rate)
			}
		}
		if rates != 6 {
			t.Errorf("%s shows %d rates, want 6", e.Name, rates)
		}
		for _, column := range want {
			if !slices.Contains(e.Table.Columns, column) {
				t.Errorf("%s has no column %s", e.Name, column)
			}
		}
	}
}

// TestSpecsAreValid checks that the specs are valid at every scale, and that
// claims name sizes that they measure.
func TestSpecsAreValid(t *testing.T) {
	for _, e := range exhibits(t) {
		if e.Measured() {
			continue
		}
		for _, scale := range []Scale{Quick, Full} {
			deployment, workload, err := e.Unpack(t.TempDir(), scale)
			if err != nil {
				t.Fatal(e.Name, err)
			}
			d, err := spec.LoadDeployment(deployment, spec.Known{})
			if err != nil {
				t.Fatal(e.Name, err)
			}
			w, err := spec.LoadWorkload(workload, spec.Known{Generators: map[string]any{"sip": map[string]any{}, "s1ap": map[string]any{}}})
			if err != nil {
				t.Fatal(e.Name, err)
			}
			if scale == Full && w.Repeat < LeastRepeats {
				t.Errorf("%s: %d repeats: nothing could be judged", e.Name, w.Repeat)
			}
			for _, c := range e.Claims {
				for _, name := range c.names() {
					checkSizing(t, e, d, name)
				}
			}
		}
	}
}

func checkSizing(t *testing.T, e Exhibit, d *spec.Deployment, name string) {
	where, _, _ := strings.Cut(name, " ")
	where, _, _ = strings.Cut(where, "/")
	first := func(short string) bool { return strings.HasPrefix(where, short) }
	if strings.HasSuffix(where, ":") || !slices.ContainsFunc([]string{"bn", "ep", "ad", "ed"}, first) {
		return // a reading of another run, a number, or a *
	}
	s, err := vitrine.ParseSizing(where)
	if err != nil {
		t.Fatal(e.Name, err)
	}
	if err := d.CheckSizing(s); err != nil {
		t.Error(e.Name, err)
	}
	if d.Mode.Name == spec.Custom && !slices.Contains(d.Mode.Sizes, where) {
		t.Errorf("%s speaks of %s, which is not measured", e.Name, where)
	}
}

// everything returns the readings of a run of the exhibit in which nothing is
// missing.
func everything(t *testing.T, e Exhibit) Readings {
	t.Helper()
	r := newReadings()
	i := delay.Interval{Mean: 2, Low: 1.9, High: 2.1, Repeats: 10, Confidence: 0.95}
	spread := measure.Spread{Mean: i, Deviation: i, P50: i, P99: i, MinEach: i, MaxEach: i}
	if e.Chain != nil {
		s := e.ChainSettings(Quick)
		s.Lengths = []int{0, 1, 2, 3}
		report := chain.Report{Settings: s}
		for _, p := range s.Paths() {
			c := chain.Chain{Path: p}
			for _, n := range s.Lengths {
				c.Points = append(c.Points, chain.Point{Length: n, RoundTrip: i, Mean: i, P99: i, Jitter: i, Sent: 1000})
			}
			for _, of := range []string{chain.RoundTripMean, chain.Variation} {
				c.Fits = append(c.Fits, chain.Fit{Of: of, Slope: i, R2Each: i})
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
					Combination: where, Metric: metric, Way: measure.RoundTrip, Size: size, Repeats: 10, Sent: 1000,
					Delay: &spread, Jitter: spread, Lateness: spread, ReorderedPercent: i,
					CPU: &measure.Use{Total: i, Relative: &i, Split: &cpu.Split{User: 1}},
				})
			}
		}
	}
	r.network(sum)
	return r
}

// TestPacketExhibitsAreMeasured checks that a run gives every value that an
// exhibit of packets shows or judges, at every scale.
func TestPacketExhibitsAreMeasured(t *testing.T) {
	for _, e := range exhibits(t) {
		if !e.Measured() {
			continue
		}
		for _, scale := range []Scale{Quick, Full} {
			if e.Chain != nil {
				s := e.ChainSettings(scale)
				if err := s.Check(); err != nil {
					t.Error(e.Name, err)
				}
				continue
			}
			s := e.NetworkSettings(scale)
			if err := s.Check(); err != nil {
				t.Error(e.Name, err)
			}
		}
		r := everything(t, e)
		for _, row := range e.Table.Rows {
			for _, c := range e.Table.Columns {
				if _, ok := r.of[row.On+" "+c]; !ok {
					t.Errorf("%s: %s %s is not measured", e.Name, row.On, c)
				}
			}
		}
		for _, v := range e.Judge(r, "") {
			if strings.Contains(v.Why, "not measured") {
				t.Errorf("%s: %s: %s", e.Name, v.Says, v.Why)
			}
		}
	}
}

// TestRepeatsAreTurns checks that a drift of the host between the repeats does not hide a small difference of
// two paths, unless a repeat of one path is not valid.
func TestRepeatsAreTurns(t *testing.T) {
	drift := []float64{1, 1.5, 1.1, 1.4, 1.2, 1.3, 1.5, 1, 1.3, 1.1}
	each := func(factor, noise float64, phase, repeats int) delay.Interval {
		var list []float64
		for i, d := range drift[:repeats] {
			list = append(list, factor*d*(1+noise*float64((i+phase)%3-1)))
		}
		return delay.OfRepeats(list)
	}
	for _, tt := range []struct {
		repeats         int // valid ones of the second path, of ten
		order, quantity string
	}{{10, Holds, Agrees}, {9, Tied, Open}} {
		sum := measure.Summary{Settings: measure.Settings{Repeat: 10}}
		report := chain.Report{Settings: chain.Settings{Repeat: 10}}
		add := func(fabric string, factor, noise float64, repeats int) {
			for phase, size := range []int{64, 1514} {
				sum.Rows = append(sum.Rows, measure.Row{
					Combination: measure.Combination{Substrate: "docker", Fabric: fabric}, Metric: measure.Latency, Way: measure.RoundTrip,
					Size: size, Repeats: repeats, Sent: 1000, Delay: &measure.Spread{Mean: each(factor, noise, phase, repeats)},
				})
			}
			report.Chains = append(report.Chains, chain.Chain{
				Path:   chain.Path{Substrate: "docker", Fabric: fabric, Forwarder: "packet"},
				Points: []chain.Point{{Length: 1, Mean: each(factor, noise, 0, repeats), Sent: 1000}},
			})
		}
		add("direct", 34, 0, 10)
		add("macvlan", 34*1.02, 0.01, tt.repeats)
		r := newReadings()
		r.network(sum)
		r.chains(report)
		for _, names := range [][2]string{
			{"docker/direct rtt.mean@*", "docker/macvlan rtt.mean@*"}, {"docker/direct/packet rtt.mean@1", "docker/macvlan/packet rtt.mean@1"},
		} {
			v := Claim{Less: names[0], More: names[1], Paper: &Span{1.02, 1.02}}.judge(r)
			if v.Order != tt.order || v.Quantity != tt.quantity {
				t.Errorf("%d valid repeats, %s: %s, %s: %v", tt.repeats, names[1], v.Order, v.Quantity, v.Ratio)
			}
			// The noise of the two sizes partly cancels out within a turn. Without that, the ends are a factor of 1.012 apart.
			if all := strings.HasSuffix(names[0], "*"); all && tt.order == Holds && v.Ratio.High/v.Ratio.Low > 1.009 {
				t.Errorf("the average over the sizes is %v, want that of each turn", v.Ratio)
			}
		}
	}
}

// TestSplitForAllOrNone checks that CPU time is split for all paths or for none,
// and that the table then says why.
func TestSplitForAllOrNone(t *testing.T) {
	e, err := Find("container-networking/figure-5")
	if err != nil {
		t.Fatal(err)
	}
	i := delay.Interval{Mean: 2, Low: 1.9, High: 2.1, Repeats: 10, Confidence: 0.95}
	row := func(fabric string, split *cpu.Split, why string) measure.Row {
		return measure.Row{Combination: measure.Combination{Substrate: "docker", Fabric: fabric}, Metric: measure.Efficiency, Way: measure.OneWay,
			Repeats: 10, Sent: 100, CPU: &measure.Use{Total: i, Split: split, Why: why}}
	}
	for _, tt := range []struct {
		rows []measure.Row
		want bool
	}{
		{[]measure.Row{row("direct", &cpu.Split{User: 1}, ""), row("bridge", &cpu.Split{User: 1}, "")}, true},
		{[]measure.Row{row("direct", &cpu.Split{User: 1}, ""), row("bridge", nil, "the two ways differ")}, false},
	} {
		r := newReadings()
		r.network(measure.Summary{Rows: tt.rows})
		text := Markdown(e.Table.grid(r)) + strings.Join(r.Notes, "\n")
		if got := strings.Contains(text, "cpu.user"); got != tt.want {
			t.Errorf("split shown: %v, want %v:\n%s", got, tt.want, text)
		}
		if !tt.want && !strings.Contains(text, "docker on bridge: the two ways differ") {
			t.Errorf("no reason:\n%s", text)
		}
	}
}
