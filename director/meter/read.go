package meter

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"vitrine/director/latency"
	"vitrine/director/table"
)

// An Instance holds the counts of one instance since the director's start, over all
// workers.
type Instance struct {
	Type, Name   string
	Messages     uint64            // requests sent there, retransmissions and ACKs included
	Begun        uint64            // transactions
	Ended        map[string]uint64 // transactions, by the Outcome's name
	InFlight     uint64            // transactions, now
	Proceeding   uint64            // of those in flight, the ones for which Hear noted a response: INVITEs that ring
	Untimed      uint64            // transactions that were forgotten for lack of room; not in Ended
	Latency      time.Duration     // sum of the latencies
	Latencies    latency.Histogram // from request to final answer, or to the first response that Hear noted
	DialogsBegun uint64
	DialogsEnded uint64
	Dialogs      int64 // begun less ended and those of SetDialogs, without those from before it was removed
	Quiet        bool  // the last calls of Expire saw no request for a transaction's lifetime
}

// A Type holds the counts of one type. The Type without a name has the messages without a
// type.
type Type struct {
	Name     string
	Failures map[string]uint64 // messages that were not served, by the Cause's name; transport causes are excluded
	Failed   map[string]uint64 // transactions that ended as Failed, Busy or Unanswered, by the Outcome's name; also at removed instances
	Latency  []uint64          // latencies in each bucket of Bounds, and above
	Total    time.Duration     // sum of all latencies
}

// A look is the number of requests to an instance, as the last Expire found it.
type look struct {
	messages uint64
	since    time.Duration // when Expire first found that number
	quiet    bool
}

// Expire ends the transactions without a final answer within their lifetime, and finds
// the instances that are quiet. Call it about once a second.
func (m *Meter) Expire(now time.Duration) {
	at := m.snapshot()
	if len(at.workers) == 0 {
		return
	}
	m.expire(now)
	looks := make(map[owner]look, len(at.targets))
	for _, target := range at.targets {
		seen, ok := at.looks[ownerOf(target)]
		if n := at.messages(target.Slot); !ok || n != seen.messages {
			seen = look{messages: n, since: now}
		}
		seen.quiet = now-seen.since >= m.flights.lifetime
		looks[ownerOf(target)] = seen
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks = looks
}

// expire ends the transactions without a final answer within their lifetime. It holds the lock, because
// Carry must not see a transaction in flight and ended.
func (m *Meter) expire(now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[0] // its counts are atomic, and concurrent adds are rare
	m.flights.expire(now, func(slot uint16, heard bool) {
		c := w.counts(slot)
		if heard {
			c.ended[Proceeding].Add(1)
			c.proceeding.Add(-1)
			return
		}
		c.ended[Unanswered].Add(1)
		w.types[m.typeOf[slot].Load()].failed[Unanswered].Add(1)
	})
}

// A snapshot is what a Meter counts for at one time. Many workers have many counts, so they are read
// without the lock. Nothing in a snapshot changes, except the counts.
type snapshot struct {
	workers []*Worker
	targets []*table.Target
	looks   map[owner]look
}

func (m *Meter) snapshot() snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return snapshot{m.workers, m.targets, m.looks}
}

// messages returns how many requests were sent to the instance of a slot.
func (at *snapshot) messages(slot uint16) (n uint64) {
	for _, w := range at.workers {
		n += w.counts(slot).messages.Load()
	}
	return n
}

// A flow is what became of the transactions of a slot.
type flow struct {
	begun, untimed, inFlight uint64
	ended                    [outcomes]uint64
}

func (at *snapshot) flow(slot uint16) (f flow) {
	gone := uint64(0)
	for _, w := range at.workers {
		c := w.counts(slot)
		f.untimed += c.untimed.Load()
		for o := range outcomes {
			n := c.ended[o].Load()
			f.ended[o] += n
			gone += n
		}
	}
	for _, w := range at.workers { // after the ends, so that no end counts without its begin
		f.begun += w.counts(slot).begun.Load()
	}
	f.inFlight = f.begun - min(f.begun, gone+f.untimed)
	return f
}

// InFlight returns the number of transactions in flight of each instance in the table, by name. It
// reads a few counts of an instance, where Instances reads its histogram.
func (m *Meter) InFlight() map[string]uint64 {
	at := m.snapshot()
	all := make(map[string]uint64, len(at.targets))
	for _, target := range at.targets {
		all[target.Name] = at.flow(target.Slot).inFlight
	}
	return all
}

// dialogs returns the number of open dialogs of the instance of a slot.
func (at *snapshot) dialogs(slot uint16) (n int64) {
	for _, w := range at.workers {
		c := w.counts(slot)
		n += int64(c.dialogsBegun.Load() - c.dialogsEnded.Load() - c.dialogsForgotten.Load())
	}
	return n
}

