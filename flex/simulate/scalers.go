package simulate

import (
	"math"

	"vitrine/flex/decide"
	"vitrine/flex/policy"
)

// Flex replays the case with package decide.
func Flex(c Case) Result { return run(c, policy.Flex, decide.Decide) }

// Against replays the case with the policy of a name; see policy.New. "fixed" without a number
// has enough instances for the peak of the load. In practice nobody knows the peak beforehand.
func Against(name string, c Case) (Result, error) {
	p, err := policy.New(name, func(t *decide.Type) int { return int(math.Ceil(c.Load.Peak() / t.Lean().Capacity)) })
	if err != nil {
		return Result{}, err
	}
	return run(c, name, p), nil
}

// scale builds the policy's View of this second, and carries out the actions.
func (f *fleet) scale(p policy.Policy) {
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
		in.CPU, in.CPUKnown = 0.9*min(1, f.rate/(f.capacity*f.Truth)), true
	}
	v := decide.View{Now: f.now, Limits: f.Limits, Instances: f.instances, Booted: f.booted,
		Types: []decide.TypeView{{Type: f.Type, Known: true, Rate: f.rate, Refused: f.refused}}}
	f.booted = nil
	actions := p(v, &f.memory)
	f.note(actions)
	for _, a := range actions {
		if a.Kind == decide.Start {
			f.add(a.Flavor)
			continue
		}
		i := f.index(a.Instance)
		switch {
		case i < 0:
		case a.Kind == decide.Resume:
			f.resume(i)
		case a.Kind == decide.Drain, a.Kind == decide.Stop && f.instances[i].State <= decide.Active:
			f.drain(i)
		}
	}
}

// index returns the index of an instance. -1: there is none.
func (f *fleet) index(name string) int {
	for i := range f.instances {
		if f.instances[i].Name == name {
			return i
		}
	}
	return -1
}

// An Act is a recorded action of a policy. It combines equal actions of one second.
type Act struct {
	Second int          `json:"second"`
	Kind   string       `json:"kind"`
	Count  int          `json:"count"` // instances
	Cause  decide.Cause `json:"cause"`
	Reason string       `json:"reason"`
}

// mostActs bounds the acts of a Result. A week of bursts has fewer.
const mostActs = 10_000

// note records the actions in the Result. It records a Hold only when its cause changes.
func (f *fleet) note(actions []decide.Action) {
	held := decide.Cause("")
	for _, a := range actions {
		if a.Kind == decide.Hold {
			held = a.Cause
		}
		if !f.Acts || a.Kind == decide.Hold && a.Cause == f.held || len(f.result.Acts) >= mostActs {
			continue
		}
		act := Act{f.second, a.Kind.String(), 1, a.Cause, a.Reason}
		if n := len(f.result.Acts); n > 0 {
			if last := &f.result.Acts[n-1]; last.Second == act.Second && last.Kind == act.Kind && last.Reason == act.Reason {
				last.Count++
				continue
			}
		}
		f.result.Acts = append(f.result.Acts, act)
	}
	f.held = held
}
