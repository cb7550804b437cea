package flex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex/decide"
)

// A reading is the answer of one director in this step.
type reading struct {
	err       error
	types     []client.Type
	leases    []client.Lease
	instances map[string]*client.Instance
}

// A typeReading combines the readings of all directors for one type.
type typeReading struct {
	at      time.Time
	refused uint64  // messages that no instance got, since the directors' start
	rate    float64 // refused messages per second, between the last two readings
	known   bool    // the last two readings are fresh
	leased  bool
	highest uint16 // highest number that all directors accept for an instance; 0: not known
	differs bool   // a director has another drain for the type than the file
	died    string // why an instance of the type died during another holder's lease; empty: none did
}

// readDirectors reads all directors concurrently. A director counts at some time between the
// question and its answer. at is the middle, so its error is at most half of the time that the
// slowest director takes.
func (o *Orchestrator) readDirectors(ctx context.Context) (all []reading, at time.Time) {
	began := time.Now()
	all = make([]reading, len(o.Directors))
	var group sync.WaitGroup
	for i, d := range o.Directors {
		group.Go(func() { all[i] = readDirector(ctx, d) })
	}
	group.Wait()
	return all, began.Add(time.Since(began) / 2)
}

// takeReadings takes the answers of the directors, and updates instances and types. at is the time
// of their counts.
func (o *Orchestrator) takeReadings(all []reading, at time.Time) {
	o.directors = all
	for i := range o.directors {
		what := "director " + o.File.Directors[i].Control
		o.admit(i, what)
		o.note(what, o.directors[i].err)
	}
	for _, in := range o.instances {
		o.readInstance(in, at)
	}
	for i := range o.File.Types {
		o.readType(o.File.Types[i].Name, at)
	}
}

func readDirector(ctx context.Context, d Director) (r reading) {
	all, err := d.Instances(ctx)
	if err == nil {
		r.types, err = d.Types(ctx)
	}
	if err == nil {
		r.leases, err = d.Leases(ctx)
	}
	if err != nil {
		return reading{err: err}
	}
	r.instances = make(map[string]*client.Instance, len(all))
	for i := range all {
		r.instances[all[i].Name] = &all[i]
	}
	return r
}

// hasForeign begins the error for a director with foreign instances.
const hasForeign = "it has instances that this orchestrator did not start: "

// admit checks the answers of a director until one has no foreign instances. While the director
// has foreign instances, it counts as one that does not answer, because two orchestrators would
// overwrite each other's instances.
func (o *Orchestrator) admit(i int, what string) {
	r := &o.directors[i]
	if o.admitted[i] || r.err != nil {
		return
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.instances)) {
		if o.isForeign(r.instances[name]) {
			names = append(names, name)
		}
	}
	if o.admitted[i] = len(names) == 0; o.admitted[i] {
		return
	}
	*r = reading{err: errors.New(hasForeign + strings.Join(names, ", ") + "; another orchestrator may run. If not, remove them with vitrine director instances remove")}
	if !strings.HasPrefix(o.away[what], hasForeign) {
		delete(o.away, what) // a director that did not answer before gets an event with the names
	}
}

// isForeign reports whether this orchestrator did not register an instance of the file's types that
// a director has. The instance comes from another orchestrator, which may use the same names, or from
// the director's own file.
func (o *Orchestrator) isForeign(e *client.Instance) bool {
	in := o.instances[e.Name]
	switch {
	case o.File.Type(e.Type) == nil:
		return false
	case in == nil:
		return !o.isGone(e)
	case in.Address.IsValid():
		return e.Address != in.Address
	}
	return !in.ordered.IsZero() // an instance is not registered before it is ready
}

// isGone reports whether an instance that a director has is a removed one of this orchestrator.
// Another orchestrator may use the same name, but not the same address.
func (o *Orchestrator) isGone(e *client.Instance) bool {
	at, gone := o.gone[e.Name]
	return gone && (e.Address == at || !at.IsValid())
}

// allAnswered reports whether all directors answered in this step. Otherwise sums over the
// directors are incomplete.
func (o *Orchestrator) allAnswered() bool {
	for _, r := range o.directors {
		if r.err != nil || r.instances == nil {
			return false
		}
	}
	return true
}

