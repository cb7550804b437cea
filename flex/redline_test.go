package flex

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/latency"
	"vitrine/flex/decide"
	"vitrine/flex/unit"
	"vitrine/redline"
)

// A sharingDirector shares a type's rate among its active instances and reports them as up.
type sharingDirector struct {
	*fakeDirector
	rates map[string]float64 // by type
	slow  bool               // all transactions fail
	late  bool               // one transaction of 60 takes a second
	asked time.Time
	begun map[string]float64
}

func (d *sharingDirector) Types(context.Context) (all []client.Type, err error) {
	for _, name := range slices.Sorted(maps.Keys(d.rates)) {
		all = append(all, client.Type{Name: name})
	}
	return all, d.err
}

func (d *sharingDirector) Instances(ctx context.Context) ([]client.Instance, error) {
	list, err := d.fakeDirector.Instances(ctx)
	active := map[string]float64{}
	for i := range list {
		if list[i].State == vitrine.Active {
			active[list[i].Type]++
		}
	}
	passed := time.Since(d.asked).Seconds()
	for i := range list {
		in := &list[i]
		in.Health = "up"
		if in.State == vitrine.Active && !d.asked.IsZero() {
			d.begun[in.Name] += d.rates[in.Type] / active[in.Type] * passed
		}
		in.Transactions = uint64(d.begun[in.Name])
		in.Ended = map[string]uint64{"succeeded": in.Transactions}
		if d.slow {
			in.Ended = map[string]uint64{"failed": in.Transactions}
		}
		if d.late {
			in.Latencies = latency.Histogram{} // earlier readings share the old one
			in.Latencies.Add(latency.Bucket(1_000_000), in.Transactions/60)
			in.Latencies.Add(latency.Bucket(10_000), in.Transactions-in.Transactions/60)
		}
	}
	d.asked = time.Now()
	return list, err
}

// A costlyRunner adds the CPU use of a member to a runner's units.
type costlyRunner struct {
	*fakeRunner
	cpus float64
}

func (r *costlyRunner) Units(ctx context.Context) ([]unit.Unit, error) {
	all, err := r.fakeRunner.Units(ctx)
	for i := range all {
		all[i].Members = []unit.Member{{Name: "sprout", VCPUs: 1, CPU: new(r.cpus)}}
	}
	return all, err
}

// A redlineRig is a rig whose types are measured.
type redlineRig struct {
	*rig
	director *sharingDirector
	runner   *costlyRunner
	takes    time.Duration // duration of a measurement
	result   redline.Result

	mu      sync.Mutex        // guards the fields below, because the measurement of a killed orchestrator may still run
	options []redline.Options // options of the measurements so far
	under   int
	most    int // highest number of concurrent measurements
}

const redlineType = "    min: 2\n    objective: {p99: 100ms, success: 0.99}\n    redline: {every: 20m, drift: 0.2}\n"

func newRedlineRig(t *testing.T, more string) *redlineRig {
	r := &redlineRig{rig: newRig(t, more), takes: time.Minute}
	r.director = &sharingDirector{fakeDirector: r.rig.director, rates: map[string]float64{"registration": 45}, begun: map[string]float64{}}
	r.runner = &costlyRunner{fakeRunner: r.rig.runner, cpus: 0.15}
	r.result = redline.Result{Verdict: redline.Within, Rate: 23, Low: 21, High: 25, Steps: []redline.Step{{Rate: 15, CPU: 0.15}, {Rate: 20, CPU: 0.2}}}
	r.wire()
	return r
}

// wire connects the fakes to the orchestrator, which a restart replaces.
func (r *redlineRig) wire() {
	r.Directors, r.Runner = []Director{r.director}, r.runner
	r.Redline = func(ctx context.Context, o redline.Options) (redline.Result, error) {
		defer r.change(-1, nil)
		after := time.After(r.change(1, &o))
		select {
		case <-ctx.Done():
			return redline.Result{Verdict: redline.Aborted, Why: context.Cause(ctx).Error()}, context.Cause(ctx)
		case <-after:
			return r.result, nil
		}
	}
}

