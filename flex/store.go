package flex

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"vitrine/flex/config"
	"vitrine/flex/unit"
)

// storeEvery is the time between two queries of the store.
const storeEvery = 5 * time.Second

// silenceLimit is the time without an answer after which a store is reported. A store that starts
// answers sooner.
const silenceLimit = 30 * time.Second

// longestWait bounds the time after which a member of the store is stopped.
const longestWait = 24 * time.Hour

// firstStore is the name of the store in events; its members have the names of their services.
const firstStore = "the store"

// A StoreHealth is the answer of a store.
type StoreHealth struct {
	Engine string   // embedded, redis, etcd
	Shared bool     // several stores may use the engine's records at the same time
	Past   []string // operations past their threshold: too many requests are slow or refused

	Reasons map[string]string // why they are past it, by operation
}

// A storeWatch is the memory of the watch over the store and its members. A member is a further
// store over the same Redis or etcd.
type storeWatch struct {
	asked   time.Time
	past    []string            // operations past their threshold, at any of the stores
	reasons map[string]string   // why, by operation
	alerted []string            // operations of the last alert
	members int                 // members that must run
	adopted bool                // members of an earlier orchestrator are in members
	since   time.Time           // last change of members, or between slow and fast
	stopped time.Time           // when a member was last stopped
	wait    time.Duration       // time of fast operations after which a member is stopped, if above Stable
	silent  map[string]*silence // stores without a usable answer, by name
}

// A silence is the time in which a store gives no usable answer.
type silence struct {
	since   time.Time
	alerted bool
}

// A storeAnswer is the answer of the store, or of a member.
type storeAnswer struct {
	name, url string
	health    StoreHealth
	err       error
}

// askStores queries the store and its members at the same time. It returns nothing if no query is
// due.
func (o *Orchestrator) askStores(ctx context.Context, now time.Time) []storeAnswer {
	if o.Store == nil || now.Sub(o.store.asked) < storeEvery {
		return nil
	}
	all := []storeAnswer{{name: firstStore, url: o.File.Store.URL}}
	for n := range o.store.members {
		m := o.File.Store.Member
		all = append(all, storeAnswer{name: m.Service(n + 1).Name, url: m.URLOf(n + 1)})
	}
	var group sync.WaitGroup
	for i := range all {
		a := &all[i]
		group.Go(func() { a.health, a.err = o.Store(ctx, a.url) })
	}
	group.Wait()
	return all
}

// watchStore judges the answers of the store and its members. While operations are past their
// threshold, it adds members, or alerts with advice. When none has been for long enough, it stops
// members.
func (o *Orchestrator) watchStore(now time.Time, all []storeAnswer) {
	if len(all) == 0 {
		return
	}
	w := &o.store
	w.asked = now
	health, ok := o.joinAnswers(now, all)
	if !ok {
		if len(w.past) == 0 {
			w.since = now // the time without an answer does not count as fast
		}
		return
	}
	slow, was := len(health.Past) > 0, len(w.past) > 0
	if slow != was {
		w.since = now
	}
	if was && !slow {
		w.alerted = nil
		o.events.add(Event{Kind: EventBack, Cause: "store", Reason: "the store is within its threshold again"})
	}
	w.past, w.reasons = health.Past, health.Reasons
	if slow {
		o.relieveStore(now, health)
	} else {
		o.shrinkStore(now)
	}
}

// joinAnswers returns the answer of the first store, with the operations past their threshold at
// any of the stores. ok is false if one of them does not answer.
func (o *Orchestrator) joinAnswers(now time.Time, all []storeAnswer) (first StoreHealth, ok bool) {
	first, ok = all[0].health, true
	past, reasons := []string(nil), map[string]string{}
	for _, a := range all {
		if all[0].err == nil && a.err == nil && a.health.Engine != first.Engine {
			a.err = fmt.Errorf("its engine is %s, but that of the first store is %s: it has other records", a.health.Engine, first.Engine)
		}
		o.note(a.name, a.err)
		o.alertSilence(now, a.name, a.url, a.err)
		ok = ok && a.err == nil
		past = append(past, a.health.Past...)
		maps.Copy(reasons, a.health.Reasons)
	}
	slices.Sort(past)
	first.Past, first.Reasons = slices.Compact(past), reasons
	return first, ok
}

// isStoreAway reports whether neither the store nor a member of it gives a usable answer.
func (o *Orchestrator) isStoreAway() bool { return len(o.store.silent) > o.store.members }

// alerts returns how many alerts about the store still hold.
func (w *storeWatch) alerts() (n int) {
	if len(w.alerted) > 0 {
		n++
	}
	for _, s := range w.silent {
		if s.alerted {
			n++
		}
	}
	return n
}