// readInstance updates the directors' views of an instance, and adds a reading if all
// directors answered.
func (o *Orchestrator) readInstance(in *instance, at time.Time) {
	in.views, in.known = make([]*client.Instance, len(o.directors)), false
	if t := o.File.Type(in.Type); t != nil {
		in.bound = t.Objective.P99
	}
	var views []client.Instance
	found := 0 // directors that find it away
	for i, r := range o.directors {
		if v := r.instances[in.Name]; v != nil {
			in.views[i] = v
			views = append(views, *v)
			if v.Health == away {
				found++
			}
		}
	}
	o.readHealth(in, at, found == len(o.directors) && !in.succeeds())
	if !o.allAnswered() || len(views) == 0 {
		return
	}
	if n := len(in.readings); n > 0 && at.Sub(in.readings[n-1].At) >= 3*period {
		in.readings = nil // after an outage, a span from before it would cover more than decide.Window
	}
	in.readings = append(in.readings, client.Read(at, views...))
	for len(in.readings) > 2 && at.Sub(in.readings[1].At) >= decide.Window {
		in.readings = in.readings[1:]
	}
	in.known = len(in.readings) >= 2
}

// beginReadings takes the first reading of the instances that this step registered. They have had no
// transactions, so their figures are known. The next step has two readings and knows their rate. Without
// the first reading the rate of the type would seem to fall in a burst, just when new instances become active.
func (o *Orchestrator) beginReadings(at time.Time) {
	for _, in := range o.instances {
		if len(in.readings) == 0 {
			o.readInstance(in, at)
			in.known = len(in.readings) > 0
		}
	}
}

func (o *Orchestrator) readType(name string, at time.Time) {
	t := o.types[name]
	if t == nil {
		t = &typeReading{}
		o.types[name] = t
	}
	if !o.allAnswered() {
		t.known = false
		return
	}
	var refused uint64
	var highest []uint16
	t.leased = o.isMeasured(name)
	for _, r := range o.directors {
		for _, c := range r.types {
			if c.Name == name {
				refused += c.Refused["no_instance"] + c.Refused["overloaded"]
				highest = append(highest, c.HighestID)
			}
		}
		for _, l := range r.leases {
			t.leased = t.leased || l.Type == name
		}
	}
	if !t.leased {
		t.died = ""
	}
	if len(highest) > 0 {
		t.highest = slices.Min(highest)
	}
	elapsed := at.Sub(t.at)
	t.known = !t.at.IsZero() && elapsed < 3*period
	t.rate = 0
	if t.known && refused >= t.refused {
		t.rate = float64(refused-t.refused) / elapsed.Seconds()
	}
	t.at, t.refused = at, refused
	o.checkDrain(t, name)
}

// checkDrain adds an alert when a director begins to have another drain for the type than the file. A director
// with drain: transaction gives the later requests of a draining instance's dialogs to another instance. With
// drain: dialog only at the directors, a dialog that ends at another director keeps its instance until the deadline.
func (o *Orchestrator) checkDrain(t *typeReading, name string) {
	want, alerted := o.File.Type(name).Drain, t.differs
	t.differs = false
	for i, r := range o.directors {
		for _, c := range r.types {
			if c.Name != name || c.Drain == "" || c.Drain == want {
				continue
			}
			if t.differs = true; alerted {
				continue
			}
			o.events.add(Event{Kind: EventAlert, Type: name, Cause: "drain", Reason: fmt.Sprintf(
				"director %s has drain: %s for type %s, and %s has drain: %s. Calls of a draining instance may be lost, or its drain lasts until the deadline. Give both files the same drain",
				o.File.Directors[i].Control, c.Drain, name, o.File.Path, want)})
		}
	}
}

// register reconciles the directors' instance tables with the orchestrator's instances.
func (o *Orchestrator) register(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	for i, d := range o.Directors {
		if o.directors[i].err != nil {
			continue
		}
		for _, in := range o.instances {
			o.registerOne(ctx, i, d, in)
		}
		for name, e := range o.directors[i].instances {
			if o.isGone(e) {
				o.drop(ctx, i, d, name)
			}
		}
	}
	o.forgetGone()
}

