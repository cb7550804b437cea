package meter

import (
	"net/netip"
	"sync/atomic"
	"time"

	"vitrine/director/table"
)

// sampleEvery is the minimum time between two samples of the dropped messages of one worker
// with one cause.
const sampleEvery = 10 * time.Second

// drops are the messages that one worker dropped, by cause.
type drops struct {
	counts [causes]atomic.Uint64
	next   [causes]atomic.Int64 // when the next drop is to be a sample
}

// A Sample is one of many dropped messages.
type Sample struct {
	Protocol string
	Cause    Cause
	Peer     netip.AddrPort // the sender of the message, or its destination
	Total    uint64         // messages that this worker dropped for this cause, since its start
}

// OnDrop sets a function that gets samples of the dropped messages: the first, and then at
// most one in ten seconds for each worker and cause. Call it before the workers run.
func (m *Meter) OnDrop(f func(Sample)) { m.onDrop = f }

// Causes returns all causes, in their order.
func Causes() []Cause {
	all := make([]Cause, causes)
	for c := range all {
		all[c] = Cause(c)
	}
	return all
}

// isTransport reports whether the transport caused the drop, and not the message itself.
func (c Cause) isTransport() bool {
	return c == Unsent || c == SocketFull || c == QueueFull || c == NoConnection
}

// A Refusal is a number of messages of one type that were refused for one cause.
type Refusal struct {
	Type     string // empty: without a type
	Cause    Cause
	Messages uint64
}

// refusals are the causes for which a message is refused that is sound itself.
var refusals = [...]Cause{NoInstance, Overloaded, OverQuota, NoRoom}

// NewRefusals returns the messages that were refused since the last call. It leaves out those that
// TakeOver has added.
func (m *Meter) NewRefusals() []Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newRefusals()
}

// newRefusals is NewRefusals for a caller that holds the lock.
func (m *Meter) newRefusals() (all []Refusal) {
	for i := range len(m.types) + 1 {
		name, at := "", int(NoType)
		if i < len(m.types) {
			name, at = m.types[i], i
		}
		for r, cause := range refusals {
			n := uint64(0)
			for _, w := range m.workers {
				n += w.types[at].failures[cause].Load()
			}
			if more := n - m.noted[at][r]; more > 0 {
				all = append(all, Refusal{Type: name, Cause: cause, Messages: more})
				m.noted[at][r] = n
			}
		}
	}
	return all
}

// Drop counts a message that was neither served nor answered. Unlike the other methods,
// several goroutines may call it.
func (w *Worker) Drop(now time.Duration, ty table.Type, cause Cause, peer netip.AddrPort) {
	if !cause.isTransport() {
		w.Fail(ty, cause)
	}
	total := w.drops.counts[cause].Add(1)
	due := w.drops.next[cause].Load()
	if w.meter.onDrop == nil || int64(now) < due || !w.drops.next[cause].CompareAndSwap(due, int64(now+sampleEvery)) {
		return
	}
	w.meter.onDrop(Sample{Protocol: w.Protocol, Cause: cause, Peer: peer, Total: total})
}

// Drops returns how many messages of a protocol the workers dropped since their start, by the
// Cause's name.
func (m *Meter) Drops(protocol string) map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]uint64, causes)
	for c := range causes {
		all[c.String()] = 0
		for _, w := range m.workers {
			if w.Protocol == protocol {
				all[c.String()] += w.drops.counts[c].Load()
			}
		}
	}
	return all
}