// change counts the start or the end of a measurement. It returns the duration of a measurement.
func (r *redlineRig) change(by int, begun *redline.Options) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under += by
	r.most = max(r.most, r.under)
	if begun != nil {
		r.options = append(r.options, *begun)
	}
	return r.takes
}

// measurements returns how many measurements have begun.
func (r *redlineRig) measurements() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.options)
}

func (r *redlineRig) status() *RedlineStatus { return r.Status().Types[0].Redline }

// TestMeasuredCapacityCounts checks that a type is measured as soon as possible and that the policy
// uses the result. Both must survive a restart. A new capacity in the file must replace the result.
func TestMeasuredCapacityCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, redlineType)
		r.run(5 * time.Minute)
		if len(r.options) != 1 || r.options[0].Min != 2 || r.options[0].Type != "registration" || !r.has(EventMeasure, "not measured before") {
			t.Fatalf("got %d measurements: %+v", len(r.options), r.Events())
		}
		s := r.status()
		if s.Last == nil || s.Last.After != 21 || s.Last.Cause != causeFirst || s.Next == nil || s.Last.Cost.Each == 0 {
			t.Errorf("%+v", s)
		}
		if y := r.Status().Types[0]; y.Capacity != 3*21 || r.director.all["registration-1"].Weight != 21 {
			t.Errorf("got capacity %g, weight %g, want 63 and 21", y.Capacity, r.director.all["registration-1"].Weight)
		}
		again := func() {
			t.Helper()
			r.restart()
			r.wire()
			r.run(20 * time.Second)
		}
		again()
		if y := r.Status().Types[0]; y.Capacity != 3*21 || y.Redline.Last == nil || len(r.options) != 1 {
			t.Errorf("after a restart: got capacity %g, %+v, %d measurements", y.Capacity, y.Redline, len(r.options))
		}
		r.run(20 * time.Minute)
		e, err := r.Explain("registration")
		if err != nil || len(e.Measured) != 2 || e.Measured[1].Cause != causeSchedule {
			t.Errorf("%+v, %v", e.Measured, err)
		}
		all, err := Histories(r.File.State)
		if err != nil || len(all["registration"]) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
		text, err := os.ReadFile(r.file)
		if err == nil {
			err = os.WriteFile(r.file, bytes.Replace(text, []byte("rate: 20"), []byte("rate: 25"), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		again()
		if y := r.Status().Types[0]; y.Capacity != 3*25 || !r.has(EventMeasured, "the file has another capacity") {
			t.Errorf("with another rate in the file: got capacity %g, want 75", y.Capacity)
		}
	})
}

// TestAMeasurementWaits checks the conditions under which a measurement waits.
func TestAMeasurementWaits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*redlineRig)
		want   string
	}{
		"few healthy others": {func(r *redlineRig) { r.director.rates["registration"] = 30 }, "1 healthy instances beside"},
		"broken objective":   {func(r *redlineRig) { r.director.slow = true }, "objective"},
		"scaling":            {func(r *redlineRig) { r.runner.boot = 90 * time.Second }, "scaling is under way"},
		"unknown rate":       {func(r *redlineRig) { r.director.err = errors.New("no route to host") }, "not known"},
		"overload at the maximum": {func(r *redlineRig) { r.director.rates["registration"], r.director.slow = 200, true },
			"objective"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRedlineRig(t, redlineType)
				c.change(r)
				r.run(80 * time.Second)
				if s := r.status(); !strings.Contains(s.Waits, c.want) || len(r.options) > 0 {
					t.Errorf("redline waits for %q after %d measurements", s.Waits, len(r.options))
				}
			})
		})
	}
}

// TestATypeAtALimitIsMeasured gives a type more load than its instances carry by the file, and no room for another
// one. They meet the objective, so the capacity in the file may be too low, and only a measurement shows that.
func TestATypeAtALimitIsMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		limit string
	}{
		"max":                 {200, ""},
		"limits of all types": {70, "limits: {instances: 3}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRedlineRig(t, redlineType+c.limit)
				r.director.rates["registration"] = c.rate
				r.run(2 * time.Minute)
				if s := r.status(); r.measurements() != 1 || s.Last == nil || s.Last.Verdict != redline.Within || s.Last.After != 21 {
					t.Errorf("got %d measurements, status %+v, want one to its end: %+v", r.measurements(), s, r.Events())
				}
			})
		})
	}
}

