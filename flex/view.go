package flex

import (
	"time"

	"vitrine/director/client"
	"vitrine/director/latency"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/redline"
)

// lastStep returns the traffic of an instance between the last two readings.
func (in *instance) lastStep() client.Span {
	n := len(in.readings)
	if n < 2 {
		return client.Span{}
	}
	return in.readings[n-1].Since(in.readings[n-2])
}

// lately returns the traffic of an instance within decide.Window. A transaction that becomes late without a
// response has a latency there too. Otherwise an instance that answers nothing would seem to meet its objective.
func (in *instance) lately() client.Span {
	n := len(in.readings)
	if n < 2 {
		return client.Span{}
	}
	s := in.readings[n-1].Since(in.readings[0])
	if in.bound > 0 {
		above := max(decide.Window, 2*in.bound) // its bucket is wholly above the bound
		s.Latencies.Add(latency.Bucket(uint64(above.Microseconds())), in.late(s.Ended["unanswered"]))
	}
	return s
}

// late returns how many transactions became late without a response within the readings. They have ended
// unanswered, or are overdue now. Those that were overdue before do not count again.
func (in *instance) late(unanswered uint64) uint64 {
	first, last := 1, len(in.readings)-1
	for first < last && in.readings[first].At.Sub(in.readings[0].At) < in.bound {
		first++
	}
	late := unanswered + in.overdue(last)
	return late - min(late, in.overdue(first))
}

// overdue returns a lower bound on the number of transactions that waited for longer than the bound at a
// reading. It is 0 if no earlier reading is old enough.
func (in *instance) overdue(at int) uint64 {
	now := &in.readings[at]
	for i := at - 1; i >= 0; i-- {
		if then := &in.readings[i]; now.At.Sub(then.At) >= in.bound {
			return now.Overdue(*then)
		}
	}
	return 0
}

// view returns the input of the policy.
func (o *Orchestrator) view(now time.Time) decide.View {
	v := decide.View{Now: now, Limits: o.Limits, StoreAway: o.isStoreAway(), StoreSlow: len(o.store.past) > 0, Booted: o.booted, Died: o.died}
	rates, spans := map[string]float64{}, map[string][]client.Span{} // by type
	for _, in := range o.instances {
		i := decide.Instance{Name: in.Name, Type: in.Type, Flavor: in.Size, Was: in.Was, State: in.State, Since: in.since, Known: in.known, Success: 1}
		if in.Manual && in.State <= decide.Draining {
			i.State = decide.Stopping // the policy must replace an instance that a user drains, and must not resume it
		}
		if !in.away.IsZero() {
			i.Away = max(now.Sub(in.away), 1) // the directors' answers are newer than now
		}
		if in.known {
			late := in.lately()
			i.Rate, i.InFlight, i.P99, i.Success = in.lastStep().Rate(), int(late.InFlight), late.Quantile(0.99), late.Success()
			i.Served = in.succeeds()
			if t := o.File.Type(in.Type); t != nil {
				i.Failing = redline.Objective{Success: t.Objective.Success}.Broken(late)
				if t.Drain == config.DrainDialogs {
					i.Dialogs = int(max(late.Dialogs, 0))
				}
			}
			rates[in.Type] += i.Rate
			if i.State == decide.Active && in.Lost == 0 {
				spans[in.Type] = append(spans[in.Type], late)
			}
		}
		if in.unit.Use != nil {
			i.CPU, i.CPUKnown = *in.unit.Use, true
		}
		v.Instances = append(v.Instances, i)
	}
	for _, t := range o.Types {
		r := o.types[t.Name]
		refused := client.Span{Ended: map[string]uint64{"failed": uint64(r.rate * decide.Window.Seconds())}}
		chance := !objective(t.Objective).Broken(append(spans[t.Name], refused)...)
		v.Types = append(v.Types, decide.TypeView{Type: t, Known: r.known, Rate: rates[t.Name] + r.rate, Refused: r.rate, Leased: r.leased, Chance: chance})
	}
	return v
}

// objective returns an objective as redline measures and judges it. Without a bound on latency, any latency
// meets it.
func objective(o decide.Objective) redline.Objective {
	r := redline.Objective{Success: o.Success, Latency: o.P99}
	if o.P99 > 0 {
		r.Quantile = 0.99
	}
	return r
}