// Dialogs returns the number of dialogs of the instances in the table whose type waits reports, by name.
// Instances without dialogs are left out.
func (m *Meter) Dialogs(waits func(typeName string) bool) map[string]int64 {
	at, all := m.snapshot(), map[string]int64{}
	for _, target := range at.targets {
		if n := at.dialogs(target.Slot); n != 0 && waits(target.TypeName()) {
			all[target.Name] = n
		}
	}
	return all
}

// SetDialogs adds the dialogs that Dialogs returned in a process before this one. Call it after the table is
// registered and the workers are made, and before they run. The counts of begins and ends stay, because
// counters of Prometheus must not jump.
func (m *Meter) SetDialogs(dialogs map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, target := range m.targets {
		if n := dialogs[target.Name]; n != 0 && len(m.workers) > 0 {
			m.workers[0].counts(target.Slot).dialogsForgotten.Store(uint64(-n))
		}
	}
}

// Samples are the input of a type's gate.
type Samples struct {
	Count    uint64        // latencies
	Total    time.Duration // sum of the latencies
	Timeouts uint64        // transactions that ended as Unanswered
}

// Samples returns the samples of each type, by name. They only grow: they include those
// of removed instances.
func (m *Meter) Samples() map[string]Samples {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]Samples, len(m.types))
	for ty, name := range m.types {
		var s Samples
		for _, w := range m.workers {
			t := &w.types[ty]
			s.Total += time.Duration(t.sampleMicroseconds.Load()) * time.Microsecond
			s.Count += t.samples.Load()
			s.Timeouts += t.failed[Unanswered].Load()
		}
		all[name] = s
	}
	return all
}

// Instances returns the counts of the instances in the table, by type and name.
func (m *Meter) Instances() []Instance {
	at := m.snapshot()
	order := slices.SortedFunc(slices.Values(at.targets), func(a, b *table.Target) int {
		return cmp.Or(strings.Compare(a.TypeName(), b.TypeName()), strings.Compare(a.Name, b.Name))
	})
	all := make([]Instance, len(order))
	for i, target := range order {
		all[i] = at.read(target)
	}
	return all
}

// Instance returns the counts of one instance. They are 0 if it is not in the table.
func (m *Meter) Instance(ty, name string) Instance {
	at := m.snapshot()
	for _, target := range at.targets {
		if target.Name == name && target.TypeName() == ty {
			return at.read(target)
		}
	}
	return Instance{Type: ty, Name: name}
}

// read adds up the counts of one instance.
func (at *snapshot) read(target *table.Target) Instance {
	slot, f := target.Slot, at.flow(target.Slot)
	seen := at.looks[ownerOf(target)]
	in := Instance{Type: target.TypeName(), Name: target.Name, Messages: at.messages(slot), Begun: f.begun, Untimed: f.untimed, InFlight: f.inFlight}
	in.Quiet, in.Dialogs = seen.quiet && seen.messages == in.Messages, at.dialogs(slot)
	in.Ended = make(map[string]uint64, outcomes)
	for o := range outcomes {
		in.Ended[o.String()] = f.ended[o]
	}
	var proceeding int64
	for _, w := range at.workers {
		c := w.counts(slot)
		proceeding += c.proceeding.Load()
		in.DialogsBegun += c.dialogsBegun.Load()
		in.DialogsEnded += c.dialogsEnded.Load()
		in.Latency += time.Duration(c.microseconds.Load()) * time.Microsecond
		for b := range c.latency {
			in.Latencies.Add(b, c.latency[b].Load())
		}
	}
	in.Proceeding = min(in.InFlight, uint64(max(proceeding, 0))) // counts change while they are read
	return in
}

// Types returns the counts of the types, in the table's order, and last the counts of
// messages without a type.
func (m *Meter) Types() []Type {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Type, 0, len(m.types)+1)
	for i := range len(m.types) + 1 {
		t := Type{Failures: make(map[string]uint64, causes), Failed: map[string]uint64{}, Latency: make([]uint64, len(bounds)+1)}
		at := int(NoType)
		if i < len(m.types) {
			t.Name, at = m.types[i], i
		}
		for _, w := range m.workers {
			for _, c := range Causes() {
				if c.isTransport() {
					continue
				}
				t.Failures[c.String()] += w.types[at].failures[c].Load()
			}
			for _, o := range [...]Outcome{Failed, Busy, Unanswered} {
				t.Failed[o.String()] += w.types[at].failed[o].Load()
			}
			t.Total += time.Duration(w.types[at].microseconds.Load()) * time.Microsecond
			for b := range t.Latency {
				t.Latency[b] += w.types[at].latency[b].Load()
			}
		}
		all = append(all, t)
	}
	return all
}

func (c *instanceCounts) reset() {
	for _, count := range c.all(nil) {
		count.Store(0)
	}
	c.proceeding.Store(0)
}