// TestALateTransactionDelaysNoMeasurement lets each instance have one or two late transactions in each window
// of 75. Chance explains so few.
func TestALateTransactionDelaysNoMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, redlineType)
		r.director.late = true
		r.run(time.Minute)
		if n := r.measurements(); n != 1 {
			t.Errorf("got %d measurements, want 1: %+v", n, r.Events())
		}
	})
}

// TestLoadEndsAMeasurement checks that a type that needs more instances gets them. The measurement
// must end and be planned again after a pause.
func TestLoadEndsAMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, redlineType)
		r.takes = 10 * time.Minute
		r.orchestrate(time.Minute)
		defer r.endRedline()
		if s := r.status(); s.Under == nil || !r.Status().Types[0].Leased {
			t.Fatalf("%+v", s)
		}
		starts := len(r.runner.starts)
		r.director.rates["registration"] = 70
		r.orchestrate(30 * time.Second)
		if !r.has(EventMeasured, "the type needs more instances") || len(r.runner.starts) != starts+1 {
			t.Errorf("got %d starts: %+v", len(r.runner.starts)-starts, r.Events())
		}
		if s := r.status(); s.Under != nil || s.Last.Verdict != redline.Aborted || s.Last.After != 20 || s.Next == nil {
			t.Errorf("%+v", s)
		}
	})
}

// TestTheClockIsSetDuringAMeasurement checks that the length of a measurement is not a difference of wall clock times.
func TestTheClockIsSetDuringAMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, redlineType)
		r.orchestrate(time.Minute)
		defer r.endRedline()
		if r.measuring == nil {
			t.Fatalf("no measurement is under way: %+v", r.status())
		}
		r.measuring.entry.At = r.measuring.entry.At.Add(-time.Hour) // as if the clock had been set forward since
		r.orchestrate(time.Minute)
		if s := r.status(); s.Last == nil || s.Last.Seconds < 60 || s.Last.Seconds > 62 {
			t.Errorf("got %+v, want a measurement of a minute", s.Last)
		}
	})
}

// TestADeathEndsAMeasurement checks that a measurement ends when an instance of the type dies, although the
// others carry the load.
func TestADeathEndsAMeasurement(t *testing.T) {
	for name, die := range map[string]func(*redlineRig){
		"a member ends": func(r *redlineRig) {
			u := r.runner.units["registration-2"]
			u.State, u.Reason = unit.Failed, "exit status 1"
			r.runner.units[u.Name] = u
		},
		"its unit is gone": func(r *redlineRig) { delete(r.runner.units, "registration-2") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRedlineRig(t, redlineType)
				r.takes = 10 * time.Minute
				r.orchestrate(time.Minute)
				defer r.endRedline()
				r.director.rates["registration"] = 30
				r.orchestrate(30 * time.Second)
				if s := r.status(); s.Under == nil {
					t.Fatalf("no measurement is under way: %+v", s)
				}
				die(r)
				r.orchestrate(10 * time.Second)
				if s := r.status(); s.Under != nil || s.Last.Verdict != redline.Aborted || !r.has(EventMeasured, "an instance of the type died") {
					t.Errorf("got %+v: %+v", s, r.Events())
				}
			})
		})
	}
}

// orchestrate steps once a second. Unlike run, it does not end the orchestrator afterwards.
func (r *redlineRig) orchestrate(d time.Duration) {
	for range int(d.Seconds()) {
		r.step(r.t.Context())
		time.Sleep(time.Second)
	}
}

