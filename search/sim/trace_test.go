package sim_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// recorded returns a ramp over a function whose deployments differ.
func recorded(t *testing.T) []vitrine.Outcome {
	f := sim.IMS(5)
	f.Collapse = 1
	f.Noise = sim.Noise{Deployment: 0.04, Second: 0.03, Hold: 0.7, Use: 0.02}
	cfg := rate.Config{Min: 100, Max: 1000, Increase: 50, Duration: 20 * time.Second, Repeat: 5, Thresholds: []float64{0.9}}
	var all []vitrine.Outcome
	for _, name := range []string{"bn1s-sp1s-hs1s", "bn1m-sp1m-hs1m"} {
		_, history := f.Measure(parse(t, name), rate.NewRamp(cfg), cfg)
		all = append(all, history...)
	}
	return all
}

func trace(t *testing.T) *sim.Trace {
	t.Helper()
	tr, err := sim.NewTrace(recorded(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTraceHasTheRecordedCapacity(t *testing.T) {
	tr, f := trace(t), sim.IMS(5)
	f.Collapse = 1
	if len(tr.Sizings()) != 2 || tr.Resources(tr.Sizings()[0]).VCPUs != 3 {
		t.Fatalf("%v", tr.Sizings())
	}
	for _, sizing := range tr.Sizings() {
		for _, threshold := range []float64{0.9, 0.8} {
			got, want := tr.Capacity(sizing, threshold), f.Capacity(sizing, threshold)
			if math.Abs(math.Log(got/want)) > 0.06 {
				t.Errorf("%s at %g: %g of the trace, %g of the function", sizing, threshold, got, want)
			}
		}
	}
	if c := tr.Capacity(parse(t, "bn9s"), 0.9); c != 0 {
		t.Errorf("a sizing that was not recorded carries %g", c)
	}
}

// TestTraceInterpolates checks that calls succeed as often as recorded, at and
// between recorded rates. Beyond them the goodput stays.
func TestTraceInterpolates(t *testing.T) {
	tr := trace(t)
	sizing := tr.Sizings()[0]
	mean := func(rate float64) float64 {
		total := 0.0
		for repeat := range 200 {
			o := tr.Deploy(sizing, repeat, 0).Run(sim.Trial{Sizing: sizing, Rate: rate, Duration: 10 * time.Second, Repeat: repeat})
			if len(o.Seconds) != 10 || o.Scheduled != o.Succeeded+o.FailedTotal() {
				t.Fatalf("%+v", o)
			}
			total += o.SuccessRatio() / 200
		}
		return total
	}
	if at := mean(tr.Capacity(sizing, 0.8)); math.Abs(at-0.8) > 0.01 {
		t.Errorf("%.3f succeed at the capacity for 0.8", at)
	}
	if at, beyond := mean(1000), mean(2000); math.Abs(beyond-at/2) > 0.01 {
		t.Errorf("%.3f succeed at the highest rate, %.3f at twice that", at, beyond)
	}
	if at := mean(10); at < 0.999 {
		t.Errorf("%.3f succeed below all rates", at)
	}
	o := tr.Deploy(sizing, 1, 0).Run(sim.Trial{Sizing: sizing, Rate: 225, Duration: time.Second, Repeat: 1})
	if cpu := *o.Use["sprout-1"].CPU; math.Abs(cpu-225.0/320) > 0.06 {
		t.Errorf("sprout uses %g CPUs at 225", cpu)
	}
}

func TestTraceKeepsADeploymentsLuck(t *testing.T) {
	tr := trace(t)
	sizing := tr.Sizings()[0]
	within, among := 0.0, 0.0
	run := func(repeat, attempt int) float64 {
		return tr.Deploy(sizing, repeat, 0).Run(sim.Trial{Sizing: sizing, Rate: 450, Duration: 20 * time.Second, Repeat: repeat, Attempt: attempt}).SuccessRatio()
	}
	for repeat := range 100 {
		within += math.Abs(run(repeat, 1) - run(repeat, 2))
		among += math.Abs(run(repeat, 1) - run(repeat+1, 1))
	}
	if among < 1.5*within {
		t.Errorf("trials of one deployment differ by %.3f, those of two by %.3f", within/100, among/100)
	}
}

func TestSearchesRunOnATrace(t *testing.T) {
	tr := trace(t)
	cfg := rate.Config{Min: 100, Max: 600, Increase: 10, Duration: 10 * time.Second, Repeat: 3, Thresholds: []float64{0.9}}
	m := sim.Drive(tr, tr.Sizings()[0], rate.NewBisect(cfg), cfg, sim.Costs{}, 1000)
	if truth := tr.Capacity(m.Sizing, 0.9); math.Abs(math.Log(m.Capacities[0].Rate/truth)) > 0.1 {
		t.Errorf("found %+v, recorded %g", m.Capacities[0], truth)
	}
}

func TestTraceRefusesWhatItCannotReplay(t *testing.T) {
	good := recorded(t)
	for want, spoil := range map[string]func(o []vitrine.Outcome) []vitrine.Outcome{
		"no valid trial":       func([]vitrine.Outcome) []vitrine.Outcome { return nil },
		"two rates":            func(o []vitrine.Outcome) []vitrine.Outcome { return o[:1] },
		"one choice of option": func(o []vitrine.Outcome) []vitrine.Outcome { o[3].Options = "pinning=on"; return o },
		"not a sizing":         func(o []vitrine.Outcome) []vitrine.Outcome { o[0].Subject = "9"; return o },
	} {
		_, err := sim.NewTrace(spoil(append([]vitrine.Outcome(nil), good...)), 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestSearchesOnTheRecordedIMS uses 734 trials of the reference IMS at 51 sizes
// (catalog/ims-reference/trace). For most sizes, adaptive finds the capacity of
// the recorded ramp within a quarter. The deployments of a small size differ by
// more than that.
func TestSearchesOnTheRecordedIMS(t *testing.T) {
	file, err := os.Open("../../catalog/ims-reference/trace/outcomes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []vitrine.Outcome
	for lines := json.NewDecoder(file); ; {
		var o vitrine.Outcome
		if err := lines.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	tr, err := sim.NewTrace(all, 1)
	if err != nil || len(tr.Sizings()) != 51 {
		t.Fatalf("%d sizings: %v", len(tr.Sizings()), err)
	}
	near := 0
	var load time.Duration
	for _, sizing := range tr.Sizings() {
		cfg := rate.Config{Min: 45, Max: 900, Duration: 2 * time.Second, Repeat: 3, Precision: 0.2, Thresholds: []float64{0.9}}
		m := sim.Drive(tr, sizing, rate.NewAdaptive(cfg), cfg, sim.Costs{}, 1000)
		if math.Abs(math.Log(m.Capacities[0].Rate/tr.Capacity(sizing, 0.9))) < 0.25 {
			near++
		}
		load += m.Load
	}
	t.Logf("%d of 51 near, %v of load", near, load)
	if near < 42 {
		t.Errorf("%d of 51 capacities are near", near)
	}
}
