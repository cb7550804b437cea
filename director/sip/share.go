package sip

import (
	"cmp"
	"net/netip"
	"time"

	"vitrine/internal/source"
)

const (
	// defaultConnections, defaultFirst and defaultQueues are the defaults of Config.
	defaultConnections = 10_000
	defaultFirst       = 10 * time.Second
	defaultQueues      = 64 << 20
	// minPerSource is the lowest default of Config.PerSource, because several clients may
	// share one address.
	minPerSource = 16
	// maxBuffer is the size of the largest buffers that are reused, in bytes.
	maxBuffer = 8 << 10
)

// share sets the limits of connections and queues. They reserve a part for instances,
// which no other peer can take.
func (st *streams) share(c *Config) {
	st.idle = cmp.Or(st.idle, 10*time.Minute)
	st.first = min(cmp.Or(c.First, defaultFirst), st.idle)
	st.maxConnections = cmp.Or(c.Connections, defaultConnections)
	st.maxOthers = st.maxConnections - st.maxConnections/10
	st.maxPerSource = cmp.Or(c.PerSource, max(st.maxConnections/10, minPerSource))
	st.room = cmp.Or(c.Queues, defaultQueues)
	st.others = map[netip.Addr]int{}
}

// isInstance reports whether connections with an address count as an instance's: the
// address is an instance's or configured as trusted.
func (st *streams) isInstance(a netip.Addr) bool {
	return st.server.core.trusts(st.server.core.rules.Load(), a)
}

// roomFor returns an error if no other connection with an address is allowed. known says that the address
// is an instance's.
func (st *streams) roomFor(a netip.Addr, known bool) error {
	switch {
	case !known && st.others[source.Of(a)] >= st.maxPerSource:
		return errSource
	case len(st.conns) >= st.maxConnections || !known && st.count >= st.maxOthers:
		return errTotal
	}
	return nil
}

// addCount adds a new stream to the counts.
func (st *streams) addCount(c *stream) {
	if !c.known {
		st.count++
		st.others[source.Of(c.peer.Addr())]++
	}
}

// dropCount removes a stream that ended from the counts.
func (st *streams) dropCount(c *stream) {
	if c.known {
		return
	}
	a := source.Of(c.peer.Addr())
	st.count--
	if st.others[a]--; st.others[a] == 0 {
		delete(st.others, a)
	}
}

// mayQueue reports whether a stream may queue n more bytes. All queues share one budget.
// A stream of an instance may hold as much as is free, any other stream an eighth of
// that. So peers that do not read never hold the whole budget, however many they are
// (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet
// switches, 1998).
func (st *streams) mayQueue(c *stream, n int) bool {
	free := st.room - st.queued.Load()
	if !c.known {
		free /= 8
	}
	return c.queued.Load()+int64(n) <= free
}

// release returns a message's bytes to the budget and recycles its buffer.
func (st *streams) release(c *stream, b *[]byte) {
	c.queued.Add(-int64(cap(*b)))
	st.queued.Add(-int64(cap(*b)))
	st.recycle(b)
}

// recycle keeps a buffer for reuse. It leaves a large buffer to the garbage collector,
// because small messages would otherwise end up in large buffers.
func (st *streams) recycle(b *[]byte) {
	if cap(*b) <= maxBuffer {
		*b = (*b)[:0]
		st.buffers.Put(b)
	}
}
