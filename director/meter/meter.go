// Package meter counts the messages, transactions and dialogs of a director's workers, by
// aggregate type and instance, and times transactions. These are the figures that an
// orchestrator needs to scale and to drain. Per message, the meter takes no lock and
// allocates nothing.
//
// Each count is written by one worker; readers add the workers up. The transactions in
// flight are in one table that all workers share, because the kernel may give the
// response to another worker than the request.
package meter

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/latency"
	"vitrine/director/table"
)

// A Cause tells why a message was not served.
type Cause uint8

// The causes.
const (
	NoInstance Cause = iota // the type has no available instance
	Overloaded              // the gate of the type refused it
	Malformed               // it does not parse, or is not allowed
	Unruled                 // no rule maps it to a type
	TooManyHops
	Looped
	Unsent       // the kernel refused it, or the connection broke
	Unroutable   // a response or a request without a destination
	Unverified   // a response without a valid MAC, to nothing that a director sent
	OverQuota    // its source is over the quota
	SocketFull   // the kernel dropped it because the socket's buffer was full
	QueueFull    // the queue of its connection, or all queues, had no room
	NoConnection // there may be no further connection to its destination now
	Stranger     // its source may not send here
	NoRoom       // as many connections of UEs are open as allowed
	causes
)

var causeNames = [causes]string{
	"no_instance", "overloaded", "malformed", "unruled", "too_many_hops", "looped", "unsent", "unroutable", "unverified",
	"over_quota", "socket_full", "queue_full", "no_connection", "stranger", "no_room",
}

