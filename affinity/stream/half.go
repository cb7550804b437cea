package stream

import "vitrine/affinity/capture"

// data delivers the bytes of a segment, or holds them if others before them are
// missing.
func (a *Assembler) data(h *Half, seq uint32, p *capture.Packet) {
	b, missing := p.Payload, p.Missing
	if h.ended {
		a.counts.Late += uint64(len(b))
		return
	}
	a.begin(h, seq)
	for {
		if ahead := int(int32(seq - h.next)); ahead < 0 {
			old := min(-ahead, len(b)+missing)
			repeated := min(old, len(b))
			a.counts.Repeated += uint64(repeated)
			b, missing, seq = b[repeated:], missing-(old-repeated), seq+uint32(old)
		}
		if len(b)+missing == 0 {
			return
		}
		if seq == h.next {
			a.deliver(h, p.Time, b)
			a.drain(h, p.Time)
			a.cut(h, p.Time, seq+uint32(len(b)+missing))
			return
		}
		if len(b) == 0 || a.hold(h, seq, p.Time, b) {
			return
		}
		// The half has no early bytes, or a gap was skipped, so less may be missing now.
		if h.ended {
			a.counts.Late += uint64(len(b))
			return
		}
		if h.early == nil && int32(seq-h.next) > 0 {
			a.gap(h, p.Time, int(seq-h.next), &a.counts.Lost.Memory)
		}
	}
}

// deliver passes the next bytes to the handler.
func (a *Assembler) deliver(h *Half, at int64, b []byte) {
	if len(b) == 0 {
		return
	}
	h.next += uint32(len(b))
	a.counts.Bytes += uint64(len(b))
	a.handler.Data(h, at, b)
	a.charge(h.connection)
}

// cut reports the bytes before end as lost, except held bytes, because the capture cut them
// off.
func (a *Assembler) cut(h *Half, at int64, end uint32) {
	for !h.ended && int32(end-h.next) > 0 {
		to := end
		if h.early != nil && int32(to-h.early.seq) > 0 {
			to = h.early.seq
		}
		a.gap(h, at, int(to-h.next), &a.counts.Lost.Cut)
		a.drain(h, at)
	}
}

// gap reports the next n bytes as lost.
func (a *Assembler) gap(h *Half, at int64, n int, cause *uint64) {
	h.next += uint32(n)
	*cause += uint64(n)
	a.handler.Gap(h, at, n)
	a.charge(h.connection)
}

// skip reports the missing bytes of a half as lost, and delivers the bytes after them.
func (a *Assembler) skip(h *Half, at int64, cause *uint64) {
	to := h.fin
	if h.early != nil && (!h.finished || int32(h.early.seq-h.fin) < 0) {
		to = h.early.seq
	}
	a.gap(h, at, int(to-h.next), cause)
	a.drain(h, at)
}

// drain delivers held bytes that are next, and ends the half after its last byte.
func (a *Assembler) drain(h *Half, at int64) {
	for c := h.early; c != nil && int32(c.seq-h.next) <= 0; c = h.early {
		h.early = c.next
		if h.early == nil {
			h.last = nil
		}
		old := min(int(h.next-c.seq), len(c.octets))
		a.counts.Repeated += uint64(old)
		a.deliver(h, c.at, c.octets[old:])
		a.release(h.connection, c)
	}
	h.stop()
	if h.finished && int32(h.fin-h.next) <= 0 {
		for h.early != nil { // after the end
			c := h.early
			h.early = c.next
			a.counts.Late += uint64(len(c.octets))
			a.release(h.connection, c)
		}
		h.last = nil
		a.close(h, at, Finished)
		return
	}
	if h.early != nil || h.finished {
		h.wait(&a.waiting, at)
	}
}

// finish records that a half ends before sequence number fin.
func (a *Assembler) finish(h *Half, fin uint32, at int64) {
	if h.ended || h.finished {
		return
	}
	a.begin(h, fin)
	if int32(fin-h.next) < 0 { // of an older connection, or wrong
		return
	}
	h.finished, h.fin = true, fin
	a.drain(h, at)
}

// hold holds early bytes. For the bound of a connection, it skips gaps of the connection. For
// the bound of all connections, it calls giveUp. It returns false if there is still no room, or if it skipped a gap of h, so that
// the bytes may not be early any more.
func (a *Assembler) hold(h *Half, seq uint32, at int64, b []byte) bool {
	c := h.connection
	cost := chunkSize(len(b))
	for c.held+cost > a.options.MaxConnection {
		switch {
		case h.early != nil:
			a.skip(h, at, &a.counts.Lost.Connection)
			return false
		case h.Peer.early != nil:
			a.skip(h.Peer, at, &a.counts.Lost.Connection)
		default:
			return false
		}
	}
	for a.memory+cost > a.options.MaxMemory {
		early := h.early
		if !a.giveUp(c) {
			return false
		}
		if h.early != early || h.ended {
			return false
		}
	}
	a.insert(h, seq, at, b)
	if !h.waiting {
		h.wait(&a.waiting, at)
	}
	return true
}

// insert adds the bytes that are not held yet to the held bytes.
func (a *Assembler) insert(h *Half, seq uint32, at int64, b []byte) {
	before := h.before(seq)
	a.counts.Early += uint64(len(b))
	for len(b) > 0 {
		next := h.early
		if before != nil {
			next = before.next
			if covered := int(int32(before.seq + uint32(len(before.octets)) - seq)); covered > 0 {
				covered = min(covered, len(b))
				a.counts.Repeated += uint64(covered)
				b, seq = b[covered:], seq+uint32(covered)
			}
		}
		free := len(b)
		if next != nil {
			free = min(free, int(next.seq-seq))
		}
		if free > 0 {
			c := a.keep(h.connection, seq, at, b[:free])
			c.prev, c.next = before, next
			if before == nil {
				h.early = c
			} else {
				before.next = c
			}
			if next == nil {
				h.last = c
			} else {
				next.prev = c
			}
			b, seq = b[free:], seq+uint32(free)
		}
		before = next
	}
}

// before returns the last held chunk that begins at or before seq, or nil. It searches from
// both ends, because segments also come in reverse order.
func (h *Half) before(seq uint32) *chunk {
	first, last := h.early, h.last
	for last != nil {
		switch {
		case int32(last.seq-seq) <= 0:
			return last
		case int32(first.seq-seq) > 0:
			return first.prev
		}
		first, last = first.next, last.prev
	}
	return nil
}

// acknowledged records that the receiver has all bytes of a half before sequence number
// ack. If these include the missing bytes, the capture probably lost them. They may still
// come a little later, because captures of several places do not agree on the order.
func (a *Assembler) acknowledged(h *Half, ack uint32, now int64) {
	if !h.waiting || h.acked || h.early == nil || int32(ack-h.early.seq) < 0 {
		return
	}
	h.wait(&a.acked, now)
	h.acked = true
}

// wait appends a half to a list of waiting halves.
func (h *Half) wait(list *Half, at int64) {
	h.stop()
	h.waiting, h.acked, h.since = true, false, at
	h.succ, h.prev = list, list.prev
	h.prev.succ, h.succ.prev = h, h
}

// stop removes a half from its list of waiting halves.
func (h *Half) stop() {
	if h.waiting {
		h.waiting = false
		h.prev.succ, h.succ.prev = h.succ, h.prev
	}
}
