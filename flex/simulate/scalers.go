package simulate

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"vitrine/flex/decide"
)

// Flex replays the case with package decide.
func Flex(c Case) Result { return run(c, &flexed{}) }

// flexed scales by package decide.
type flexed struct{ memory decide.Memory }

func (*flexed) name() string { return "flex" }

func (x *flexed) scale(f *fleet) {
	for i := range f.instances {
		in := &f.instances[i]
		in.Known, in.Success, in.P99, in.CPU = true, 1, 0, 0
		if in.State != decide.Active {
			continue
		}
		share := f.flavor(in.Flavor).Capacity / f.capacity
		in.Rate = (f.rate - f.refused) * share
		in.InFlight = int(f.backlog*share) + int(in.Rate*service*f.bound().Seconds())
		in.P99 = f.latency()
		in.CPU = 0.9 * min(1, f.rate/(f.capacity*f.Truth))
	}
	v := decide.View{Now: f.now, Limits: f.Limits, Instances: f.instances, Booted: f.booted,
		Types: []decide.TypeView{{Type: f.Type, Known: true, Rate: f.rate, Refused: f.refused}}}
	f.booted = nil
	for _, a := range decide.Decide(v, &x.memory) {
		switch a.Kind {
		case decide.Start:
			f.add(a.Flavor)
		case decide.Drain, decide.Resume:
			for i := range f.instances {
				if f.instances[i].Name != a.Instance {
					continue
				}
				if a.Kind == decide.Drain {
					f.drain(i)
				} else {
					f.resume(i)
				}
				break
			}
		}
	}
}

// A counted scaler says how many instances of one flavor there should be.
type counted struct {
	label  string
	wanted func(f *fleet) int
}

func (c *counted) name() string { return c.label }

func (c *counted) scale(f *fleet) {
	f.booted = nil
	n := min(max(c.wanted(f), f.Type.Min), f.Type.Max)
	have := f.replicas()
	for ; have < n; have++ {
		f.add(f.lean().Name)
	}
	// A deployment takes away the pods that are not ready first, then the newest.
	for _, state := range []decide.State{decide.Starting, decide.Active} {
		for i := len(f.instances) - 1; i >= 0 && have > n; i-- {
			if f.instances[i].State == state {
				f.drain(i)
				have--
			}
		}
	}
}

// replicas counts the instances that do not drain.
func (f *fleet) replicas() (n int) {
	for i := range f.instances {
		if f.instances[i].State <= decide.Active {
			n++
		}
	}
	return n
}

func (f *fleet) active() (n int) {
	for i := range f.instances {
		if f.instances[i].State == decide.Active {
			n++
		}
	}
	return n
}

// mean returns the mean rate of the last seconds.
func (f *fleet) mean(seconds int) float64 {
	window := f.rates[max(0, len(f.rates)-seconds):]
	sum := 0.0
	for _, r := range window {
		sum += r
	}
	return sum / float64(len(window))
}

// Against replays the case with another scaler: fixed, fixed=N, hpa, hpa=UTILIZATION,
// knative, knative=UTILIZATION.
func Against(name string, c Case) (Result, error) {
	kind, value, given := strings.Cut(name, "=")
	number := 0.0
	if given {
		var err error
		if number, err = strconv.ParseFloat(value, 64); err != nil || !(number > 0) || number > 1e6 {
			return Result{}, fmt.Errorf("%q: want a number above 0 behind =", name)
		}
	}
	switch {
	case kind == "fixed":
		return run(c, &counted{name, fixed(int(number))}), nil
	case number > 1:
		return Result{}, fmt.Errorf("%q: want a utilization above 0 and up to 1 behind =", name)
	case kind == "hpa":
		return run(c, &counted{name, newHPA(number).wanted}), nil
	case kind == "knative":
		return run(c, &counted{name, newKPA(number).wanted}), nil
	}
	return Result{}, fmt.Errorf("%q: want fixed, fixed=N, hpa, hpa=UTILIZATION, knative or knative=UTILIZATION", name)
}

// fixed keeps n instances; 0: enough for the load's highest rate, which nobody knows
// beforehand.
func fixed(n int) func(*fleet) int {
	return func(f *fleet) int {
		if n > 0 {
			return n
		}
		return int(math.Ceil(f.Load.Peak() / f.lean().Capacity))
	}
}
