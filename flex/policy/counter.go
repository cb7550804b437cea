package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"vitrine/flex/decide"
)

// A counter scales each type to the number of instances that its rules want, as a Kubernetes
// Deployment does. It uses only the flavor with the highest capacity per CPU.
type counter struct {
	label string
	of    func(t *decide.Type) rules
	types map[string]*track
}

// A track is the state of a counter for one type.
type track struct {
	rules
	replicas int       // desired instances; 0: no decision yet
	rates    window    // arriving rates of the last longestWindow
	failures int       // consecutive deaths
	waiting  int       // dead instances that the back-off keeps from being replaced
	until    time.Time // end of the back-off
}

// longestWindow is the longest window over which rules average.
const longestWindow = kpaStable

// Back-off of containers that end again and again
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
const (
	firstBackOff = 10 * time.Second // after the second death; the first has none. It doubles with each further one
	mostBackOff  = 5 * time.Minute
	lapse        = 10 * time.Minute // a death counts as the first if none came for this long after a back-off, or if the instance lived longer
)

// A sight is the input of rules in one second.
type sight struct {
	now    time.Time
	known  bool    // the rate is fresh
	rates  *window // arriving transactions/s
	have   int     // replicas of the last decision; before the first one, the running instances
	active int     // active instances
	first  bool    // the rules remember nothing, because they begin
	each   float64 // capacity of one instance, in transactions/s
}

// decide implements Policy.
func (c *counter) decide(v decide.View, _ *decide.Memory) []decide.Action {
	b := balance{View: &v, used: decide.Used(&v), actions: decide.Clear(&v)}
	for i := range v.Types {
		t := &v.Types[i]
		k := c.types[t.Name]
		if k == nil {
			k = &track{rules: c.of(&t.Type)}
			c.types[t.Name] = k
		}
		k.learn(&v, t)
		c.scale(&b, t, k)
	}
	return b.actions
}

// learn adds the rate and the deaths since the last view. Deaths in the same second count as one: in
// Kubernetes each container has its own back-off.
func (k *track) learn(v *decide.View, t *decide.TypeView) {
	if t.Known {
		k.rates.add(v.Now, t.Rate, longestWindow)
	}
	died, long := 0, true // long: each of them had run for longer than lapse
	for _, d := range v.Died {
		if d.Type == t.Name {
			died, long = died+1, long && d.Lived > lapse
		}
	}
	if died == 0 {
		return
	}
	if long || v.Now.Sub(k.until) > lapse {
		k.failures = 0
	}
	k.until = v.Now
	if k.failures > 0 {
		k.until = v.Now.Add(min(mostBackOff, firstBackOff<<min(k.failures-1, 10)))
	}
	k.failures++
	k.waiting += died
}

// scale starts or removes instances of a type.
func (c *counter) scale(b *balance, t *decide.TypeView, k *track) {
	flavor := t.Lean()
	have, s := 0, sight{now: b.Now, known: t.Known, rates: &k.rates, have: k.replicas, each: flavor.Capacity}
	for i := range b.Instances {
		if in := &b.Instances[i]; in.Type == t.Name && in.State <= decide.Active {
			have++
			if in.State == decide.Active {
				s.active++
			}
		}
	}
	if k.replicas == 0 {
		s.have, s.first = have, true
	}
	want, why := k.wanted(&s)
	n := min(max(want, t.Min), t.Max)
	k.replicas = n
	cause := decide.CauseRate
	switch {
	case n > want:
		cause, why = decide.CauseMinimum, fmt.Sprintf("%s; the minimum is %d", why, t.Min)
	case n < want:
		cause, why = decide.CauseMaximum, fmt.Sprintf("%s; the maximum is %d", why, t.Max)
	}
	why = c.label + ": " + why
	if k.waiting = min(k.waiting, max(0, n-have)); !b.Now.Before(k.until) {
		k.waiting = 0
	}
	switch {
	case t.Leased && n != have:
		b.hold(t, decide.CauseLease, why+": redline measures an instance")
	case have < n:
		if k.waiting > 0 { // a Deployment does not wait with new pods for a container in back-off
			b.hold(t, decide.CauseBackOff, fmt.Sprintf("%s: instances died %d times in a row", why, k.failures))
		}
		b.start(t, flavor, n-have-k.waiting, cause, why)
	case have > n:
		b.take(t, have-n, why)
	}
}

// A balance collects the actions of one second.
type balance struct {
	*decide.View
	used    decide.Limits
	actions []decide.Action
}

func (b *balance) hold(t *decide.TypeView, cause decide.Cause, why string) {
	b.actions = append(b.actions, decide.Action{Kind: decide.Hold, Type: t.Name, Cause: cause, Reason: why})
}

// start starts n instances, or as many as the limits allow. In Kubernetes the rest would be
// Pending pods.
func (b *balance) start(t *decide.TypeView, flavor *decide.Flavor, n int, cause decide.Cause, why string) {
	for range n {
		if !b.Limits.Allow(b.used, flavor) {
			b.hold(t, decide.CauseTotal, why+": the limits of all types together, or of the host, are reached")
			return
		}
		b.used.Add(flavor)
		b.used.Starting++
		b.actions = append(b.actions, decide.Action{Kind: decide.Start, Type: t.Name, Flavor: flavor.Name, Cause: cause, Reason: why})
	}
}

// take removes n instances: first the instances that are not active, then the newest
// (https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-a-replicaset).
func (b *balance) take(t *decide.TypeView, n int, why string) {
	var all []*decide.Instance
	for i := range b.Instances {
		if in := &b.Instances[i]; in.Type == t.Name && in.State <= decide.Active {
			all = append(all, in)
		}
	}
	slices.SortStableFunc(all, func(x, y *decide.Instance) int {
		return cmp.Or(cmp.Compare(x.State, y.State), y.Since.Compare(x.Since))
	})
	for _, in := range all[:n] {
		kind := decide.Drain
		if in.State != decide.Active {
			kind = decide.Stop // it has no traffic yet, so it need not drain
		}
		b.actions = append(b.actions, decide.Action{Kind: kind, Type: t.Name, Instance: in.Name, Cause: decide.CauseIdle, Reason: why})
	}
}
