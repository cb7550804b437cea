package flex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"vitrine"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/redline"
)

// A Measurer measures the capacity of an instance on live traffic, through all directors of
// the file. Implementations call redline.Run. The caller leaves Directors and Names of the
// options empty; the Measurer sets them.
type Measurer func(ctx context.Context, o redline.Options) (redline.Result, error)

// The causes of measurements.
const (
	causeFirst    = "first"    // the type, or the CPU time of its transactions, was never measured
	causeSchedule = "schedule" // the interval since the last measurement has passed
	causeDrift    = "drift"    // the CPU time of transactions has drifted from the profile
)

// calm is how long all instances of a type must have been active before redline measures one.
const calm = 10 * time.Second

// A measurement is a redline measurement under way.
type measurement struct {
	entry    *Measured
	began    time.Time // has a reading of the monotonic clock, unlike entry.At
	typeName string
	cancel   context.CancelCauseFunc
	done     chan redline.Result // receives the result, once; buffered
	cpus     cpuLog
	full     bool // at its begin, a limit left no room for the instances that the load needs
}

// A cpuLog records the CPU use of an instance in each step of the orchestrator.
type cpuLog struct {
	mu   sync.Mutex
	at   []time.Time
	cpus []float64
}

// mostCPUs bounds the log, in samples. At one sample a second it covers at least 34 minutes;
// max_step is 5 minutes by default. The mean over a longer step covers only its end.
const mostCPUs = 4096

func (l *cpuLog) add(at time.Time, cpus float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.at) >= mostCPUs {
		l.at, l.cpus = slices.Delete(l.at, 0, mostCPUs/2), slices.Delete(l.cpus, 0, mostCPUs/2)
	}
	l.at, l.cpus = append(l.at, at), append(l.cpus, cpus)
}

// mean returns the mean CPU use in (from, to]. ok is false if it has no sample.
func (l *cpuLog) mean(from, to time.Time) (cpus float64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i, at := range l.at {
		if at.After(from) && !at.After(to) {
			cpus, n = cpus+l.cpus[i], n+1
		}
	}
	return cpus / float64(max(n, 1)), n > 0
}

// isMeasured reports whether this orchestrator is measuring an instance of the type.
func (o *Orchestrator) isMeasured(typeName string) bool {
	return o.measuring != nil && o.measuring.typeName == typeName
}

// runRedline handles the measurement under way, and begins a measurement that is due. actions
// are the actions of this step: redline does not measure a type that is being scaled.
func (o *Orchestrator) runRedline(ctx context.Context, now time.Time, actions []decide.Action) {
	if o.Redline == nil {
		return
	}
	if m := o.measuring; m != nil {
		o.followMeasurement(m, now)
	}
	for i := range o.File.Types {
		t := &o.File.Types[i]
		if t.Redline == nil {
			continue
		}
		p := o.profiles[t.Name]
		o.watchCPU(t, p, now)
		cause, reason := o.due(t, p, now)
		if p.waits = ""; cause == "" || o.isMeasured(t.Name) {
			continue
		}
		in, why := o.chooseMeasured(t, p, now, actions)
		if in == nil {
			p.waits = why
			continue
		}
		o.measure(ctx, t, in, now, cause, reason)
		o.measuring.full = slices.ContainsFunc(actions, func(a decide.Action) bool { return a.Type == t.Name && isFull(a) })
	}
}

// followMeasurement records the CPU use of the measured instance. It takes the result if there
// is one, and cancels a measurement that must not continue.
func (o *Orchestrator) followMeasurement(m *measurement, now time.Time) {
	if in := o.instances[m.entry.Instance]; in != nil {
		if cpus, ok := in.cpus(); ok {
			m.cpus.add(now, cpus)
		}
	}
	select {
	case r := <-m.done:
		o.finish(m, r, now)
	default:
		if why := o.mustEnd(m); why != "" {
			m.cancel(errors.New(why))
		}
	}
}

