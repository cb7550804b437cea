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
