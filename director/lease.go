package director

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"vitrine"
	"vitrine/director/client"
)

// Limits of a lease.
const (
	minTTL    = time.Second
	maxTTL    = 10 * time.Minute
	maxHolder = 64        // bytes
	maxToken  = 1<<53 - 1 // integers up to here are exact in all readers of JSON
	minWeight = 1e-9      // of a leased weight above 0
	maxWeight = 1e12
)

// A lease is the overlay of one type's weights in an epoch.
type lease struct {
	Type    string             `json:"type"`
	Token   uint64             `json:"token"`
	Weights map[string]float64 `json:"weights,omitempty"` // by instance; 0: no new work
}

func (l lease) sameAs(o lease) bool {
	return l.Type == o.Type && l.Token == o.Token && maps.Equal(l.Weights, o.Weights)
}

// A term is the latest lease of a type. It is kept after the lease is over, because its
// token fences off earlier holders.
type term struct {
	Token   uint64             `json:"token"`
	Holder  string             `json:"holder,omitempty"` // empty: the lease is over
	Weights map[string]float64 `json:"weights,omitempty"`
	TTL     time.Duration      `json:"ttl_ns,omitempty"`
	Until   time.Duration      `json:"until_ns,omitempty"` // since Boot
	Boot    string             `json:"boot_id,omitempty"`
	Wall    time.Time          `json:"until,omitzero"` // for another boot
}

func (t term) isHeld() bool { return t.Holder != "" }

// over returns the term after the end of its lease: only the token remains.
func (t term) over() term { return term{Token: t.Token} }

// prolong lets the term end a TTL from now.
func (t *term) prolong(c Clock, ttl time.Duration) {
	t.TTL = ttl
	t.Until, t.Boot, t.Wall = c.Now()+ttl, c.Boot, c.Wall().Add(ttl)
}

// A Conflict is the error if another holder has the lease, or if the token is stale.
type Conflict struct{ Why string }

func (e *Conflict) Error() string { return e.Why }

// overlaid returns the instances with the leased weights. An instance with weight 0 drains.
// If that left a type without an active instance, the instances of the type keep their
// states: they may have changed since the lease began.
func (e *epochState) overlaid() []vitrine.Instance {
	if len(e.Leases) == 0 {
		return e.Instances
	}
	all := slices.Clone(e.Instances)
	for _, l := range e.Leases {
		open := false
		for i := range all {
			w, leased := l.Weights[all[i].Name]
			open = open || all[i].Type == l.Type && all[i].State == vitrine.Active && (!leased || w > 0)
		}
		for i := range all {
			w, leased := l.Weights[all[i].Name]
			switch {
			case all[i].Type != l.Type || !leased:
			case w > 0:
				all[i].Weight = w
			case open && all[i].State == vitrine.Active:
				all[i].State = vitrine.Draining
			}
		}
	}
	return all
}

// leases returns the leases that are held, by type. The caller holds the roster's lock.
func (r *roster) leases() (all []lease) {
	for _, name := range slices.Sorted(maps.Keys(r.terms)) {
		if t := r.terms[name]; t.isHeld() {
			all = append(all, lease{Type: name, Token: t.Token, Weights: maps.Clone(t.Weights)})
		}
	}
	return all
}

// allTerms returns a copy of the latest leases, for the state file.
func (r *roster) allTerms() map[string]term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.terms) // weights are replaced, never changed
}

// leasedWeight returns the weight of an instance by its type's lease, or nil.
func (r *roster) leasedWeight(in *vitrine.Instance) *float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, leased := r.terms[in.Type].Weights[in.Name]; leased {
		return &w
	}
	return nil
}

