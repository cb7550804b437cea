package decide_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vitrine/flex/decide"
)

// A world carries out actions in simulated seconds. A start takes boot and a drain takes drain. The
// active instances share the rate in proportion to their capacities.
type world struct {
	t     *testing.T
	now   time.Time
	boot  time.Duration
	drain time.Duration // 5 s, unless the test changes it
	truth float64       // share of the profile's capacity that instances really carry
	load  func(name string, second int) float64
	noise *rand.Rand // nil: rates without noise

	types     []decide.TypeView
	limits    decide.Limits
	instances []decide.Instance
	memory    decide.Memory
	restart   int                  // seconds from one restart of the orchestrator to the next; 0: none
	alter     func(v *decide.View) // changes what Decide sees
	die       func(in *decide.Instance, active time.Duration) bool

	second  int
	named   int
	booted  []decide.Booted
	died    []decide.Died
	started map[string]int // by type
	drained map[string]int
	log     []decide.Action // all actions except holds
	holds   map[decide.Cause]int
	short   int // seconds in which the active instances carried less than the mean rate
}

func newWorld(t *testing.T, boot time.Duration, load func(string, int) float64, types ...decide.Type) *world {
	w := &world{t: t, now: time.Unix(1_800_000_000, 0), boot: boot, drain: 5 * time.Second, truth: 1, load: load,
		started: map[string]int{}, drained: map[string]int{}, holds: map[decide.Cause]int{}}
	for _, z := range types {
		w.types = append(w.types, decide.TypeView{Type: z, Known: true})
	}
	return w
}

// constant returns a constant load.
func constant(rate float64) func(string, int) float64 {
	return func(string, int) float64 { return rate }
}

// simple returns a type with one flavor.
func simple(minimum, maximum int, capacity float64) decide.Type {
	return decide.Type{Name: "register", Min: minimum, Max: maximum,
		Objective: decide.Objective{P99: 100 * time.Millisecond, Success: 0.99},
		Flavors:   []decide.Flavor{{Name: "s", Capacity: capacity, CPUs: 1}}}
}

func (w *world) run(seconds int) {
	w.t.Helper()
	for range seconds {
		w.step()
	}
}

func (w *world) step() {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	w.second++
	w.age()
	v := decide.View{Now: w.now, Types: w.types, Instances: w.instances, Limits: w.limits, Booted: w.booted, Died: w.died}
	w.booted, w.died = nil, nil
	for i := range w.types {
		w.serve(&w.types[i])
	}
	if w.alter != nil {
		w.alter(&v)
	}
	if w.restart > 0 && w.second%w.restart == 0 {
		w.reload()
	}
	actions := decide.Decide(v, &w.memory)
	w.check(actions)
	for _, a := range actions {
		w.do(a)
	}
}

// reload writes the memory and reads it again, as a restart of the orchestrator does.
func (w *world) reload() {
	text, err := json.Marshal(w.memory)
	if err != nil {
		w.t.Fatal(err)
	}
	w.memory = decide.Memory{}
	if err := json.Unmarshal(text, &w.memory); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) age() {
	kept := w.instances[:0]
	for _, in := range w.instances {
		age := w.now.Sub(in.Since)
		switch in.State {
		case decide.Starting:
			if w.die != nil && age >= w.boot/2 && w.die(&in, 0) {
				w.died = append(w.died, decide.Died{Type: in.Type, Reason: "exit status 1"})
				in.State, in.Since = decide.Failed, w.now
			} else if age >= w.boot {
				w.booted = append(w.booted, decide.Booted{Type: in.Type, Took: age})
				in.State, in.Since, in.Known, in.Success = decide.Active, w.now, true, 1
			}
		case decide.Active:
			if w.die != nil && w.die(&in, age) {
				w.died = append(w.died, decide.Died{Type: in.Type, Lived: age, Reason: "killed"})
				in.State, in.Since = decide.Failed, w.now
			}
		case decide.Draining:
			if age >= w.drain {
				in.State, in.Since = decide.Drained, w.now
			}
		case decide.Stopping:
			continue
		}
		kept = append(kept, in)
	}
	w.instances = kept
}

// serve shares the type's rate among its active instances.
func (w *world) serve(z *decide.TypeView) {
	rate := w.load(z.Name, w.second)
	if w.noise != nil {
		rate = poisson(w.noise, rate)
	}
	z.Rate, z.Refused = rate, 0
	carried := w.capacity(z.Name, decide.Active)
	if carried < w.load(z.Name, w.second) {
		w.short++
	}
	if carried == 0 {
		z.Refused = rate
		return
	}
	for i := range w.instances {
		in := &w.instances[i]
		if in.Type != z.Name || in.State != decide.Active {
			continue
		}
		in.Rate = rate * w.flavor(in.Type, in.Flavor).Capacity / carried
		in.InFlight = int(in.Rate/10) + i%3
		use := rate / (carried * w.truth)
		in.CPU, in.CPUKnown, in.P99, in.Success, in.Served = min(1, 0.8*use), true, 20*time.Millisecond, 1, true
		if use > 1 {
			in.P99, in.Success = 500*time.Millisecond, 1/use
		}
	}
}

