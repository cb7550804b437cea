package flex

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/unit"
)

// An instance is an instance of an aggregate. The state file keeps the exported fields.
type instance struct {
	Name   string       `json:"name"`
	Type   string       `json:"type"`
	Size   string       `json:"size"`               // Its flavor.
	ID     uint16       `json:"id,omitempty"`       // Its number in the directors; 0: an earlier version started it, and the first director chooses the number.
	State  decide.State `json:"state"`              //
	Manual bool         `json:"manual,omitempty"`   // A user asked for its drain: for the policy it is gone.
	InAge  float64      `json:"in_state_seconds"`   // Time in the state, at the time of the save.
	Lost   float64      `json:"lost,omitempty"`     // For how many seconds all directors have found it away; 0: they do not, or for less than decide.AwayAfter.
	Was    float64      `json:"capacity,omitempty"` // Its capacity in transactions/s, at the time of the save. It counts if the file has its size no longer. 0: an earlier version saved it.

	Address netip.AddrPort `json:"address"` // Invalid: it has not been ready, so no director has it; or an earlier version started it.

	since   time.Time // when it entered the state
	ordered time.Time // when it was ordered; zero: it had started, or was gone, before this orchestrator saw it
	active  time.Time // when it became active; zero: it never was
	away    time.Time // since when all directors have found it away; zero: they do not
	unit    unit.Unit
	reason  string // why it failed

	views    []*client.Instance // entry at each director in this step; nil: the director does not have it
	readings []client.Reading   // newest last
	known    bool               // the last two readings are fresh, or the first one is of this step and the instance was new
	bound    time.Duration      // objective of its type for the 99th percentile of latency; 0: none
}

// enter changes the state of an instance.
func (o *Orchestrator) enter(in *instance, s decide.State, now time.Time) {
	in.State, in.since, o.changed = s, now, true
	if s == decide.Active && in.active.IsZero() {
		in.active = now
	}
}

// observe updates the instances from the runner's units. It adopts unknown units and forgets
// instances without a unit.
func (o *Orchestrator) observe(now time.Time, units map[string]unit.Unit) {
	for name, u := range units {
		if in := o.instances[name]; u.Type != "" && in == nil {
			in = &instance{Name: name, Type: u.Type, Size: u.Size, ID: u.Number}
			o.instances[name] = in
			delete(o.gone, name)
			if n, err := strconv.Atoi(strings.TrimPrefix(name, u.Type+"-")); err == nil {
				o.next[u.Type] = max(o.next[u.Type], n) // or a start would take the name of a running instance
			}
			o.enter(in, decide.Starting, now.Add(-seconds(u.Age)))
			o.event(in, EventAdopt, "", "it runs, and the state file does not have it")
		}
	}
	for _, in := range o.instances {
		u, there := units[in.Name]
		seen := in.unit.Name != ""
		in.unit = u
		if u.State == unit.Starting && in.ordered.IsZero() {
			in.ordered = now.Add(-seconds(u.Age)) // an earlier orchestrator ordered it, and registered it nowhere
		}
		switch {
		case !there && in.State == decide.Stopping:
			o.event(in, EventStopped, "", "nothing of it is left")
			o.forget(in)
		case !there && !seen && in.ordered.IsZero(): // its end while no orchestrator ran is no evidence against the type: no o.fail
			o.enter(in, decide.Failed, now)
			o.event(in, EventFail, "", "it ended while no orchestrator ran")
			o.forget(in)
		case !there:
			o.fail(in, now, "it does not run any more, and nobody stopped it: did the process that holds the instances end?")
			o.forget(in)
		case u.State == unit.Removing:
			if in.State != decide.Stopping {
				o.enter(in, decide.Stopping, now)
			}
		case u.State == unit.Failed && in.State != decide.Failed && in.State != decide.Stopping:
			o.fail(in, now, u.Reason)
		case u.State == unit.Ready && !in.Address.IsValid():
			o.becomeReady(in, now)
		}
	}
}

