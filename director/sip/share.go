package sip

import (
	"cmp"
	"net/netip"
	"time"

	"vitrine/internal/source"
)

const (
	// usualConnections, usualFirst and usualQueues are what a Config without them
	// has.
	usualConnections = 10_000
	usualFirst       = 10 * time.Second
	usualQueues      = 64 << 20
	// leastSource is how many connections one source may always have: several
	// clients are behind it.
	leastSource = 16
	// mostBuffer is the size of the largest buffers that are kept, in bytes.
	mostBuffer = 8 << 10
)

// share divides connections and the room of their queues among instances and all
// others, so that nobody can take what belongs to the instances.
func (st *streams) share(c *Config) {
	st.idle = cmp.Or(st.idle, 10*time.Minute)
	st.first = min(cmp.Or(c.First, usualFirst), st.idle)
	st.most = cmp.Or(c.Connections, usualConnections)
	st.mostOthers = st.most - st.most/10
	st.mostSource = cmp.Or(c.PerSource, max(st.most/10, leastSource))
	st.room = cmp.Or(c.Queues, usualQueues)
	st.others = map[netip.Addr]int{}
}

// isInstance says whether connections with an address are an instance's.
func (st *streams) isInstance(a netip.Addr) bool {
	return st.server.core.trusts(st.server.core.rules.Load(), a)
}

// hasRoom says whether there may be one more connection with an address that is
// no instance's.
func (st *streams) hasRoom(a netip.Addr) bool {
	return st.count < st.mostOthers && st.others[source.Of(a)] < st.mostSource
}

// remember takes a stream into the counts.
func (st *streams) remember(c *stream) {
	if !c.known {
		st.count++
		st.others[source.Of(c.peer.Addr())]++
	}
}

// forget takes a stream out of the counts.
func (st *streams) forget(c *stream) {
	if c.known {
		return
	}
	a := source.Of(c.peer.Addr())
	st.count--
	if st.others[a]--; st.others[a] == 0 {
		delete(st.others, a)
	}
}

// mayQueue says whether a stream may queue n bytes more. All queues share one
// budget. A stream of an instance may hold as much as is free, any other stream an
// eighth of that. So peers that take nothing never hold all of the budget,
// however many they are (Choudhury and Hahne, Dynamic queue length thresholds
// for shared-memory packet switches, 1998).
func (st *streams) mayQueue(c *stream, n int) bool {
	free := st.room - st.queued.Load()
	if !c.known {
		free /= 8
	}
	return c.queued.Load()+int64(n) <= free
}

// release gives a message's bytes and buffer back.
func (st *streams) release(c *stream, b *[]byte) {
	c.queued.Add(-int64(cap(*b)))
	st.queued.Add(-int64(cap(*b)))
	st.recycle(b)
}

// recycle keeps a buffer for another message. One that a large message needed is
// left to the garbage collector, or small messages would come to hold such.
func (st *streams) recycle(b *[]byte) {
	if cap(*b) <= mostBuffer {
		*b = (*b)[:0]
		st.buffers.Put(b)
	}
}
