package capture

import (
	"bytes"
	"net/netip"
	"slices"
	"time"
)

// maxDatagram is the longest payload of an IP packet.
const maxDatagram = 65535

// A datagramKey identifies the datagram of a fragment (RFC 791, RFC 8200 section 4.5). The
// place is part of it, because each place captures its own copy.
type datagramKey struct {
	src, dst netip.Addr
	id       uint32
	protocol uint8 // IPv4
	where    Where
	tunnels  int
}

// defragment adds a fragment to its datagram. When the datagram is complete, it returns the
// payload and the protocol from the first fragment.
func (w *Walker) defragment(key datagramKey, protocol uint8, offset int, more bool, b []byte, missing int) ([]byte, uint8) {
	w.counts.IP.Fragments++
	end := offset + len(b)
	switch {
	case missing > 0: // the datagram will expire
		w.counts.Cut++
		return nil, 0
	case end > maxDatagram, more && len(b)%8 != 0, len(b) == 0:
		w.counts.Malformed++
		return nil, 0
	case w.isRepeated(key):
		w.counts.IP.Repeated++
		return nil, 0
	}
	e := w.fragments.entry(key, w.packet.Time)
	if !e.held() || e.overlapped {
		return nil, 0
	}
	if w.fragments.grow(e, end); !e.held() {
		return nil, 0
	}
	e.octets = e.octets[:max(end, len(e.octets))]
	fits, repeated := e.place(offset, end, b)
	switch {
	case repeated:
		w.counts.IP.Repeated++
		return nil, 0
	case !fits, !more && e.total >= 0 && e.total != end:
		w.counts.IP.Overlapped++
		e.overlapped = true
		return nil, 0
	case len(e.parts) > maxParts:
		w.counts.IP.GivenUp++
		e.overlapped = true
		return nil, 0
	}
	copy(e.octets[offset:], b)
	if offset == 0 {
		e.protocol = protocol
	}
	if !more {
		e.total = end
	}
	if last := e.parts[len(e.parts)-1]; e.total >= 0 && last.to > e.total {
		w.counts.IP.Overlapped++
		e.overlapped = true
		return nil, 0
	}
	if e.total < 0 || e.parts[0] != (part{to: e.total}) {
		return nil, 0
	}
	w.counts.IP.Complete++
	*w.lastDatagram(key) = datagram{key, w.packet.Time}
	w.fragments.remove(e)
	return e.octets[:e.total], e.protocol
}

// A datagram is one that was reassembled.
type datagram struct {
	key datagramKey
	at  int64 // time of its last fragment
}

// lastDatagram returns the last datagram that was reassembled, of those that share its slot. Datagrams
// with consecutive identifications, and copies of one at several places, have different slots.
func (w *Walker) lastDatagram(key datagramKey) *datagram {
	place := uint32(key.where.File) + uint32(key.where.Interface) + key.where.Link
	return &w.datagrams[(key.id+17*place)%uint32(len(w.datagrams))]
}

// isRepeated reports whether the datagram of a fragment was just reassembled: the fragment was captured
// again at the same place. Without this check, such a fragment would count as a datagram that lacks the
// others. Later, a sender may give the same identification to another datagram.
func (w *Walker) isRepeated(key datagramKey) bool {
	const just = 50 * time.Millisecond // as for other packets that are captured again
	d := w.lastDatagram(key)
	age := w.packet.Time - d.at
	return d.key == key && -int64(just) <= age && age <= int64(just)
}

// countDatagram counts a datagram that lacks a fragment.
func (w *Walker) countDatagram(e *entry[datagramKey]) {
	if !e.overlapped { // that is counted already
		w.counts.IP.Expired++
	}
}

// place adds a run of bytes to the parts, which are disjoint and in order, and joins
// adjacent parts. It does not add a run that repeats or overlaps earlier bytes.
func (e *entry[K]) place(from, to int, b []byte) (fits, repeated bool) {
	i := len(e.parts) // of the first part that ends after from
	for i > 0 && e.parts[i-1].to > from {
		i--
	}
	if i < len(e.parts) && e.parts[i].from < to {
		p := e.parts[i]
		return false, p.from <= from && to <= p.to && bytes.Equal(e.octets[from:to], b)
	}
	before := i > 0 && e.parts[i-1].to == from
	after := i < len(e.parts) && e.parts[i].from == to
	switch {
	case before && after:
		e.parts[i-1].to = e.parts[i].to
		e.parts = slices.Delete(e.parts, i, i+1)
	case before:
		e.parts[i-1].to = to
	case after:
		e.parts[i].from = from
	default:
		e.parts = slices.Insert(e.parts, i, part{from: from, to: to})
	}
	return true, false
}