// TestAKilledOrchestratorsMeasurementIsOver checks that the history has a measurement that was
// interrupted by the orchestrator's death. The measurement must be tried again after a pause.
func TestAKilledOrchestratorsMeasurementIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, redlineType)
		r.takes = time.Hour
		r.orchestrate(time.Minute)
		killed := r.Orchestrator
		defer killed.endRedline()
		r.restart()
		r.wire()
		r.mu.Lock()
		r.takes = time.Minute
		r.mu.Unlock()
		r.run(time.Minute)
		if s := r.status(); s.Under != nil || s.Last == nil || s.Last.Verdict != redline.Aborted || !r.has(EventMeasured, "was killed") || r.measurements() != 1 {
			t.Errorf("got status %+v after %d measurements", s, r.measurements())
		}
		r.run(15 * time.Minute)
		if s := r.status(); r.measurements() != 2 || s.Last.Verdict != redline.Within {
			t.Errorf("got status %+v after %d measurements, want 2", s, r.measurements())
		}
	})
}

// TestTypesAreMeasuredOneAtATime checks that two types are both measured, and not at the same time. Both
// have their instances on one host. The director does not have the third type.
func TestTypesAreMeasuredOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deployment := "config/testdata/deployment.yaml"
		wd, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		another := func(name string) string {
			return "  - name: " + name + "\n    deployment: " + wd + "/" + deployment + "\n    flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: 20}]\n    max: 4\n"
		}
		r := newRedlineRig(t, redlineType+another("session")+redlineType+another("unknown-to-director"))
		r.director.rates["session"] = 45
		r.run(10 * time.Minute)
		if len(r.options) != 2 || r.most != 1 || r.options[0].Type == r.options[1].Type {
			t.Fatalf("got %d measurements, %d at the same time", len(r.options), r.most)
		}
		if both := []string{"registration", "session"}; !slices.Equal(r.options[0].Beside, both) {
			t.Errorf("redline records the load of types %v, want those of the file that the director has: %v", r.options[0].Beside, both)
		}
	})
}

// TestDriftCausesAMeasurement checks that CPU use that departs from the profile causes exactly one
// measurement.
func TestDriftCausesAMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, strings.Replace(redlineType, "every: 20m, ", "", 1))
		r.run(30 * time.Minute)
		if ratio := r.status().Ratio; len(r.options) != 1 || ratio == nil || *ratio < 0.9 || *ratio > 1.1 {
			t.Fatalf("got %d measurements, ratio %v", len(r.options), ratio)
		}
		r.runner.cpus = 0.3
		for i := range r.result.Steps {
			r.result.Steps[i].CPU *= 2
		}
		r.run(50 * time.Minute)
		s := r.status()
		if len(r.options) != 2 || s.Last.Cause != causeDrift || !strings.Contains(s.Last.Reason, "200%") {
			t.Errorf("got %d measurements, the last is %+v", len(r.options), s.Last)
		}
	})
}

// TestAQuietNightIsNoDrift measures an instance in two steps, which do not show its CPU use without load, and then
// lets the load fall to a tenth. The idle use in the CPU time of each transaction must not count as drift.
func TestAQuietNightIsNoDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle, each = 0.03, 0.01
		r := newRedlineRig(t, strings.Replace(redlineType, "every: 20m, ", "", 1))
		for i := range r.result.Steps {
			r.result.Steps[i].CPU = idle + each*r.result.Steps[i].Rate
		}
		r.runner.cpus = idle + each*15
		r.run(30 * time.Minute)
		r.director.rates["registration"], r.runner.cpus = 4.5, idle+each*4.5/2
		r.run(time.Hour)
		ratio, ok := r.profiles["registration"].drifts.median()
		if s := r.status(); r.measurements() != 1 || s.Waits != "" || !ok || ratio < 0.9 || ratio > 1.1 {
			t.Errorf("got %d measurements, ratio %g, want 1, and none that is due: %+v", r.measurements(), ratio, s)
		}
	})
}

// TestDriftIsCountedAnewAfterAMeasurement checks that a measurement that finds no CPU time of a
// transaction does not begin again at once.
func TestDriftIsCountedAnewAfterAMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, strings.Replace(redlineType, "every: 20m, ", "", 1))
		r.run(30 * time.Minute)
		r.runner.cpus = 0.3
		r.result = redline.Result{Verdict: redline.AtLeast, Rate: 15, Low: 15, Steps: []redline.Step{{Rate: 15}}}
		r.run(50 * time.Minute)
		if s := r.status(); len(r.options) != 2 || s.Last.Cause != causeDrift {
			t.Errorf("got %d measurements, want 2; the last is %+v", len(r.options), s.Last)
		}
	})
}

