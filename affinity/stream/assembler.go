package stream

import (
	"cmp"
	"encoding/binary"
	"time"
	"unsafe"

	"vitrine/affinity/capture"
)

// An Assembler reassembles the byte streams of TCP connections from segments.
type Assembler struct {
	handler Handler
	options Options
	counts  Counts

	connections map[key]*connection
	open        list // by the time of the last segment, the oldest first
	idle        list // lasting connections that are idle, the longest idle first
	ended       list // in the order in which they ended
	waiting     Half // head of a list of halves: waiting.succ waits longest
	acked       Half // the same, of halves whose missing bytes were acknowledged
	memory      int  // bytes of connections, of chunks, and of what the handler holds
	free        []*connection
	chunks      pool
}

// NewAssembler returns an Assembler that passes the streams to h.
func NewAssembler(h Handler, o Options) *Assembler {
	a := &Assembler{handler: h, options: o.withDefaults(), connections: map[key]*connection{}}
	a.open.init()
	a.idle.init()
	a.ended.init()
	a.waiting.prev, a.waiting.succ = &a.waiting, &a.waiting
	a.acked.prev, a.acked.succ = &a.acked, &a.acked
	return a
}

// Counts returns the counts up to now. The caller must not change them.
func (a *Assembler) Counts() *Counts { return &a.counts }

// Add adds a TCP segment. Segments must come in the order of the capture. It ignores copies
// of a segment.
func (a *Assembler) Add(p *capture.Packet) {
	a.counts.Segments++
	a.expire(p.Time)
	h := a.find(p)
	if h == nil {
		return
	}
	c := h.connection
	c.at = p.Time
	if !c.ended {
		a.open.touch(c)
	}
	seq, n := p.Seq, len(p.Payload)+p.Missing
	if p.Flags&capture.SYN != 0 {
		seq++ // SYN takes a sequence number
		h.Opened = h.Opened || p.Flags&capture.ACK == 0
		a.begin(h, seq)
	}
	if p.Flags&capture.ACK != 0 { // the acknowledged bytes may be missing
		a.begin(h.Peer, p.Ack)
		a.acknowledged(h.Peer, p.Ack, p.Time)
	}
	if n > 0 {
		a.data(h, seq, p)
	}
	if p.Flags&capture.FIN != 0 {
		a.finish(h, seq+uint32(n), p.Time)
	}
	if p.Flags&capture.RST != 0 {
		a.end(c, p.Time, Reset)
	}
	for a.memory > a.options.MaxMemory && a.giveUp(nil) {
	}
}

// Flush ends all connections at the end of the captures.
func (a *Assembler) Flush() {
	for _, l := range [...]*list{&a.idle, &a.open, &a.ended} {
		for c := l.first(); c != nil; c = l.first() {
			a.remove(c, c.at, Flushed)
		}
	}
}

// find returns the half of a segment. It creates a connection for a SYN or for data, and
// otherwise returns nil if there is no connection.
func (a *Assembler) find(p *capture.Packet) *Half {
	k, side := keyOf(p)
	c := a.connections[k]
	if c != nil && p.Flags&capture.SYN != 0 && c.halves[side].renewed(p) {
		a.remove(c, p.Time, Reused)
		c = nil
	}
	if c == nil {
		if p.Flags&capture.RST != 0 || p.Flags&capture.SYN == 0 && len(p.Payload)+p.Missing == 0 {
			return nil
		}
		c = a.connect(k, side, p)
	}
	return &c.halves[side]
}

// renewed reports whether a SYN of the half begins a new connection.
func (h *Half) renewed(p *capture.Packet) bool {
	if h.started {
		return p.Seq+1 != h.start
	}
	// If this SYN does not answer the peer's data or SYN, they belong to an older
	// connection.
	return h.connection.ended || h.Peer.started && p.Flags&capture.ACK == 0
}

// connect creates the connection of a segment.
func (a *Assembler) connect(k key, side int, p *capture.Packet) *connection {
	var c *connection
	if n := len(a.free); n > 0 {
		c, a.free = a.free[n-1], a.free[:n-1]
	} else {
		c = &connection{}
	}
	*c = connection{key: k, at: p.Time}
	for i := range c.halves {
		c.halves[i].connection, c.halves[i].Peer, c.halves[i].Shared = c, &c.halves[1-i], &c.shared
	}
	h := &c.halves[side]
	h.Src, h.Dst = p.Src, p.Dst
	h.Peer.Src, h.Peer.Dst = p.Dst, p.Src
	a.connections[k] = c
	a.open.push(c)
	a.memory += connectionSize
	a.counts.Connections++
	return c
}

// begin sets the sequence number of a half's first byte.
func (a *Assembler) begin(h *Half, seq uint32) {
	if !h.started && !h.ended {
		h.started, h.start, h.next = true, seq, seq
	}
}

// ackTimeout replaces GapTimeout if the receiver has acknowledged the missing bytes.
const ackTimeout = 10 * time.Millisecond