// acquire begins a lease. A token of 0 means the next one.
func (r *roster) acquire(c Clock, typeName string, q client.LeaseRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.terms[typeName]
	switch {
	case r.frozen:
		return errFrozen
	case old.isHeld() && old.Until > c.Now():
		return &Conflict{fmt.Sprintf("the lease of type %s is %s's, with token %d, for %.1f s more", typeName, old.Holder, old.Token, (old.Until - c.Now()).Seconds())}
	case q.Token != 0 && q.Token <= old.Token:
		return &Conflict{fmt.Sprintf("token %d for type %s is stale: the last one was %d", q.Token, typeName, old.Token)}
	case q.Token == 0 && old.Token >= maxToken:
		return &Conflict{fmt.Sprintf("the tokens of type %s are used up: stop the director and remove terms from its state file", typeName)}
	}
	fresh := term{Token: cmp.Or(q.Token, old.Token+1), Holder: q.Holder, Weights: maps.Clone(q.Weights)}
	if err := r.checkWeights(typeName, fresh.Weights); err != nil {
		return err
	}
	fresh.prolong(c, seconds(q.TTL))
	r.terms[typeName] = fresh
	r.touch(true)
	return nil
}

// renew prolongs a lease, and may replace its weights.
func (r *roster) renew(c Clock, typeName string, token uint64, change client.LeaseChange) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		return errFrozen
	}
	t := r.terms[typeName]
	if err := t.fence(c, typeName, token); err != nil {
		return err
	}
	if change.Weights != nil {
		if err := r.checkWeights(typeName, change.Weights); err != nil {
			return err
		}
	}
	t.prolong(c, cmp.Or(seconds(change.TTL), t.TTL))
	differs := change.Weights != nil && !maps.Equal(t.Weights, change.Weights)
	if differs {
		t.Weights = maps.Clone(change.Weights)
	}
	r.terms[typeName] = t
	if differs {
		r.touch(true)
	}
	return nil
}

// fence returns a *Conflict if the token does not belong to a lease that is held.
func (t term) fence(c Clock, typeName string, token uint64) error {
	if t.isHeld() && t.Until > c.Now() && t.Token == token {
		return nil
	}
	return &Conflict{fmt.Sprintf("token %d for type %s is stale: its lease is over (the last token was %d)", token, typeName, t.Token)}
}

// release ends a lease. A token that was not seen yet counts as used, so that an acquisition
// with it that is still on its way is refused.
func (r *roster) release(typeName string, token uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.terms[typeName]
	switch {
	case r.frozen:
		return errFrozen
	case token < t.Token:
		return &Conflict{fmt.Sprintf("token %d for type %s is stale: the last one was %d", token, typeName, t.Token)}
	case token > t.Token && t.isHeld():
		return &Conflict{fmt.Sprintf("token %d for type %s is not the lease's: that has token %d and is %s's", token, typeName, t.Token, t.Holder)}
	}
	r.terms[typeName] = term{Token: token}
	r.touch(true)
	return nil
}

// expireTerms ends the leases that were not renewed in time, and returns them by type.
func (r *roster) expireTerms(now time.Duration) map[string]term {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := map[string]term{}
	for name, t := range r.terms {
		if !r.frozen && t.isHeld() && t.Until <= now {
			ended[name] = t
			r.terms[name] = t.over()
			r.touch(true)
		}
	}
	return ended
}

// checkWeights checks that the weights of a lease are of the type's instances, and that at
// least one active instance still gets new work.
func (r *roster) checkWeights(typeName string, weights map[string]float64) error {
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "lease of type " + typeName, Found: found, Want: want}
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		w := weights[name]
		if in, ok := r.instances[name]; !ok || in.Type != typeName {
			return bad("no instance "+name+" of this type", "want instances of the type")
		}
		if w != 0 && !(w >= minWeight && w <= maxWeight) {
			return bad(fmt.Sprintf("weight %v of instance %s", w, name), fmt.Sprintf("want 0, for no new work, or a number from %g to %g", minWeight, maxWeight))
		}
	}
	active, open := 0, 0
	for name, in := range r.instances {
		if in.Type != typeName || in.State != vitrine.Active {
			continue
		}
		active++
		if w, leased := weights[name]; !leased || w > 0 {
			open++
		}
	}
	if active > 0 && open == 0 {
		return bad("weight 0 for all active instances", "leave one that gets new work")
	}
	return nil
}

