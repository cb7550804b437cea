package director

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"vitrine"
	"vitrine/director/overload"
)

// makeGates makes a gate for each type with overload options. It keeps a gate whose options are the
// same in the old configuration.
func (d *Director) makeGates(old, c *Config) {
	gates := map[string]*overload.Gate{}
	for i := range c.Types {
		t := &c.Types[i]
		now := c.gate(t)
		if now == nil {
			continue
		}
		if was := old.Type(t.Name); was != nil && old.gate(was) != nil && *old.gate(was) == *now {
			gates[t.Name] = d.gates[t.Name]
			continue
		}
		gates[t.Name] = d.newGate(t, now)
	}
	d.gates = gates
}

// makeQuotas makes the quotas of the protocols. It keeps a quota whose options are the same
// in the old configuration. old may be nil.
func makeQuotas(old, c *Config, were map[string]*overload.Quota) map[string]*overload.Quota {
	all := map[string]*overload.Quota{}
	for protocol, q := range c.Quota.all() {
		if q == nil {
			continue
		}
		if old != nil && old.Quota.all()[protocol] != nil && *old.Quota.all()[protocol] == *q {
			all[protocol] = were[protocol]
			continue
		}
		all[protocol] = overload.NewQuota(overload.QuotaConfig{Rate: q.Rate, Burst: q.Burst, Sources: c.Memory.Sources})
	}
	return all
}

func (q *Quotas) all() map[string]*Quota {
	return map[string]*Quota{SIP: q.SIP, GTPC: q.GTPC, S1AP: q.S1AP}
}

// adjustGates gives each gate the latencies of its type's instances, and SIP clients their feedback.
func (d *Director) adjustGates() {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	if len(d.gates) == 0 {
		return
	}
	totals := d.totals()
	for name, g := range d.gates {
		g.Adjust(d.now(), totals[name])
	}
	d.feedback.Tell(d.smallestLoss())
}

// smallestLoss returns the smallest share, in percent, that a SIP type with traffic refuses. Clients hold
// back one share of all requests to the director, and no type may lose more than it refuses itself.
func (d *Director) smallestLoss() int {
	c, losses := d.config.Load(), []int{}
	for i := range c.Types {
		if g := d.gates[c.Types[i].Name]; c.Types[i].Protocol == SIP && !g.Idle(d.now()) {
			losses = append(losses, g.Loss())
		}
	}
	if len(losses) == 0 {
		return 0
	}
	return slices.Min(losses)
}

// A carriedGate is a gate as the old process hands it over.
type carriedGate struct {
	Options     Overload
	Rate, Known float64 // as of Gate.Learned
	Sequence    uint64  // of the last feedback, the same in all; 0: an older process wrote it
}

// carryGates writes what the gates have learned, for the next process. Otherwise its gates would
// refuse most of a load until they have learned it again.
func (d *Director) carryGates(to io.Writer) error {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	c, all := d.config.Load(), map[string]carriedGate{}
	_, _, sequence := d.feedback.Values()
	for name, g := range d.gates {
		if o := c.gate(c.Type(name)); o != nil {
			rate, known := g.Learned()
			all[name] = carriedGate{Options: *o, Rate: rate, Known: known, Sequence: sequence}
		}
	}
	if err := json.NewEncoder(to).Encode(all); err != nil {
		return fmt.Errorf("hand over the rates of the gates: %w", err)
	}
	return nil
}

// takeGates reads what carryGates wrote. A gate whose options have changed begins anew, as after a
// reload.
func (d *Director) takeGates(from io.Reader) error {
	var all map[string]carriedGate
	if err := json.NewDecoder(from).Decode(&all); err != nil {
		return fmt.Errorf("take over the rates of the gates: %w", err)
	}
	d.publishing.Lock()
	defer d.publishing.Unlock()
	for _, was := range all {
		d.feedback.Continue(was.Sequence)
	}
	c := d.config.Load()
	for name, g := range d.gates {
		was, found := all[name]
		if o := c.gate(c.Type(name)); found && o != nil && *o == was.Options { // o is nil if a reload removes the gate now
			g.Resume(d.now(), was.Rate, was.Known)
		}
	}
	return nil
}

// takeCounts takes over the counts of the previous process. The gates count only what comes after.
func (d *Director) takeCounts(from io.Reader) error {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	err := d.meter.TakeOver(from)
	totals := d.totals()
	for name, g := range d.gates {
		g.Rebase(d.now(), totals[name])
	}
	return err
}

// totals returns the input of the gates, by type.
func (d *Director) totals() map[string]overload.Totals {
	all := map[string]overload.Totals{}
	for name, s := range d.meter.Samples() {
		all[name] = overload.Totals{Answered: s.Count, Latency: s.Total, TimedOut: s.Timeouts}
	}
	return all
}

func (d *Director) newGate(t *Type, o *Overload) *overload.Gate {
	c := overload.Config{Target: time.Duration(o.Target), Initial: o.Initial, Min: o.Min, Max: o.Max, Burst: o.Burst}
	if c.Initial == 0 {
		d.roster.mu.Lock()
		for _, in := range d.roster.instances {
			if in.Type == t.Name && in.State == vitrine.Active {
				c.Initial += in.Weight
			}
		}
		d.roster.mu.Unlock()
	}
	if c.Min == 0 {
		c.Min = 10
		if c.Max > 0 {
			c.Min = min(c.Min, c.Max/10) // a minimum at the maximum would fix the rate
		}
	}
	c.Initial = max(c.Initial, c.Min)
	g := overload.New(c, d.now())
	g.Rebase(d.now(), d.totals()[t.Name])
	return g
}
