package papers

import (
	"strings"
	"testing"

	"vitrine"
)

// TestLegendExplainsWhatTheTableHas checks that no legend explains what its table does not have.
func TestLegendExplainsWhatTheTableHas(t *testing.T) {
	below := reading(80, 80, 80)
	below.Bound = vitrine.CensoredBelow
	one := reading(2, 1, 3)
	turns := reading(2, 1, 3)
	turns.Turns = []float64{1, 3}
	for _, tt := range []struct {
		exhibit, name string
		x             Reading
		want          string
	}{
		{"nfv-vital/figure-1", "bn1s-sp1s-hs1s capacity@0.9", one, "In brackets: the 95% interval. In parentheses: the paper's figure, whose vCPU is a whole core."},
		{
			"nfv-vital/figure-1", "bn1s-sp1s-hs1s capacity@0.9", below,
			"In brackets: the 95% interval. In parentheses: the paper's figure, whose vCPU is a whole core; or where a capacity lies that is only bounded.",
		},
		{"contain-ed/store-none", "bn1s-sp1m-hs1s capacity@0.9", below, "In brackets: the 95% interval. In parentheses: where a capacity lies that is only bounded."},
		{"contain-ed/store-none", "bn1s-sp1m-hs1s cpu.sprout", one, "In brackets: the 95% interval. CPU is used / given at capacity."},
		{"contain-ed/flow-control", "ad1o-bn1e-sp1r-hs1d percall.bono@400/s", one, "In brackets: the 95% interval."},
		{
			"contain-ed/figure-5", "bn1e-sp1r-hs1d/impairment=ideal goodput.peak", turns,
			"In brackets: the 95% interval. goodput.peak: the mean of each deployment's highest goodput at any rate. " +
				"The rows were measured in turns, and a statement about two rows is judged by the ratios within turns.",
		},
		{
			"nfv-vital/figure-2", "bn1m-sp1m-hs1m cpu.swing.sprout@over", one,
			"In brackets: the 95% interval. In parentheses: the paper's figure, whose vCPU is a whole core.",
		},
		{
			"container-networking/figure-3", "docker/direct rtt.mean@64", one,
			"In brackets: the 95% interval over repeats. @64: of frames of 64 bytes without the frame check sequence.",
		},
		{
			"container-networking/table-1", "process/direct jitter.mean", one,
			"In brackets: the 95% interval over repeats. In parentheses: the paper's figure. Frame sizes do not count the frame check sequence.",
		},
		{
			"container-networking/figure-8", "docker/bridge/packet rtt.mean@3", one,
			"In brackets: the 95% interval over repeats. In parentheses: the paper's figure. @3: of three forwarders.",
		},
		{
			"container-networking/table-3", "docker/bridge/packet rtt.r2", one,
			"In brackets: the 95% interval over repeats. In parentheses: the paper's figure.",
		},
	} {
		e, err := Find(tt.exhibit)
		if err != nil {
			t.Fatal(err)
		}
		r := newReadings()
		r.of[tt.name] = tt.x
		if got := e.legend(r); got != tt.want {
			t.Errorf("%s with %s:\n%s\nwant\n%s", tt.exhibit, tt.name, got, tt.want)
		}
	}
}

func TestRowsSayWhatTheyStandFor(t *testing.T) {
	table := Table{Columns: []string{"x"}, Rows: []Row{
		{On: "a", Stands: "no throttling"}, {On: "marked"}, {On: "marked", Stands: "Xen"}, {On: "d", Stands: "Xen"},
	}}
	want := []string{
		"", "a (in the paper: no throttling)", "marked (emulated (tcg): not comparable)",
		"marked (emulated (tcg): not comparable; in the paper: Xen)", "d (in the paper: Xen)",
	}
	for i, line := range table.grid(testReadings()) {
		if line[0] != want[i] {
			t.Errorf("row %d: %q, want %q", i, line[0], want[i])
		}
	}
}

// TestLongReasonsAreNotes checks that a long reason is printed once, beside its only row or as a note.
func TestLongReasonsAreNotes(t *testing.T) {
	repeated := "no network card: " + strings.Repeat("x", longReason)
	once := "no kernel module: " + strings.Repeat("y", longReason)
	r := newReadings()
	r.of["docker/bridge rtt"] = reading(2, 1, 3)
	r.missing["docker/sriov"], r.missing["docker/ovs"] = repeated, once
	e := Exhibit{
		Table:  Table{Columns: []string{"rtt"}, Rows: []Row{{On: "docker/bridge"}, {On: "docker/sriov"}, {On: "docker/ovs"}}},
		Claims: []Claim{{Says: "SR-IOV takes less", Less: "docker/sriov rtt", More: "docker/bridge rtt"}},
	}
	var b strings.Builder
	if err := e.Text(&b, r, e.Judge(r, "")); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"not measured: " + once, "not judged: docker/sriov: not measured: note 1", "\nNote 1: " + repeated + ".\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, why := range []string{repeated, once} {
		if n := strings.Count(text, why); n != 1 {
			t.Errorf("%q is printed %d times in\n%s", why, n, text)
		}
	}
}

// TestPrintedIntervalsEndAtZero checks that an interval is printed from 0 on, unless the quantity can be
// or is negative.
func TestPrintedIntervalsEndAtZero(t *testing.T) {
	for _, tt := range []struct {
		name string
		x    Reading
		want string
	}{
		{"qemu/direct rtt.mean@64", reading(3520, -195.4, 7236), "3520 [0.00, 7236]"},
		{"qemu/direct rtt.mean@64", reading(3520, 3000, 4040), "3520 [3000, 4040]"},
		{"docker/ovs/packet rtt.slope", reading(0.1, -0.2, 0.4), "0.100 [-0.200, 0.400]"},
		{"docker/ovs cpu.total", reading(-5, -6, -4), "-5.00 [-6.00, -4.00]"},
	} {
		if got := tt.x.text(tt.name); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