// TestCostIsMeasuredAfterAnEdit edits the capacity in a file. The measured CPU time of a transaction is then
// gone, so drift could not be seen without another measurement, also if the next one of every is far away.
func TestCostIsMeasuredAfterAnEdit(t *testing.T) {
	for _, every := range []string{"", "every: 168h, "} {
		t.Run(every, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRedlineRig(t, strings.Replace(redlineType, "every: 20m, ", every, 1))
				r.run(30 * time.Minute)
				if n := r.measurements(); n != 1 {
					t.Fatalf("got %d measurements before the edit, want 1", n)
				}
				r.edit("rate: 20", "rate: 25")
				r.restart()
				r.wire()
				r.run(30 * time.Minute)
				if s := r.status(); r.measurements() != 2 || s.Last.Cause != causeFirst || s.Ratio == nil {
					t.Errorf("got %d measurements, the last is %+v, ratio %v", r.measurements(), s.Last, s.Ratio)
				}
			})
		})
	}
}

// TestAnotherObjectiveIsMeasuredAnew edits the objective in the file. The capacity that was measured for the
// old one must not count any more, and a measurement must begin.
func TestAnotherObjectiveIsMeasuredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, redlineType)
		r.run(5 * time.Minute)
		if y := r.Status().Types[0]; y.Capacity != 3*21 {
			t.Fatalf("before the edit: got capacity %g, want 63", y.Capacity)
		}
		r.edit("p99: 100ms", "p99: 50ms")
		r.restart()
		r.wire()
		r.run(20 * time.Second)
		if y := r.Status().Types[0]; y.Capacity != 3*20 || !r.has(EventMeasured, "another objective") {
			t.Errorf("got capacity %g, want the 60 of the file: %+v", y.Capacity, r.Events())
		}
		if n := r.measurements(); n != 2 || r.options[1].Objective.Latency != 50*time.Millisecond {
			t.Errorf("got %d measurements, want a second one with the new objective", n)
		}
	})
}

// TestAnOlderProfileIsKept reads a profile of an earlier version, which has no objective.
func TestAnOlderProfileIsKept(t *testing.T) {
	p := Profile{Measured: map[string]float64{"s": 30}, Next: time.Unix(1e9, 0)}
	o := decide.Objective{P99: time.Second, Success: 0.99}
	if p.aim(o) || p.aim(decide.Objective{}) || len(p.Measured) != 1 || p.Next.IsZero() {
		t.Errorf("got %+v, want it unchanged", p)
	}
	o.Success = 0.999
	if !p.aim(o) || len(p.Measured) != 0 || !p.Next.IsZero() {
		t.Errorf("with another objective: got %+v, want a measurement that is due", p)
	}
}

// TestASizeComesBackWithAnotherCapacity takes a size out of the file and puts it back. Its measured capacity must
// count again only with the old capacity in the file.
func TestASizeComesBackWithAnotherCapacity(t *testing.T) {
	for rate, known := range map[float64]bool{20: true, 12: false} {
		var p Profile
		p.meet(map[string]float64{"s": 20})
		p.Measured["s"], p.Costs["s"] = 35, Cost{Each: 0.01}
		p.meet(map[string]float64{"m": 50})
		changed := p.meet(map[string]float64{"s": rate})
		if _, measured := p.Measured["s"]; measured != known || len(p.Costs) != len(p.Measured) || slices.Contains(changed, "s") == known {
			t.Errorf("%g/s in the file: got changed sizes %q, measured %v, want the old capacity only if %t", rate, changed, p.Measured, known)
		}
	}
}