// registerOne reconciles one director's entry of one instance.
func (o *Orchestrator) registerOne(ctx context.Context, i int, d Director, in *instance) {
	has := o.directors[i].instances[in.Name]
	want, ok := o.entry(in)
	var got client.Instance
	var err error
	switch {
	case !ok && has == nil:
		return
	case !ok:
		o.drop(ctx, i, d, in.Name)
		return
	case has == nil || has.Address != want.Address || has.Type != want.Type || has.Region != want.Region ||
		want.ID != 0 && has.ID != want.ID && want.State != vitrine.Draining: // a director may refuse the ID, but must drain the instance
		got, err = d.Put(ctx, want)
	case has.State != want.State || has.Weight != want.Weight:
		got = *has // with its counts, which the answer to a change does not have
		got.Instance, err = d.Alter(ctx, in.Name, client.Change{Weight: &want.Weight, State: &want.State})
	default:
		return
	}
	if err != nil {
		o.Log.Warn("cannot register an instance at a director; retrying", "director", o.File.Directors[i].Control, "instance", in.Name, "error", err)
		return
	}
	o.directors[i].instances[in.Name] = &got
	if in.ID == 0 && got.ID != 0 { // register the same number at the other directors
		in.ID, o.changed = got.ID, true
	}
}

// drop removes an instance from a director. A director that does not have it is no error.
func (o *Orchestrator) drop(ctx context.Context, i int, d Director, name string) {
	err := d.Remove(ctx, name)
	if refusal := (*client.Error)(nil); errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
		err = nil
	}
	if err != nil {
		o.Log.Warn("cannot remove an instance from a director; retrying", "director", o.File.Directors[i].Control, "instance", name, "error", err)
		return
	}
	delete(o.directors[i].instances, name)
}

// keptGone is the number of removed instances of each type that o.gone keeps although no director has them. A
// director that comes back with an older state has them again.
const keptGone = 64

// isOld reports whether keptGone instances of its type have followed the instance of a name.
func (o *Orchestrator) isOld(name string) bool {
	i := strings.LastIndexByte(name, '-')
	n, err := strconv.Atoi(name[i+1:])
	return i < 0 || err != nil || o.next[name[:i]]-n >= keptGone
}

// forgetGone deletes the names from o.gone that no director has any more and that are old. A name without an
// address is deleted at once, because another orchestrator may use it.
func (o *Orchestrator) forgetGone() {
	if !o.allAnswered() {
		return
	}
	for name, at := range o.gone {
		keep := at.IsValid() && !o.isOld(name)
		for _, r := range o.directors {
			e := r.instances[name]
			keep = keep || e != nil && o.isGone(e)
		}
		if !keep {
			delete(o.gone, name)
			o.changed = true
		}
	}
}

// Foreign returns the foreign instances of the directors that answer. Call it before the first step.
func (o *Orchestrator) Foreign(ctx context.Context) (names []string, err error) {
	units, err := o.Runner.Units(ctx)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, u := range units {
		own[u.Name] = true
	}
	for _, d := range o.Directors {
		all, err := d.Instances(ctx)
		if err != nil {
			continue // the director does not answer: admit checks its first answer
		}
		for i := range all {
			if in := &all[i]; !own[in.Name] && o.isForeign(in) {
				names = append(names, in.Name)
			}
		}
	}
	return names, nil
}

// Leave removes all instances from the directors. Call it before stopping the instances.
func (o *Orchestrator) Leave(ctx context.Context) {
	for i, d := range o.Directors {
		o.leave(ctx, i, d)
	}
}

// leave removes all instances from one director. After a signal during the last step, the answer that
// shows an instance may be missing. So the director may have each instance that was ready.
func (o *Orchestrator) leave(ctx context.Context, i int, d Director) {
	ctx, cancel := context.WithTimeout(ctx, callLimit) // for all instances, because a director that hangs does so for each one
	defer cancel()
	for name, in := range o.instances {
		if o.directors[i].instances[name] != nil || o.admitted[i] && in.Address.IsValid() {
			o.drop(ctx, i, d, name)
		}
	}
}

var _ Director = (*client.Client)(nil)
