package meter

import (
	"slices"
	"time"

	"vitrine/director/latency"
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
	Quiet        bool // the last calls of Expire saw no request for a transaction's lifetime
}

// A Type holds the counts of one type. The Type without a name has the messages without a
// type.
type Type struct {
	Name     string
	Failures map[string]uint64 // messages that were not served, by the Cause's name; transport causes are excluded
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.workers) == 0 {
		return
	}
	w := m.workers[0] // its counts are atomic, and concurrent adds are rare
	m.flights.expire(now, func(slot uint16, heard bool) {
		c := w.counts(slot)
		if heard {
			c.ended[Proceeding].Add(1)
			c.proceeding.Add(-1)
			return
		}
		c.ended[Unanswered].Add(1)
		w.types[m.typeOf[slot].Load()].timeouts.Add(1)
	})
	looks := make(map[uint16]look, len(m.present))
	for slot := range m.present {
		seen, ok := m.looks[slot]
		if n := m.messages(slot); !ok || n != seen.messages {
			seen = look{messages: n, since: now}
		}
		seen.quiet = now-seen.since >= m.flights.lifetime
		looks[slot] = seen
	}
	m.looks = looks
}

// messages returns how many requests were sent to the instance of a slot.
func (m *Meter) messages(slot uint16) (n uint64) {
	for _, w := range m.workers {
		n += w.counts(slot).messages.Load()
	}
	return n
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
			s.Timeouts += t.timeouts.Load()
		}
		all[name] = s
	}
	return all
}

// Instances returns the counts of the instances in the table, by type and name.
func (m *Meter) Instances() []Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Instance, 0, len(m.present))
	for slot := range m.present {
		all = append(all, m.read(slot))
	}
	slices.SortFunc(all, func(a, b Instance) int {
		if a.Type < b.Type || a.Type == b.Type && a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// Instance returns the counts of one instance. They are 0 if it is not in the table.
func (m *Meter) Instance(ty, name string) Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slot, ok := m.slots[owner{ty, name}]; ok && m.present[slot] {
		return m.read(slot)
	}
	return Instance{Type: ty, Name: name}
}

// read adds up the counts of one slot.
func (m *Meter) read(slot uint16) Instance {
	o := m.owners[slot]
	seen := m.looks[slot]
	in := Instance{Type: o.ty, Name: o.name, Messages: m.messages(slot), Ended: make(map[string]uint64, outcomes)}
	in.Quiet = seen.quiet && seen.messages == in.Messages
	var ended uint64
	var proceeding int64
	for _, w := range m.workers {
		c := w.counts(slot)
		in.Untimed += c.untimed.Load()
		proceeding += c.proceeding.Load()
		in.DialogsBegun += c.dialogsBegun.Load()
		in.DialogsEnded += c.dialogsEnded.Load()
		in.Latency += time.Duration(c.microseconds.Load()) * time.Microsecond
		for b := range c.latency {
			in.Latencies.Add(b, c.latency[b].Load())
		}
		for o := range outcomes {
			n := c.ended[o].Load()
			in.Ended[o.String()] += n
			ended += n
		}
	}
	for _, w := range m.workers { // after the ends, so that no end counts without its begin
		in.Begun += w.counts(slot).begun.Load()
	}
	in.InFlight = in.Begun - min(in.Begun, ended+in.Untimed)
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
		t := Type{Failures: make(map[string]uint64, causes), Latency: make([]uint64, len(bounds)+1)}
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
	for _, count := range c.all() {
		count.Store(0)
	}
	c.proceeding.Store(0)
}