// expire skips the gaps of halves that waited too long, and ends idle connections. A clock
// that jumps back must not keep them for ever.
func (a *Assembler) expire(now int64) {
	a.skipOld(&a.acked, now, ackTimeout)
	a.skipOld(&a.waiting, now, a.options.GapTimeout)
	for c := a.open.first(); c != nil && apart(now, c.at) > int64(a.options.Idle); c = a.open.first() {
		if c.shared.Lasting {
			a.idle.touch(c)
		} else {
			a.remove(c, c.at, Idle)
		}
	}
	for c := a.ended.first(); c != nil && apart(now, c.since) > int64(a.options.Linger); c = a.ended.first() {
		a.remove(c, c.at, Idle)
	}
}

// skipOld skips the gaps of a list's halves that waited for longer than the timeout.
func (a *Assembler) skipOld(list *Half, now int64, timeout time.Duration) {
	for h := list.succ; h != list && apart(now, h.since) > int64(timeout); h = list.succ {
		a.skip(h, now, &a.counts.Lost.Timeout)
	}
}

// apart returns the distance between two times.
func apart(a, b int64) int64 { return max(a-b, b-a) }

// giveUp makes room. It removes the connection that ended first, or else the one that is idle for
// longest: idle connections may fill the memory for the rest of a long capture. If there is none, it
// skips the gap of the half that waits longest, of those whose missing bytes were acknowledged, or
// else of all. If no half waits, it removes the open connection whose last segment is the oldest. It
// returns false if there is nothing to give up except the connection keep.
func (a *Assembler) giveUp(keep *connection) bool {
	c := cmp.Or(a.ended.first(), a.idle.first())
	if c == nil {
		for _, list := range [...]*Half{&a.acked, &a.waiting} {
			if h := list.succ; h != list {
				a.skip(h, h.connection.at, &a.counts.Lost.Memory)
				return true
			}
		}
		c = a.open.first()
	}
	if c == nil || c == keep {
		return false
	}
	if !c.ended {
		a.counts.Evicted++
	}
	a.remove(c, c.at, Evicted)
	return true
}

// end ends both directions of a connection. The connection lingers.
func (a *Assembler) end(c *connection, at int64, why Reason) {
	for i := range c.halves {
		a.drainAll(&c.halves[i], at, why)
	}
}

// remove ends a connection and releases it.
func (a *Assembler) remove(c *connection, at int64, why Reason) {
	a.end(c, at, why)
	c.list.unlink(c)
	delete(a.connections, c.key)
	a.memory -= connectionSize + c.charged
	const keep = 1024
	if len(a.free) < keep {
		for i := range c.halves {
			c.halves[i].State = nil
		}
		a.free = append(a.free, c)
	}
}

// drainAll delivers the held bytes of a half, reports the missing bytes, and ends the half.
func (a *Assembler) drainAll(h *Half, at int64, why Reason) {
	if h.ended {
		return
	}
	for h.waiting {
		a.skip(h, at, &a.counts.Lost.End)
	}
	if !h.ended { // a FIN may have ended it
		a.close(h, at, why)
	}
}

// close ends one direction. The connection ends with its second direction.
func (a *Assembler) close(h *Half, at int64, why Reason) {
	c := h.connection
	h.ended = true
	if h.started {
		a.handler.End(h, why)
		a.charge(c)
	}
	if h.Peer.ended && !c.ended {
		c.ended, c.since = true, at
		c.list.unlink(c)
		a.ended.push(c)
	}
}

// charge counts what the handler holds for a connection.
func (a *Assembler) charge(c *connection) {
	a.memory += c.shared.Memory - c.charged
	c.charged = c.shared.Memory
}

// A connection is a TCP connection. It is in the list of open, idle or ended connections.
type connection struct {
	key        key
	halves     [2]Half
	shared     Shared
	at         int64 // time of the last segment
	ended      bool
	since      int64 // time of the end
	held       int   // bytes of chunks
	charged    int   // bytes of shared.Memory that are in Assembler.memory
	list       *list
	prev, next *connection
}

// connectionSize is the memory of a connection and its entry in the map.
const connectionSize = int(unsafe.Sizeof(connection{})+unsafe.Sizeof(key{})) + 32

// A key has the addresses and ports of a connection, the lesser endpoint first.
type key [36]byte

// keyOf returns the key of a segment's connection and which side sent it.
func keyOf(p *capture.Packet) (k key, side int) {
	const address, port, half = 16, 16, 18
	src, dst := p.Src, p.Dst
	if dst.Compare(src) < 0 {
		src, dst, side = dst, src, 1
	}
	a, b := src.Addr().As16(), dst.Addr().As16()
	copy(k[:address], a[:])
	binary.BigEndian.PutUint16(k[port:], src.Port())
	copy(k[half:], b[:])
	binary.BigEndian.PutUint16(k[half+port:], dst.Port())
	return k, side
}

// A list holds connections in the order in which they joined it.
type list struct{ head connection }

func (l *list) init() { l.head.prev, l.head.next = &l.head, &l.head }

func (l *list) first() *connection {
	if l.head.next == &l.head {
		return nil
	}
	return l.head.next
}

func (l *list) push(c *connection) {
	c.list, c.next, c.prev = l, &l.head, l.head.prev
	c.prev.next, c.next.prev = c, c
}

func (l *list) unlink(c *connection) { c.prev.next, c.next.prev = c.next, c.prev }

// touch moves c from its list to the end of this one.
func (l *list) touch(c *connection) {
	if l.head.prev != c {
		l.unlink(c)
		l.push(c)
	}
}