// checkScaling refuses a change to the set of active instances of a type whose lease is
// held. An active instance that is away may leave the set. old is nil if the instance is
// new, now is nil if it is removed. The caller holds the lock.
func (r *roster) checkScaling(old, now *vitrine.Instance) error {
	wasActive, isActive := old != nil && old.State == vitrine.Active, now != nil && now.State == vitrine.Active
	if wasActive && isActive && old.Type == now.Type && old.Address == now.Address {
		return nil
	}
	refuse := func(in *vitrine.Instance, what string) error {
		t := r.terms[in.Type]
		return &Conflict{fmt.Sprintf("%s has the lease of type %s, with token %d: %s %s when the lease is over", t.Holder, in.Type, t.Token, in.Name, what)}
	}
	switch {
	case isActive && r.terms[now.Type].isHeld():
		return refuse(now, "can become active")
	case wasActive && r.terms[old.Type].isHeld() && !r.away(old.Name):
		return refuse(old, "can leave the active instances")
	}
	return nil
}

// listLeases returns the leases that are held, by type.
func (r *roster) listLeases(now time.Duration) []client.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []client.Lease{}
	for _, name := range slices.Sorted(maps.Keys(r.terms)) {
		if t := r.terms[name]; t.isHeld() {
			all = append(all, t.view(name, now))
		}
	}
	return all
}

// viewLease returns the lease of a type, whether it is held or not.
func (r *roster) viewLease(typeName string, now time.Duration) client.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms[typeName].view(typeName, now)
}

func (t term) view(typeName string, now time.Duration) client.Lease {
	l := client.Lease{Type: typeName, Token: t.Token, Holder: t.Holder, Weights: t.Weights, TTL: t.TTL.Seconds()}
	if t.isHeld() {
		l.Left = max(0, t.Until-now).Seconds()
	}
	return l
}

// termsFor returns the leases of the types that the configuration has. After another boot,
// the calendar clock tells how long a lease has left, at most its TTL.
func (s *state) termsFor(c *Config, clock Clock) map[string]term {
	all := map[string]term{}
	for name, t := range s.Terms {
		if c.Type(name) == nil {
			continue
		}
		if t.isHeld() && t.Boot != clock.Boot {
			left := min(max(t.Wall.Sub(clock.Wall()), 0), t.TTL)
			t.Until, t.Boot = clock.Now()+left, clock.Boot
		}
		if t.Until <= clock.Now() {
			t = t.over()
		}
		all[name] = t
	}
	return all
}

// expireLeases ends the leases that were not renewed in time. The change is an ordinary epoch.
func (d *Director) expireLeases() {
	for name, t := range d.roster.expireTerms(d.now()) {
		d.log.Warn("lease expired; the base weights come back", "type", name, "holder", t.Holder, "token", t.Token)
	}
}

// saveTerms writes the state to disk if leases have been renewed or counts of dialogs have changed since,
// or if the last write failed. Changes of leases are written with their epoch. So a process that dies may
// forget the last renewals, and a lease may then end too early, but not too late.
func (d *Director) saveTerms() {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.keepTerms(d.dialogs())
}

// saveLast is saveTerms at the end of Run. It waits for the disk without a limit, because a write must not
// replace the file after a later director has read it.
func (d *Director) saveLast() {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.disk.wait()
	d.keepTerms(d.dialogs())
	d.disk.wait()
}

// keepTerms is saveTerms for a caller that holds the lock of publications.
func (d *Director) keepTerms(dialogs map[string]int64) {
	terms := d.roster.allTerms()
	if d.frozen || d.unsaved == nil && maps.Equal(dialogs, d.state.Dialogs) && maps.EqualFunc(terms, d.state.Terms, func(a, b term) bool { return a.Token == b.Token && a.Until == b.Until }) {
		return
	}
	d.state.Terms, d.state.Dialogs = terms, dialogs
	d.save()
}

// dialogs returns the open dialogs of the instances whose draining waits for them, by name. Those of S1AP
// end with the process.
func (d *Director) dialogs() map[string]int64 {
	c := d.config.Load()
	return d.meter.Dialogs(func(typeName string) bool {
		t := c.Type(typeName)
		return t != nil && t.Drain == DrainDialogs && t.Protocol != S1AP
	})
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