// mustEnd returns why a measurement must end. Empty: it may continue. The load does not end the measurement of a
// full type, because no instance could start afterwards.
func (o *Orchestrator) mustEnd(m *measurement) string {
	for _, name := range slices.Sorted(maps.Keys(o.instances)) {
		if in := o.instances[name]; in.Type == m.typeName && in.State != decide.Active {
			return fmt.Sprintf("%s is %s", name, stateName(in.State))
		}
	}
	if t := o.memory.Types[m.typeName]; t != nil && !m.full {
		if s := t.Sight; max(s.Level, s.Forecast) > s.Capacity {
			return fmt.Sprintf("%s/s are expected and %s/s can be carried: the type needs more instances", vitrine.Digits(max(s.Level, s.Forecast)), vitrine.Digits(s.Capacity))
		}
	}
	return ""
}

// cpus returns the CPU use of all members together, in CPUs. ok is false unless the use of
// every member is known.
func (in *instance) cpus() (sum float64, ok bool) {
	for _, m := range in.unit.Members {
		if m.CPU == nil {
			return 0, false
		}
		sum += *m.CPU
	}
	return sum, len(in.unit.Members) > 0
}

// limit returns the CPU limit of all members together, in CPUs. 0: some member has no limit.
func (in *instance) limit() (sum float64) {
	for _, m := range in.unit.Members {
		if m.VCPUs == 0 {
			return 0
		}
		sum += m.VCPUs
	}
	return sum
}

// due returns why a measurement is due. An empty cause: no measurement is due.
func (o *Orchestrator) due(t *config.Type, p *Profile, now time.Time) (cause, reason string) {
	every, most := t.Redline.Every, now.Add(longestRetry)
	if p.Failures == 0 {
		most = now.Add(every)
	}
	if p.Next.After(most) { // the clock was set back, or every was longer in the last run
		p.Next = most
	}
	ratio, known := p.drifts.median()
	drifted := t.Redline.Drift > 0 && p.drifts.departed(t.Redline.Drift) && known
	lacks := t.Redline.Drift > 0 && o.lacksCost(t, p) // so drift cannot be seen, as after an edit of the capacity
	switch {
	case now.Before(p.Next) && (p.Failures > 0 || !drifted && !lacks):
		return "", ""
	case drifted:
		return causeDrift, fmt.Sprintf("a transaction takes %.0f%% of the CPU time in the profile, in the median of %d minutes: a release, a neighbour or the mix has changed", 100*ratio, len(p.drifts.ratios))
	case every > 0 && !slices.ContainsFunc(p.History, func(m Measured) bool { return m.Found() }):
		return causeFirst, "the type was not measured before"
	case lacks:
		return causeFirst, "the CPU time of a transaction is not known"
	case every > 0:
		return causeSchedule, fmt.Sprintf("the last measurement was %s ago", now.Sub(p.last().At).Round(time.Second))
	}
	return "", ""
}

// lacksCost reports whether the CPU time of a transaction is not known for the size of an active
// instance. A size whose last measurement found no CPU time does not count: another measurement
// would not find it either.
func (o *Orchestrator) lacksCost(t *config.Type, p *Profile) bool {
	for _, in := range o.instances {
		if in.Type == t.Name && in.State == decide.Active && o.costOfSize(p, t.Name, in.Size).Each == 0 && !p.triedInVain(in.Size) {
			return true
		}
	}
	return false
}

// chooseMeasured returns the instance to measure, or why redline cannot measure now. It
// chooses the size with the oldest measurement, and then the instance that has been active
// longest.
func (o *Orchestrator) chooseMeasured(t *config.Type, p *Profile, now time.Time, actions []decide.Action) (chosen *instance, why string) {
	if why := o.notNow(t, now, actions); why != "" {
		return nil, why
	}
	healthy := map[string]*instance{}
	var sizes []string
	for _, name := range slices.Sorted(maps.Keys(o.instances)) {
		if in := o.instances[name]; in.Type == t.Name && in.isHealthy() {
			healthy[name] = in
			sizes = append(sizes, in.Size)
		}
	}
	if others := len(healthy) - 1; others < t.Min {
		return nil, fmt.Sprintf("%d healthy instances beside the one to measure, want at least min, which is %d", max(others, 0), t.Min)
	}
	size := p.oldest(sizes)
	for _, name := range slices.Sorted(maps.Keys(healthy)) {
		if in := healthy[name]; in.Size == size && (chosen == nil || in.since.Before(chosen.since)) {
			chosen = in
		}
	}
	return chosen, ""
}