// alertSilence alerts once when a store has given no usable answer for silenceLimit. Until it
// answers, no member starts or stops.
func (o *Orchestrator) alertSilence(now time.Time, name, url string, err error) {
	if err == nil {
		delete(o.store.silent, name)
		return
	}
	s := o.store.silent[name]
	if s == nil {
		s = &silence{since: now}
		o.store.silent[name] = s
	}
	silent := now.Sub(s.since)
	if s.alerted || silent < silenceLimit {
		return
	}
	s.alerted = true
	e := Event{Kind: EventAlert, Cause: "store"}
	advice := "Check store.url in " + o.File.Path + ", and that this store runs"
	if name != firstStore {
		e.Instance = name
		advice = fmt.Sprintf("Check that store.member in %s listens at this address, and see %s", o.File.Path, filepath.Join(o.File.State, "logs", servicePrefix+name))
	}
	e.Reason = fmt.Sprintf("%s at %s has given no usable answer for %s: %v. %s. Until it answers, no member of the store starts or stops. While no store answers, no instance is drained",
		name, url, silent.Round(time.Second), err, advice)
	o.events.add(e)
}

// explainPast lists the operations past their threshold with the reasons.
func (w *storeWatch) explainPast() string {
	var list []string
	for _, operation := range w.past {
		if why := w.reasons[operation]; why != "" {
			operation += " (" + why + ")"
		}
		list = append(list, operation)
	}
	return strings.Join(list, ", ")
}

// relieveStore adds a member when operations have been past their threshold for long enough, and
// alerts when another member is not possible.
func (o *Orchestrator) relieveStore(now time.Time, h StoreHealth) {
	w, m := &o.store, o.File.Store.Member
	if m != nil && h.Shared {
		if now.Sub(w.since) < m.After {
			return
		}
		if w.members < m.Max {
			o.addMember(now)
			return
		}
	}
	if slices.Equal(w.alerted, w.past) {
		return
	}
	w.alerted = w.past
	o.events.add(Event{Kind: EventAlert, Cause: "store", Reason: "the store is past its threshold for " + w.explainPast() + ". " + storeAdvice(h, m) + ". More instances would make it worse"})
}

// addMember adds a member, which runServices starts. A member that is needed again soon after
// its stop doubles the wait for the next stop.
func (o *Orchestrator) addMember(now time.Time) {
	w, m := &o.store, o.File.Store.Member
	if wait := max(w.wait, m.Stable); !w.stopped.IsZero() && now.Sub(w.stopped) < wait {
		w.wait = min(2*wait, longestWait)
	} else {
		w.wait = 0
	}
	w.members, w.since = w.members+1, now
	o.events.add(Event{Kind: EventService, Instance: m.Service(w.members).Name, Cause: "store", Reason: fmt.Sprintf(
		"the store is past its threshold for %s, for %s: member %d of %d starts, at %s", w.explainPast(), m.After, w.members, m.Max, m.URLOf(w.members))})
}

// shrinkStore stops the last member when all operations have been fast for long enough. The
// records are in the engine, so a stop loses none.
func (o *Orchestrator) shrinkStore(now time.Time) {
	w := &o.store
	if w.members == 0 {
		return
	}
	m := o.File.Store.Member
	wait := max(w.wait, m.Stable)
	if now.Sub(w.since) < wait {
		return
	}
	name := m.Service(w.members).Name
	delete(o.services, name)
	delete(o.away, name)
	w.members, w.since, w.stopped = w.members-1, now, now
	o.events.add(Event{Kind: EventService, Instance: name, Cause: "store", Reason: fmt.Sprintf("the store has been within its threshold for %s: the last member stops, to see whether fewer suffice", wait)})
}

// storeAdvice says what a user can do about a slow store.
func storeAdvice(h StoreHealth, m *config.StoreMember) string {
	if !h.Shared {
		return "The engine " + h.Engine + " has one store: give it more CPU or a faster disk, or keep the records in Redis or etcd, which several stores can share"
	}
	engine := "If the engine is slow, give it more CPU or a faster disk"
	switch h.Engine {
	case "redis":
		engine += ", or more masters in a Redis Cluster and more spaces; a replica takes no write"
	case "etcd":
		engine += "; another member of etcd makes writes slower"
	}
	if m == nil {
		return "If the store's process is short of CPU, give another store over the same engine as store.member. " + engine
	}
	return fmt.Sprintf("All %d members run: check that clients name all of them. %s", m.Max, engine)
}

// adoptMembers takes over the members that an earlier orchestrator started.
func (o *Orchestrator) adoptMembers(now time.Time, units map[string]unit.Unit) {
	w := &o.store
	if w.adopted || o.File.Store == nil || o.File.Store.Member == nil {
		return
	}
	w.adopted, w.since = true, now
	for n := 1; n <= o.File.Store.Member.Max; n++ {
		u, there := units[servicePrefix+o.File.Store.Member.Service(n).Name]
		if there && u.State != unit.Removing {
			w.members = n
		}
	}
}

// wantedServices returns the services of the file and the members of the store.
func (o *Orchestrator) wantedServices() []config.Service {
	all := slices.Clone(o.File.Services)
	for n := range o.store.members {
		all = append(all, o.File.Store.Member.Service(n+1))
	}
	return all
}