// becomeReady records the address of an instance that has become ready, and moves a Starting
// instance to Warming.
func (o *Orchestrator) becomeReady(in *instance, now time.Time) {
	at, err := netip.ParseAddrPort(in.unit.Address)
	if err != nil {
		o.fail(in, now, "its address: "+err.Error())
		return
	}
	in.Address = at
	if in.State == decide.Starting {
		o.enter(in, decide.Warming, now.Add(-seconds(max(0, in.unit.Age-in.unit.Boot)))) // since it was ready: one that was adopted may be warm
		o.event(in, EventReady, "", fmt.Sprintf("it booted in %.1f s, at %s", in.unit.Boot, at))
	}
}

// forget deletes an instance. o.gone keeps its address, because directors may have the instance.
func (o *Orchestrator) forget(in *instance) {
	delete(o.instances, in.Name)
	if in.Address.IsValid() || in.ordered.IsZero() { // otherwise a director's instance of this name is foreign
		o.gone[in.Name] = in.Address
	}
	o.changed = true
}

// The highest numbers that instances of some protocols can carry.
const (
	lastNumber = 127 // a TEID has seven bits for it (docs/director-gtpc.md)
	lastCode   = 255 // an MME code has eight bits
)

// freeNumber returns the number for a new instance of a type whose instances can carry numbers up to
// highest; 0: not known. It returns 0 if none is free. It takes numbers in turn, because messages may still
// carry the number of a removed instance. Numbers are unique across all types, because S1AP needs that.
// Types that can carry more than lastCode leave the lower numbers to the other types. Those get 1 to
// lastNumber, and when all of these are in use, the lowest free number above.
func (o *Orchestrator) freeNumber(highest uint16) uint16 {
	used := map[uint16]bool{0: true}
	for _, in := range o.instances {
		used[in.ID] = true
	}
	for _, r := range o.directors {
		for _, in := range r.instances {
			used[in.ID] = true
		}
	}
	if highest > lastCode {
		turn, room := 0, int(highest)-lastCode
		for _, n := range o.next {
			turn += n // each start moves it on
		}
		for i := range room {
			if n := uint16(lastCode + 1 + (turn+i)%room); !used[n] {
				return n
			}
		}
		return 0
	}
	for range lastNumber {
		o.number = o.number%lastNumber + 1
		if !used[o.number] {
			return o.number
		}
	}
	for n := lastNumber + 1; n <= cmp.Or(int(highest), math.MaxUint16); n++ {
		if !used[uint16(n)] {
			return uint16(n)
		}
	}
	return 0
}

// longestReason bounds the reason of a failure, in bytes: it contains the end of a log.
const longestReason = 4 << 10

// fail moves an instance to Failed and tells the policy about it.
func (o *Orchestrator) fail(in *instance, now time.Time, reason string) {
	if len(reason) > longestReason {
		reason = reason[:longestReason]
	}
	in.reason = reason
	died := decide.Died{Type: in.Type, Reason: reason}
	if !in.active.IsZero() {
		died.Lived = now.Sub(in.active)
	}
	o.died = append(o.died, died)
	o.counted.deaths.WithLabelValues(in.Type).Inc()
	o.enter(in, decide.Failed, now)
	o.event(in, EventFail, "", reason)
}

// advance moves instances to their next state: Warming to Active after the warm time,
// Draining to Drained. It drains instances that the directors or the file do not allow any more, and those
// that a user asked it to drain when they can be spared.
func (o *Orchestrator) advance(now time.Time) {
	for _, in := range o.instances {
		t := o.File.Type(in.Type)
		switch why := o.disallowed(in); {
		case why != "" && in.State < decide.Draining:
			in.Manual = true
			o.enter(in, decide.Draining, now)
			o.event(in, EventDrain, "type", why)
		case in.State == decide.Warming && now.Sub(in.since) >= t.Warm:
			o.enter(in, decide.Active, now)
			if !in.ordered.IsZero() {
				o.booted = append(o.booted, decide.Booted{Type: in.Type, Took: now.Sub(in.ordered)})
			}
			o.event(in, EventActive, "", "it gets transactions")
		case in.Manual && o.mayDrain(in, now):
			o.enter(in, decide.Draining, now)
		case in.State == decide.Draining:
			o.awaitDrained(in, t, now)
		}
	}
}