// notNow returns why redline cannot measure an instance of the type now. Empty: it can.
func (o *Orchestrator) notNow(t *config.Type, now time.Time, actions []decide.Action) string {
	r := o.types[t.Name]
	switch {
	case o.measuring != nil:
		return "type " + o.measuring.typeName + " is being measured: one at a time"
	case r == nil || !r.known:
		return "the rate is not known"
	case r.leased:
		return "another measurement has the lease of the type"
	}
	for _, a := range actions {
		switch {
		case a.Type != t.Name || a.Kind == decide.Hold && a.Cause == decide.CauseCPU || isFull(a):
		case a.Kind == decide.Hold:
			return "scaling is on hold: " + a.Reason
		default:
			return fmt.Sprintf("scaling is under way: %s: %s", a.Kind, a.Reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.instances)) {
		in := o.instances[name]
		if in.Type != t.Name {
			continue
		}
		late := in.lately()
		switch {
		case in.State != decide.Active:
			return fmt.Sprintf("scaling is under way: %s is %s", name, stateName(in.State))
		case now.Sub(in.since) < calm:
			return fmt.Sprintf("scaling is under way: %s became active %.0f s ago", name, now.Sub(in.since).Seconds())
		case !in.known:
			return "the figures of " + name + " are not known"
		case objective(decide.Objective(t.Objective)).Broken(late):
			return "the objective is broken at " + name
		case late.Begun == 0:
			return name + " gets no transactions"
		}
	}
	return ""
}

// isFull reports whether an action says that a limit leaves no room for the instances that the load needs.
// redline measures such a type while it meets the objective, because the capacity in use may be too low.
func isFull(a decide.Action) bool {
	return a.Kind == decide.Hold && (a.Cause == decide.CauseMaximum || a.Cause == decide.CauseTotal)
}

// measure begins a measurement. It saves the state first, so that a restarted orchestrator
// knows of the interrupted measurement.
func (o *Orchestrator) measure(ctx context.Context, t *config.Type, in *instance, now time.Time, cause, reason string) {
	p := o.profiles[t.Name]
	capacity := o.capacity(in)
	m := &measurement{typeName: t.Name, began: now, done: make(chan redline.Result, 1), entry: &Measured{
		At: now.UTC(), Size: in.Size, Instance: in.Name, Cause: cause, Reason: reason, Before: capacity, After: capacity,
	}}
	p.Under = m.entry
	o.measuring = m
	o.types[t.Name].leased = true
	o.event(in, EventMeasure, decide.Cause(cause), reason)
	o.save(now, true)
	options := redline.Defaults()
	options.Type, options.Instance, options.Flavor = t.Name, in.Name, in.Size
	options.Holder = fmt.Sprintf("flex, pid %d", os.Getpid())
	options.Objective = objective(decide.Objective(t.Objective))
	options.Min, options.Share, options.Step, options.MaxStep = t.Min, t.Redline.Share, t.Redline.Step, t.Redline.MaxStep
	for _, known := range o.directors[0].types { // redline refuses other types
		if o.File.Type(known.Name) != nil { // all instances of the file run on one host
			options.Beside = append(options.Beside, known.Name)
		}
	}
	if !t.Polling {
		options.CPU, options.CPULimit = m.cpus.mean, in.limit()
	}
	ctx, m.cancel = context.WithCancelCause(ctx)
	measurer, log := o.Redline, o.Log
	name := in.Name
	options.Progress = func(text string) { log.Debug("redline", "instance", name, "text", text) }
	go func() {
		r, err := measurer(ctx, options)
		if err != nil && r.Why == "" {
			r.Verdict, r.Why = redline.Aborted, err.Error()
		}
		m.done <- r
	}()
}

// finish records the result of a measurement, and gives the new capacity to the policy.
func (o *Orchestrator) finish(m *measurement, r redline.Result, now time.Time) {
	m.cancel(nil)
	o.measuring, o.changed = nil, true
	p := o.profiles[m.typeName]
	e := m.entry
	e.Seconds = now.Sub(m.began).Seconds()
	e.adopt(&r, o.costOfSize(p, m.typeName, e.Size).Idle)
	if in := o.instances[e.Instance]; in != nil {
		// Drop the readings that redline's load has distorted, because their latency is no
		// evidence against the profile. Keep the last one, so that the next step knows the rate.
		in.readings = in.readings[max(0, len(in.readings)-1):]
	}
	var every time.Duration
	if t := o.File.Type(m.typeName); t != nil && t.Redline != nil {
		every = t.Redline.Every
	}
	p.add(e, now, every)
	o.setCapacity(m.typeName, e.Size, e.After)
	o.events.add(Event{Kind: EventMeasured, Type: m.typeName, Instance: e.Instance, Cause: decide.Cause(e.Verdict), Reason: e.String()})
}

// endRedline cancels the measurement under way and waits until redline has restored the
// weights.
func (o *Orchestrator) endRedline() {
	if m := o.measuring; m != nil {
		m.cancel(errors.New("the orchestrator ends"))
		o.finish(m, <-m.done, time.Now())
	}
}

// setCapacity changes the capacity of a size that the policy uses.
func (o *Orchestrator) setCapacity(typeName, size string, rate float64) {
	for i := range o.Types {
		if o.Types[i].Name != typeName {
			continue
		}
		for k := range o.Types[i].Flavors {
			if f := &o.Types[i].Flavors[k]; f.Name == size {
				f.Capacity = rate
			}
		}
	}
}

// takeUpProfiles merges the profiles from the state file with the types of the file. A type that is
// not in the file keeps its profile for when it returns.
func (o *Orchestrator) takeUpProfiles(kept map[string]*Profile) {
	maps.Copy(o.profiles, kept)
	for i := range o.Types {
		d := &o.Types[i]
		d.Flavors = slices.Clone(d.Flavors) // do not modify the caller's slice
		p := kept[d.Name]
		t := o.File.Type(d.Name)
		if p == nil && (t == nil || t.Redline == nil) {
			continue
		}
		if p == nil {
			p = &Profile{}
		}
		o.profiles[d.Name] = p
		given := map[string]float64{}
		for _, f := range d.Flavors {
			given[f.Name] = f.Capacity
		}
		for _, size := range p.meet(given) {
			o.events.add(Event{Kind: EventMeasured, Type: d.Name, Cause: "file", Reason: fmt.Sprintf("the file has another capacity of size %s: %s/s count, not what was measured", size, vitrine.Digits(given[size]))})
		}
		if p.aim(d.Objective) {
			o.events.add(Event{Kind: EventMeasured, Type: d.Name, Cause: "file", Reason: "the file has another objective: its capacities count, not what was measured for the old one"})
		}
		for size, rate := range p.Measured {
			if t != nil && t.Redline != nil { // without a redline section, the capacities in the file apply
				o.setCapacity(d.Name, size, rate)
			}
		}
		if e := p.Under; e != nil {
			e.Verdict, e.Why = redline.Aborted, "the orchestrator was killed; the lease ended by itself"
			p.add(e, time.Now(), 0)
			o.events.add(Event{Kind: EventMeasured, Type: d.Name, Instance: e.Instance, Cause: decide.Cause(e.Verdict), Reason: e.String()})
		}
	}
}

// A RedlineStatus is the state of redline for a type.
type RedlineStatus struct {
	Under *Measured  `json:"under,omitempty"` // The measurement under way.
	Last  *Measured  `json:"last,omitempty"`
	Next  *time.Time `json:"next,omitempty"`      // Time of the next scheduled measurement, or of the retry after a failed one.
	Waits string     `json:"waits,omitempty"`     // Why a due measurement cannot begin.
	Ratio *float64   `json:"cpu_ratio,omitempty"` // CPU time of a transaction relative to the profile, median of the last minutes.

	history []Measured
}

// describeRedline returns the redline status of a type. nil: the type has no redline section,
// or the orchestrator has no Measurer.
func (o *Orchestrator) describeRedline(typeName string) *RedlineStatus {
	t, p := o.File.Type(typeName), o.profiles[typeName]
	if o.Redline == nil || t == nil || t.Redline == nil || p == nil {
		return nil
	}
	s := &RedlineStatus{Waits: p.waits, history: p.History}
	if p.Under != nil {
		under := *p.Under
		s.Under = &under
	}
	if last := p.last(); last != nil {
		s.Last = new(*last)
	}
	if !p.Next.IsZero() {
		s.Next = new(p.Next)
	}
	if ratio, ok := p.drifts.median(); ok {
		s.Ratio = new(ratio)
	}
	return s
}