// capacity returns the profile's total capacity of a type's instances in the given states.
func (w *world) capacity(name string, states ...decide.State) (sum float64) {
	for i := range w.instances {
		for _, s := range states {
			if in := &w.instances[i]; in.Type == name && in.State == s {
				sum += w.flavor(name, in.Flavor).Capacity
			}
		}
	}
	return sum
}

func (w *world) count(name string, states ...decide.State) (n int) {
	for i := range w.instances {
		for _, s := range states {
			if in := &w.instances[i]; in.Type == name && in.State == s {
				n++
			}
		}
	}
	return n
}

var (
	serving  = []decide.State{decide.Starting, decide.Warming, decide.Active}
	existing = []decide.State{decide.Starting, decide.Warming, decide.Active, decide.Draining, decide.Drained}
)

func (w *world) flavor(name, flavor string) decide.Flavor {
	for i := range w.types {
		for _, f := range w.types[i].Flavors {
			if w.types[i].Name == name && f.Name == flavor {
				return f
			}
		}
	}
	w.t.Fatalf("an action names the unknown type %q with flavor %q", name, flavor)
	return decide.Flavor{}
}

// do carries out one action.
func (w *world) do(a decide.Action) {
	if a.Kind == decide.Hold {
		w.holds[a.Cause]++
		return
	}
	w.log = append(w.log, a)
	if a.Kind == decide.Start {
		w.flavor(a.Type, a.Flavor)
		w.started[a.Type]++
		w.named++
		w.instances = append(w.instances, decide.Instance{Name: fmt.Sprintf("i-%d", w.named), Type: a.Type, Flavor: a.Flavor, State: decide.Starting, Since: w.now})
		return
	}
	for i := range w.instances {
		if in := &w.instances[i]; in.Name == a.Instance {
			switch a.Kind {
			case decide.Drain:
				w.drained[a.Type]++
				in.State = decide.Draining
			case decide.Resume:
				in.State = decide.Active
			case decide.Stop:
				in.State = decide.Stopping
			}
			in.Since = w.now
			return
		}
	}
	w.t.Fatalf("second %d: %s of the unknown instance %q", w.second, a.Kind, a.Instance)
}

// check fails the test if actions break a limit or have no reason.
func (w *world) check(actions []decide.Action) {
	w.t.Helper()
	drains, starts := map[string]int{}, map[string]int{}
	total, cpus := len(w.instances), 0.0
	for i := range w.instances {
		cpus += w.flavor(w.instances[i].Type, w.instances[i].Flavor).CPUs
	}
	for _, a := range actions {
		if a.Reason == "" || a.Cause == "" {
			w.t.Errorf("second %d: got an action without a reason: %+v", w.second, a)
		}
		switch a.Kind {
		case decide.Drain:
			drains[a.Type]++
		case decide.Start:
			starts[a.Type]++
			total++
			cpus += w.flavor(a.Type, a.Flavor).CPUs
		}
	}
	for i := range w.types {
		z := &w.types[i]
		most := z.Max
		if slices.ContainsFunc(w.instances, func(in decide.Instance) bool {
			return in.Type == z.Name && in.State == decide.Active && in.Away >= decide.AwayAfter
		}) {
			most++ // one lost instance does not count
		}
		if n := w.count(z.Name, existing...) + starts[z.Name]; starts[z.Name] > 0 && n > most {
			w.t.Fatalf("second %d: %d starts make %d instances, want at most %d", w.second, starts[z.Name], n, most)
		}
		if n := w.count(z.Name, serving...) - drains[z.Name]; drains[z.Name] > 0 && n < z.Min {
			w.t.Fatalf("second %d: a drain leaves %d instances, want at least %d", w.second, n, z.Min)
		}
		if drains[z.Name] > 1 || drains[z.Name] > 0 && starts[z.Name] > 0 {
			w.t.Fatalf("second %d: got %d drains and %d starts at once", w.second, drains[z.Name], starts[z.Name])
		}
	}
	if w.limits.Instances > 0 && total > max(w.limits.Instances, len(w.instances)) {
		w.t.Fatalf("second %d: got %d instances, want at most %d", w.second, total, w.limits.Instances)
	}
	if w.limits.CPUs > 0 && cpus > w.limits.CPUs+1e-6 {
		w.t.Fatalf("second %d: instances use %g CPUs, want at most %g", w.second, cpus, w.limits.CPUs)
	}
}

// poisson draws a number of arrivals from a Poisson distribution. Above a mean of 500 it uses the
// normal approximation.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 500 {
		return math.Max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	n, p := 0, math.Exp(-mean)
	for u := r.Float64(); u > p; n++ {
		u *= r.Float64()
	}
	return float64(n)
}