// isActive reports whether the instance is active, and whether so holds for its entries at all directors.
func (in *instance) isActive(so func(*client.Instance) bool) bool {
	for _, v := range in.views {
		if v == nil || !so(v) {
			return false
		}
	}
	return in.State == decide.Active && len(in.views) > 0
}

// isServing reports whether the instance is active, and no director finds it inactive or away.
func (in *instance) isServing() bool {
	return in.isActive(func(v *client.Instance) bool { return v.State == vitrine.Active && v.Health != away })
}

// isHealthy reports whether the instance is active, and up at all directors.
func (in *instance) isHealthy() bool {
	return in.isActive(func(v *client.Instance) bool { return v.Health == "up" })
}

// disallowed returns why an instance cannot go on: the file no longer has its type, or the directors refuse
// its ID, as after a reload that gives a GTP-C type a number. Empty: it can.
func (o *Orchestrator) disallowed(in *instance) string {
	if o.File.Type(in.Type) == nil {
		return "the file has no type " + in.Type + " any more"
	}
	if highest := o.types[in.Type].highest; highest > 0 && in.ID > highest {
		return fmt.Sprintf("the directors accept IDs of its type up to %d, and it has %d", highest, in.ID)
	}
	return ""
}

// awaitDrained moves a draining instance to Drained when all directors report it as drained,
// or at the deadline. A dialog may begin at one director and end at another, so with drain:
// dialog it is enough that all directors report it as idle, and that the sum of their dialogs
// is 0. While a director does not answer, it waits even past the deadline,
// because the open transactions are unknown.
func (o *Orchestrator) awaitDrained(in *instance, t *config.Type, now time.Time) {
	deadline, dialogs := config.DefaultDrainDeadline, false
	if t != nil {
		deadline, dialogs = t.DrainDeadline, t.Drain == config.DrainDialogs
	}
	if !o.allAnswered() {
		return
	}
	for _, v := range in.views {
		if v != nil && v.State == vitrine.Active { // the director refused the drain, as during a lease
			in.since = now
			return
		}
	}
	drained := true
	var inFlight uint64
	var open int64
	for _, v := range in.views {
		if v != nil {
			drained = drained && (v.Drained || dialogs && v.Idle)
			inFlight += v.InFlight
			open += v.Dialogs
		}
	}
	drained = drained && (!dialogs || open <= 0)
	switch {
	case drained:
		o.enter(in, decide.Drained, now)
		o.event(in, EventDrained, "", "nothing is in flight")
	case now.Sub(in.since) >= deadline:
		o.enter(in, decide.Drained, now)
		o.counted.losses.WithLabelValues(in.Type).Add(float64(inFlight))
		o.counted.cut.WithLabelValues(in.Type).Add(float64(max(open, 0)))
		o.event(in, EventLost, "deadline", fmt.Sprintf("after %s %d transactions are in flight and %d dialogs are open: they are lost", deadline, inFlight, max(open, 0)))
	}
}

// seconds converts seconds to a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// capacity returns the capacity of an instance, in transactions per second. An instance of a type or size
// that is no longer in the file carries what it carried.
func (o *Orchestrator) capacity(in *instance) float64 {
	for i := range o.Types {
		if t := &o.Types[i]; t.Name == in.Type {
			return t.CapacityOf(in.Size, in.Was)
		}
	}
	return cmp.Or(in.Was, 1)
}

// entry returns the desired entry of an instance in the directors. ok is false if the
// directors must not have the instance.
func (o *Orchestrator) entry(in *instance) (e vitrine.Instance, ok bool) {
	e = vitrine.Instance{Name: in.Name, Type: in.Type, Address: in.Address, Weight: cmp.Or(o.capacity(in), 1), ID: in.ID}
	if t := o.File.Type(in.Type); t != nil {
		e.Region = t.Region
	}
	switch in.State {
	case decide.Warming:
		e.State = vitrine.Starting
	case decide.Active:
		e.State = vitrine.Active
	case decide.Draining, decide.Drained:
		e.State = vitrine.Draining
	default:
		return e, false
	}
	return e, in.Address.IsValid()
}
