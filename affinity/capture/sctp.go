package capture

import (
	"encoding/binary"
	"slices"
)

// A messageKey identifies the stream, or the message, to which a fragment belongs. It has
// no addresses, because an association may use several.
type messageKey struct {
	where          Where
	ports          uint32
	tag            uint32
	stream, number uint16
	unordered      bool
}

// The flags of a DATA chunk (RFC 9260 section 3.3.1).
const (
	lastFragment  = 1
	firstFragment = 2
	unordered     = 4
)

// A completion is a user message that was reassembled, with the TSNs of its first and its
// last fragment.
type completion struct {
	key         messageKey
	first, last uint32
}

// maxMessage is the longest user message that is reassembled, in bytes.
const maxMessage = 1 << 20

// sctp reads the common header of an SCTP packet (RFC 9260 section 3.1). Next reads
// the chunks.
func (w *Walker) sctp(b []byte, missing int) {
	const header = 12
	if len(b) < header {
		w.counts.Malformed++
		return
	}
	w.packet.Tag = binary.BigEndian.Uint32(b[4:])
	w.endpoints(SCTP, b)
	w.chunks, w.missing = b[header:], missing
}

// chunk reads chunks until one completes a user message, and reports whether one did. It
// reads DATA only, and counts I-DATA (RFC 8260 section 2.1).
func (w *Walker) chunk() bool {
	const header, iData = 4, 64
	for len(w.chunks) >= header {
		b := w.chunks
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length < header || length > len(b)+w.missing {
			w.counts.Malformed++
			w.chunks, w.missing = nil, 0
			return false
		}
		next := length + padding(length)
		w.chunks = b[min(next, len(b)):]
		w.missing -= max(next-len(b), 0)
		if b[0] == iData {
			w.counts.Interleaved++
		}
		if b[0] == 0 && w.data(b[:min(length, len(b))], length) {
			w.ready = true
			w.counts.SCTP++
			return true
		}
	}
	if w.missing > 0 { // of further chunks
		w.counts.Cut++
	}
	w.chunks, w.missing = nil, 0
	return false
}

// data reads a DATA chunk of some length (RFC 9260 section 3.3.1), and reports
// whether it completes a user message.
func (w *Walker) data(b []byte, length int) bool {
	const header = 16
	switch {
	case length <= header:
		w.counts.Malformed++
		return false
	case len(b) < header:
		w.counts.Cut++
		return false
	}
	p := &w.packet
	p.TSN = binary.BigEndian.Uint32(b[4:])
	p.Stream = binary.BigEndian.Uint16(b[8:])
	p.PPID = binary.BigEndian.Uint32(b[12:])
	p.Payload, p.Missing = b[header:], length-len(b)
	edges := b[1] & (firstFragment | lastFragment)
	if edges == firstFragment|lastFragment {
		return true
	}
	key := messageKey{where: p.Where, ports: uint32(p.Src.Port())<<16 | uint32(p.Dst.Port()), tag: p.Tag, stream: p.Stream, unordered: b[1]&unordered != 0}
	if !key.unordered { // unordered fragments have no valid number
		key.number = binary.BigEndian.Uint16(b[10:])
	}
	return w.reassemble(key, edges)
}

// reassemble adds the packet's payload to the fragments of its stream. If that completes a
// message, it sets the payload to the whole message, up to the first bytes that the capture
// cut off, and returns true. Fragments of a message have consecutive TSNs (RFC 9260 section
// 6.9).
func (w *Walker) reassemble(key messageKey, edges uint8) bool {
	p, counts := &w.packet, &w.counts.Messages
	counts.Fragments++
	if w.isComplete(key, p.TSN) {
		counts.Repeated++
		return false
	}
	e := w.messages.entry(key, p.Time)
	if !e.held() {
		return false
	}
	at := len(e.parts) // of the first part with a later TSN
	for at > 0 && int32(e.parts[at-1].tsn-p.TSN) > 0 {
		at--
	}
	if at > 0 && e.parts[at-1].tsn == p.TSN {
		counts.Repeated++
		return false
	}
	from := len(e.octets)
	to := from + len(p.Payload)
	if len(e.parts) == maxParts || to > maxMessage {
		counts.GivenUp++
		w.messages.remove(e)
		return false
	}
	if w.messages.grow(e, to); !e.held() {
		return false
	}
	e.octets = append(e.octets, p.Payload...)
	e.parts = slices.Insert(e.parts, at, part{from: from, to: to, tsn: p.TSN, ppid: p.PPID, missing: uint16(p.Missing), edges: edges})
	begin, end, whole := e.run(at)
	if !whole {
		return false
	}
	w.assemble(e, e.parts[begin:end])
	w.completed[counts.Complete%uint64(len(w.completed))] = completion{key, e.parts[begin].tsn, e.parts[end-1].tsn}
	counts.Complete++
	if e.parts = slices.Delete(e.parts, begin, end); len(e.parts) == 0 {
		w.messages.remove(e)
	}
	return true
}

// isComplete reports whether a fragment belongs to one of the last messages that were
// reassembled: it was sent again, or captured again at the same place. Without this check,
// such a fragment would count as a message that lacks the others.
func (w *Walker) isComplete(key messageKey, tsn uint32) bool {
	for i := range w.completed {
		if c := &w.completed[i]; c.key == key && tsn-c.first <= c.last-c.first { // TSNs wrap
			return true
		}
	}
	return false
}

// assemble makes the parts of a message the payload of the packet.
func (w *Walker) assemble(e *entry[messageKey], parts []part) {
	p := &w.packet
	w.assembled, p.Missing = w.assembled[:0], 0
	for _, part := range parts {
		if p.Missing == 0 {
			w.assembled = append(w.assembled, e.octets[part.from:part.to]...)
		} else { // the bytes before it are missing
			p.Missing += part.to - part.from
		}
		p.Missing += int(part.missing)
	}
	p.TSN, p.Payload = parts[0].tsn, w.assembled
}

// countMessages counts the messages that lack a fragment in a stream. An entry has one
// message, or the unordered messages of a stream.
func (w *Walker) countMessages(e *entry[messageKey]) {
	for i, part := range e.parts {
		if i > 0 && part.edges != firstFragment && e.parts[i-1].edges != lastFragment {
			continue // of the same message
		}
		w.counts.Messages.Expired++
		if w.incomplete != nil {
			w.incomplete(part.ppid)
		}
	}
}

// run returns the range of parts with consecutive TSNs around a part, from the first to the
// last fragment of a message. whole is false if a fragment is missing.
func (e *entry[K]) run(at int) (begin, end int, whole bool) {
	begin, end = at, at
	for e.parts[begin].edges != firstFragment {
		if begin == 0 || e.parts[begin-1].tsn != e.parts[begin].tsn-1 {
			return 0, 0, false
		}
		begin--
	}
	for e.parts[end].edges != lastFragment {
		if end+1 == len(e.parts) || e.parts[end+1].tsn != e.parts[end].tsn+1 {
			return 0, 0, false
		}
		end++
	}
	return begin, end + 1, true
}
