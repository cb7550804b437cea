package meter

import (
	"encoding/gob"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"vitrine/director/table"
)

// carried is the state that one process hands over to the next.
type carried struct {
	Lines     int      // number of lines
	Line      []uint32 // of each flight
	Entry     []uint64 // with the slot of the process that wrote it
	Instances []carriedInstance
	Types     []carriedType // by table.Type; the last is for messages without a type
}

type carriedInstance struct {
	Type, Name string
	Slot       uint16
	Counts     []uint64 // in the order of instanceCounts.all
}

type carriedType struct {
	Name   string   // empty: an older process wrote it, or no type has this number
	Counts []uint64 // in the order of typeCounts.all
}

// Carry writes all counts and the transactions in flight, for another process on the same
// host and with the same clock to continue. The workers must have stopped.
func (m *Meter) Carry(to io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := carried{Lines: len(m.flights.lines)}
	for n := range m.flights.lines {
		for i := range m.flights.lines[n] {
			if e := m.flights.lines[n][i].Load(); e != 0 {
				c.Line, c.Entry = append(c.Line, uint32(n)), append(c.Entry, e)
			}
		}
	}
	for _, slot := range m.removed { // an instance may come back in the next process
		m.forgetDialogs(slot)
	}
	for o, slot := range m.slots {
		c.Instances = append(c.Instances, carriedInstance{Type: o.ty, Name: o.name, Slot: slot})
	}
	var adding sync.WaitGroup // nothing serves meanwhile, and many workers have many counts
	for some := range slices.Chunk(c.Instances, chunkSize) {
		adding.Go(func() { m.addUp(some) })
	}
	adding.Wait()
	var counts []*atomic.Uint64
	for ty := range table.MaxTypes + 1 {
		var t carriedType
		if ty < len(m.types) {
			t.Name = m.types[ty]
		}
		for _, w := range m.workers {
			counts = w.types[ty].all(counts[:0])
			t.Counts = sum(t.Counts, counts)
		}
		c.Types = append(c.Types, t)
	}
	if err := gob.NewEncoder(to).Encode(c); err != nil {
		return fmt.Errorf("hand over counts: %w", err)
	}
	return nil
}

// addUp sets the counts of some instances to the sums over the workers.
func (m *Meter) addUp(some []carriedInstance) {
	var counts []*atomic.Uint64
	for i := range some {
		for _, w := range m.workers {
			counts = w.counts(some[i].Slot).all(counts[:0])
			some[i].Counts = sum(some[i].Counts, counts)
		}
	}
}

// TakeOver reads what Carry wrote. Call it after the table is registered and the workers
// are made, and before they run. Counts of instances and types that are not in the table are
// dropped. If from is not an io.ByteReader, TakeOver may read too much from it.
func (m *Meter) TakeOver(from io.Reader) error {
	var c carried
	if err := gob.NewDecoder(from).Decode(&c); err != nil {
		return fmt.Errorf("take counts over: %w", err)
	}
	if len(c.Line) != len(c.Entry) {
		return fmt.Errorf("take counts over: %d lines of %d entries", len(c.Line), len(c.Entry))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.workers) == 0 {
		return nil
	}
	w := m.workers[0]
	slots := make(map[uint16]uint16, len(c.Instances))
	var counts []*atomic.Uint64
	for _, in := range c.Instances {
		if slot, ok := m.slots[owner{in.Type, in.Name}]; ok {
			slots[in.Slot] = slot
			w.counts(slot).dialogsForgotten.Store(0) // SetDialogs had an older count
			counts = w.counts(slot).all(counts[:0])
			addTo(counts, in.Counts)
		}
	}
	for ty, t := range c.Types {
		if t.Name != "" {
			ty = slices.Index(m.types, t.Name)
		}
		if ty >= 0 && ty < len(w.types) {
			counts = w.types[ty].all(counts[:0])
			addTo(counts, t.Counts)
		}
	}
	m.newRefusals() // the previous process has reported these
	for i, line := range c.Line {
		entry := c.Entry[i]
		same := c.Lines == len(m.flights.lines) && int(line) < c.Lines
		slot, ok := slots[slotOf(entry)]
		switch {
		case slotOf(entry) == 0 && same:
			m.flights.put(line, entry) // if there is no room, a retransmission may count as a new transaction
		case ok && same && m.flights.put(line, entry&^slotMask|uint64(slot)<<timeBits):
			if entry&heardBit != 0 {
				w.counts(slot).proceeding.Add(1)
			}
		case ok:
			w.counts(slot).untimed.Add(1)
		}
	}
	return nil
}

// put adds an entry to line n, and returns false if the line is full.
func (f *flights) put(n uint32, entry uint64) bool {
	for i := range f.lines[n] {
		if f.lines[n][i].CompareAndSwap(0, entry) {
			return true
		}
	}
	return false
}

// all appends the counts to a slice, in a fixed order. proceeding is not among them, because the
// entries of the transactions in flight tell it.
func (c *instanceCounts) all(to []*atomic.Uint64) []*atomic.Uint64 {
	to = append(to, &c.messages, &c.begun, &c.microseconds, &c.dialogsBegun, &c.dialogsEnded, &c.untimed)
	for o := range c.ended[:Proceeding] {
		to = append(to, &c.ended[o])
	}
	// A process of another version may know only the counts above.
	for i := range c.latency {
		to = append(to, &c.latency[i])
	}
	// Or only those above.
	return append(to, &c.ended[Proceeding], &c.dialogsForgotten)
}

// all appends the counts to a slice, in a fixed order.
func (c *typeCounts) all(to []*atomic.Uint64) []*atomic.Uint64 {
	to = append(to, &c.microseconds)
	for i := range c.failures[:Unverified] {
		to = append(to, &c.failures[i])
	}
	for i := range c.latency {
		to = append(to, &c.latency[i])
	}
	// A process of another version may know only the counts above.
	to = append(to, &c.samples, &c.sampleMicroseconds, &c.failed[Unanswered], &c.failures[Unverified], &c.failures[OverQuota], &c.failures[Stranger], &c.failures[NoRoom])
	// Or only those above.
	return append(to, &c.failed[Failed], &c.failed[Busy])
}

func sum(to []uint64, counts []*atomic.Uint64) []uint64 {
	if to == nil {
		to = make([]uint64, len(counts))
	}
	for i := range counts {
		to[i] += counts[i].Load()
	}
	return to
}

func addTo(counts []*atomic.Uint64, more []uint64) {
	for i := range min(len(counts), len(more)) {
		counts[i].Add(more[i])
	}
}