// TestATypeOutsideTheFileKeepsItsProfile reads a state with the profile of a type that is not in the file
// now. The state that replaces it must have the profile too.
func TestATypeOutsideTheFileKeepsItsProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		const before = `{"version": 1, "memory": {}, "profiles": {"commented-out": {"measured": {"s": 30}, "history": [{"size": "s", "verdict": "within"}]}}}`
		path := filepath.Join(r.File.State, StateFile)
		if err := errors.Join(r.Close(), os.WriteFile(path, []byte(before), 0o600)); err != nil {
			t.Fatal(err)
		}
		r.begin()
		r.run(10 * time.Second)
		s, err := readState(r.File.State)
		if err != nil || len(s.Instances) == 0 {
			t.Fatalf("the orchestrator did not write its state: %+v, %v", s, err)
		}
		if p := s.Profiles["commented-out"]; p == nil || p.Measured["s"] != 30 || len(p.History) != 1 {
			t.Errorf("got the profile %+v, want it kept", p)
		}
	})
}

// TestAShorterEveryCounts edits every. The next measurement must not wait for the old time.
func TestAShorterEveryCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, strings.Replace(redlineType, "every: 20m", "every: 168h", 1))
		r.run(5 * time.Minute)
		r.edit("every: 168h", "every: 20m")
		r.restart()
		r.wire()
		r.run(25 * time.Minute)
		if n := r.measurements(); n != 2 {
			t.Errorf("got %d measurements, want 2", n)
		}
	})
}

// TestWhatAResultDoesToTheCapacity checks the capacity in use after each kind of result.
func TestWhatAResultDoesToTheCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		result redline.Result
		want   float64
	}{
		"an interval":          {redline.Result{Verdict: redline.Within, Rate: 30, Low: 28, High: 33}, 28},
		"a lower one":          {redline.Result{Verdict: redline.Within, Rate: 10, Low: 8, High: 12}, 8},
		"a bound from below":   {redline.Result{Verdict: redline.AtLeast, Rate: 25, Low: 25}, 25},
		"a bound that is low":  {redline.Result{Verdict: redline.AtLeast, Rate: 15, Low: 15}, 20},
		"not identifiable":     {redline.Result{Verdict: redline.NotIdentifiable}, 20},
		"a fault":              {redline.Result{Verdict: redline.Aborted, Rate: 9, Low: 9}, 20},
		"below what it serves": {redline.Result{Verdict: redline.Below, High: 15}, 20},
	} {
		m := Measured{Before: 20, After: 20}
		m.adopt(&c.result, 0)
		if m.After != c.want || m.String() == "" {
			t.Errorf("%s: got %g, want %g: %s", name, m.After, c.want, &m)
		}
	}
}

// TestLessLoadOnTheHostIsShown checks that a result says how much less load the other instances on the
// host had. A step that does not count does not count for that either.
func TestLessLoadOnTheHostIsShown(t *testing.T) {
	m := Measured{Before: 20, After: 20}
	m.adopt(&redline.Result{Verdict: redline.Within, Rate: 30, Low: 28, High: 33, Steps: []redline.Step{
		{Neighbours: 50}, {Neighbours: 40}, {Neighbours: 30}, {Neighbours: 5, Invalid: "a director reset its counters"},
	}}, 0)
	if got := m.String(); !strings.Contains(got, "while the other instances on the host had 40% less load") {
		t.Errorf("got %q, want 40%% less load", got)
	}
}

// TestHistoryIsBounded checks the bound of the history. A reader's copy of old entries must not
// change, and pauses after failures must grow.
func TestHistoryIsBounded(t *testing.T) {
	var p Profile
	p.meet(map[string]float64{"s": 20})
	now := time.Unix(1e9, 0)
	p.add(&Measured{Verdict: redline.Aborted, Why: "first"}, now, 0)
	seen := p.History
	pause := p.Next.Sub(now)
	for range 2 * mostMeasured {
		p.add(&Measured{Verdict: redline.Aborted}, now, 0)
	}
	if len(p.History) != mostMeasured || seen[0].Why != "first" || pause != firstRetry || p.Next.Sub(now) != longestRetry {
		t.Errorf("%d entries, %+v, %s, %s", len(p.History), seen[0], pause, p.Next.Sub(now))
	}
}