func (c Cause) String() string {
	if c < causes {
		return causeNames[c]
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}

// An Outcome tells how a transaction ended.
type Outcome uint8

// The outcomes.
const (
	Succeeded  Outcome = iota
	Declined           // the function answered that it will not: 3xx to 6xx except those below
	Failed             // the function answered that it cannot: 5xx except 503
	Busy               // the function is overloaded: 503
	Unanswered         // no final answer within a transition, and Hear noted no response
	Proceeding         // no final answer within a transition, but Hear noted a response: an INVITE that rings
	outcomes
)

var outcomeNames = [outcomes]string{"succeeded", "declined", "failed", "busy", "unanswered", "proceeding"}

func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Bounds returns the upper bounds of the buckets of a type's latency histogram, in microseconds.
// One more bucket holds all above the last.
func Bounds() []uint64 { return bounds[:] }

var bounds = [...]uint64{250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000}

// instanceCounts are the counts of one worker for one instance.
type instanceCounts struct {
	messages     atomic.Uint64 // requests sent there, retransmissions and ACKs included
	begun        atomic.Uint64
	ended        [outcomes]atomic.Uint64
	microseconds atomic.Uint64 // sum of the latencies
	dialogsBegun atomic.Uint64
	dialogsEnded atomic.Uint64
	untimed      atomic.Uint64 // begun, and forgotten for lack of room

	// dialogsForgotten counts the dialogs that the instance had when it was removed. It is negative, a
	// two's complement, if this worker got their ends and others their begins, or for SetDialogs.
	dialogsForgotten atomic.Uint64

	// proceeding counts the transactions in flight for which Hear noted a response. It is below
	// 0 if this worker got the final answers, and others the first responses.
	proceeding atomic.Int64

	latency [latency.Buckets]atomic.Uint64
}

// typeCounts are the counts of one worker for one type.
type typeCounts struct {
	failures     [causes]atomic.Uint64
	latency      [len(bounds) + 1]atomic.Uint64
	microseconds atomic.Uint64

	// failed counts the transactions that ended as Failed, Busy or Unanswered. Many of them end after their
	// instance was removed, and then nobody reads the counts of the instance.
	failed [outcomes]atomic.Uint64

	// Input of the gate, with failed[Unanswered].
	samples            atomic.Uint64
	sampleMicroseconds atomic.Uint64
}

const (
	chunkSize = 64
	maxSlots  = 1 << slotBits // 16384; slot 0 is unused
	// MaxInstances is the maximum number of instances of a table.
	MaxInstances = maxSlots - 1
	// maxRemoved is the number of removed instances that keep their slots and counts, unless these
	// slots are needed. It bounds the memory, because an orchestrator may never use a name again.
	maxRemoved = 1024
)

type chunk [chunkSize]instanceCounts

// A Meter holds the counts of a director.
type Meter struct {
	flights *flights
	onDrop  func(Sample) // nil: nobody wants samples

	typeOf [maxSlots]atomic.Uint32 // of each slot

	mu      sync.Mutex
	workers []*Worker
	slots   map[owner]uint16
	owners  [maxSlots]owner // of each slot; slot 0 is unused
	targets []*table.Target // of the table; replaced as a whole, so it may be read without mu
	looks   map[owner]look  // at the instances of targets; replaced as a whole, too
	removed []uint16        // slots of removed instances, the longest removed first
	next    int
	types   []string
	noted   [table.MaxTypes + 1][len(refusals)]uint64 // the counts of the last NewRefusals
}

type owner struct{ ty, name string }

// A Worker holds the counts of one worker. Only one goroutine may use it.
type Worker struct {
	Protocol string // of its messages; set it before the worker runs

	meter  *Meter
	drops  drops
	chunks [maxSlots / chunkSize]atomic.Pointer[chunk]
	types  [table.MaxTypes + 1]typeCounts // the last is for messages without a type
}

// NoType is the type of a message without a type.
const NoType table.Type = table.MaxTypes

// New returns a Meter that times at most limit transactions at once, in 8 bytes each. A
// transaction without final answer ends after lifetime. The lifetime is at most MaxLifetime.
func New(limit int, lifetime time.Duration) *Meter {
	return &Meter{flights: newFlights(limit, lifetime), slots: map[owner]uint16{}, next: 1}
}

// Worker returns the counts of a new worker.
func (m *Meter) Worker() *Worker {
	w := &Worker{meter: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, slot := range m.slots {
		w.reserve(slot)
	}
	m.workers = append(m.workers, w)
	return w
}

func (w *Worker) reserve(slot uint16) {
	if p := &w.chunks[slot/chunkSize]; p.Load() == nil {
		p.Store(new(chunk))
	}
}

// Register makes room for the counts of a table's instances and sets their Slot. Call it
// before the table is published. If the type and name of an instance are known, it keeps
// its counts. An instance that was removed and comes back has no dialogs. Of the removed
// instances, the last maxRemoved are known. An error changes nothing.
func (m *Meter) Register(t *table.Table) error {
	if t.Len() > MaxInstances {
		return fmt.Errorf("count %d instances: the maximum is %d", t.Len(), MaxInstances)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.types = t.Types()
	var was, stays [maxSlots]bool
	for _, target := range m.targets {
		was[target.Slot] = true
	}
	targets := make([]*table.Target, t.Len())
	for i := range targets {
		targets[i] = t.Target(int32(i))
		if slot, ok := m.slots[ownerOf(targets[i])]; ok {
			stays[slot] = true
			if !was[slot] {
				m.recall(slot)
			}
		}
	}
	var leaving []uint16
	for _, target := range m.targets {
		if !stays[target.Slot] {
			leaving = append(leaving, target.Slot)
		}
	}
	for _, target := range targets {
		slot, ok := m.slots[ownerOf(target)]
		if !ok {
			slot = m.assign(ownerOf(target), &leaving)
		}
		for _, w := range m.workers {
			w.reserve(slot)
		}
		m.typeOf[slot].Store(uint32(target.Type))
		target.Slot = slot
	}
	m.removed, m.targets = append(m.removed, leaving...), targets
	return nil
}

func ownerOf(t *table.Target) owner { return owner{t.TypeName(), t.Name} }

// recall takes back the slot of a removed instance, which comes back without dialogs.
func (m *Meter) recall(slot uint16) {
	m.removed = slices.DeleteFunc(m.removed, func(r uint16) bool { return r == slot })
	m.forgetDialogs(slot)
}

// assign gives a new instance a slot: an unused one, or that of an instance removed before. Only if
// there is no other, it takes the slot of an instance that leaves now, because that one may still get
// messages for a transition.
func (m *Meter) assign(o owner, leaving *[]uint16) uint16 {
	slot, from := uint16(m.next), &m.removed
	if len(m.removed) == 0 {
		from = leaving
	}
	if m.next < maxSlots && len(m.removed) <= maxRemoved {
		m.next++
	} else {
		slot, *from = (*from)[0], (*from)[1:]
		delete(m.slots, m.owners[slot])
		for _, w := range m.workers {
			w.counts(slot).reset()
		}
	}
	m.slots[o], m.owners[slot] = slot, o
	return slot
}

// forgetDialogs makes the dialogs that an instance had when it was removed count no longer. The counts of
// begins and ends stay, because counters of Prometheus must not jump or fall.
func (m *Meter) forgetDialogs(slot uint16) {
	for _, w := range m.workers {
		c := w.counts(slot)
		c.dialogsForgotten.Store(c.dialogsBegun.Load() - c.dialogsEnded.Load())
	}
}

func (w *Worker) counts(slot uint16) *instanceCounts {
	return &w.chunks[slot/chunkSize].Load()[slot%chunkSize]
}

// Probe returns a Worker that only explains: no total includes its counts.
func (m *Meter) Probe() *Worker {
	separate := New(1, m.flights.lifetime)
	for i := range m.typeOf {
		separate.typeOf[i].Store(m.typeOf[i].Load())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &Worker{meter: separate}
	for _, slot := range m.slots {
		w.reserve(slot)
	}
	return w
}

// Sent counts a request to the target that does not begin a transaction, such as an ACK.
func (w *Worker) Sent(target *table.Target) {
	w.counts(target.Slot).messages.Add(1)
}

// Begin counts a request to the target that expects an answer. transaction is a hash that
// the final answer has too, and that no other transaction has at the time. A retransmission
// does not begin a transaction.
func (w *Worker) Begin(now time.Duration, target *table.Target, transaction uint64) {
	c := w.counts(target.Slot)
	c.messages.Add(1)
	begun, displaced := w.meter.flights.begin(now, transaction, target.Slot)
	if begun {
		c.begun.Add(1)
	}
	w.forget(displaced)
}

// forget counts the transaction of an entry that made room for another.
func (w *Worker) forget(displaced uint64) {
	slot := slotOf(displaced)
	if slot == 0 {
		return
	}
	c := w.counts(slot)
	c.untimed.Add(1)
	if displaced&heardBit != 0 {
		c.proceeding.Add(-1)
	}
}

// End counts the final answer to a transaction in flight, and returns how long the
// transaction took. ok is false if the transaction has ended or is unknown. The latency of
// the transaction is that time, unless Hear noted a response before.
func (w *Worker) End(now time.Duration, transaction uint64, outcome Outcome) (took time.Duration, ok bool) {
	slot, took, heard, ok := w.meter.flights.end(now, transaction)
	if !ok {
		return 0, false
	}
	c := w.counts(slot)
	c.ended[outcome].Add(1)
	if outcome >= Failed { // a success costs nothing more
		w.types[w.meter.typeOf[slot].Load()].failed[outcome].Add(1)
	}
	if heard {
		c.proceeding.Add(-1)
	} else {
		w.addLatency(slot, took)
	}
	return took, true
}

// Hear notes a response to a transaction in flight, and returns the time since Begin. Call
// it for transactions whose final answer may wait for a person. The time to their first
// response is their latency. first is false if an earlier response came or the transaction
// is not in flight. A transaction whose response was noted ends as Proceeding, not as
// Unanswered, if it has no final answer within a lifetime.
func (w *Worker) Hear(now time.Duration, transaction uint64) (latency time.Duration, first bool) {
	slot, latency, first := w.meter.flights.noteResponse(now, transaction)
	if first {
		w.counts(slot).proceeding.Add(1)
		w.addLatency(slot, latency)
	}
	return latency, first
}

// addLatency counts the latency of a transaction for its instance and type.
func (w *Worker) addLatency(slot uint16, took time.Duration) {
	microseconds := uint64(took / time.Microsecond)
	c := w.counts(slot)
	c.microseconds.Add(microseconds)
	c.latency[latency.Bucket(microseconds)].Add(1)
	i, _ := slices.BinarySearch(bounds[:], microseconds)
	t := &w.types[w.meter.typeOf[slot].Load()]
	t.latency[i].Add(1)
	t.microseconds.Add(microseconds)
}

// Sample gives the gate of a type the latency of one transaction.
func (w *Worker) Sample(ty table.Type, latency time.Duration) {
	w.types[ty].samples.Add(1)
	w.types[ty].sampleMicroseconds.Add(uint64(latency / time.Microsecond))
}

// First reports whether a hash is given for the first time within a lifetime. The hash
// must not be a transaction's.
func (w *Worker) First(now time.Duration, what uint64) bool {
	first, displaced := w.meter.flights.begin(now, what, 0)
	w.forget(displaced)
	return first
}

// Dialog counts the begin or end of a dialog with the target. A dialog may end at another
// director than it began at. So only the sum over all directors gives the number of
// dialogs.
func (w *Worker) Dialog(target *table.Target, began bool) {
	if began {
		w.counts(target.Slot).dialogsBegun.Add(1)
		return
	}
	w.counts(target.Slot).dialogsEnded.Add(1)
}

// Fail counts a message of a type (or NoType) that was not served.
func (w *Worker) Fail(ty table.Type, cause Cause) { w.types[ty].failures[cause].Add(1) }
