package message

import (
	"net/netip"
	"sort"
)

// slotSize is the average memory of a held message, in bytes.
const slotSize = 2048

// A slot is a message that is being read or waits for its copies.
type slot struct {
	m        Message
	text     []byte // of its identifiers
	from, to *Function
	part     part
	key      uint64 // of the exchange
	other    uint64 // a second key to look for the request; 0: none
	status   int    // of an answer that gets its name from its request: an HTTP status, or plain
	hash     uint64 // equal in retransmissions; 0: the transport hides them
	space    uint64 // a hash of the namespace of its keys; 0: the store has one
	batched  bool   // its body is a batch of changes to a store
	body     []byte // the beginning of its body, if it is batched
}

// A hold delays messages for the time in which their copies may arrive, and sorts them by
// time.
type hold struct {
	window  int64
	limit   int
	waiting []*slot // from head on, in the order of time
	head    int
	free    []*slot
	open    int    // slots that are in use
	hurried uint64 // messages delivered early, because the limit was reached
}

// take returns an empty slot.
func (h *hold) take() *slot {
	h.open++
	if n := len(h.free); n > 0 {
		s := h.free[n-1]
		h.free = h.free[:n-1]
		return s
	}
	return &slot{}
}

// recycle takes a slot back.
func (h *hold) recycle(s *slot) {
	h.open--
	identifiers, access := s.m.Identifiers[:0], s.m.Access[:0]
	*s = slot{text: s.text[:0], body: s.body[:0]}
	if cap(s.body) > slotSize { // the limit of slots assumes this size
		s.body = nil
	}
	if cap(s.text) > slotSize {
		s.text = nil
	}
	s.m.Identifiers, s.m.Access = identifiers, access
	const keep = 1 << 14
	if len(h.free) < keep {
		h.free = append(h.free, s)
	}
}

// push adds a message.
func (h *hold) push(s *slot) {
	if h.head > 1024 && h.head > len(h.waiting)/2 {
		n := copy(h.waiting, h.waiting[h.head:])
		clear(h.waiting[n:])
		h.waiting, h.head = h.waiting[:n], 0
	}
	h.waiting = append(h.waiting, s)
	for i := len(h.waiting) - 1; i > h.head && h.waiting[i-1].m.Time > s.m.Time; i-- {
		h.waiting[i-1], h.waiting[i] = h.waiting[i], h.waiting[i-1]
	}
}

// pop returns the next message that has waited for the window or has to make room, or nil.
func (h *hold) pop(now int64) *slot {
	if h.head == len(h.waiting) {
		return nil
	}
	s := h.waiting[h.head]
	if age := now - s.m.Time; -h.window <= age && age <= h.window { // a clock may jump back
		if h.open <= h.limit {
			return nil
		}
		h.hurried++
	}
	return h.remove()
}

// remove returns the first message.
func (h *hold) remove() *slot {
	s := h.waiting[h.head]
	h.waiting[h.head] = nil
	h.head++
	return s
}

// arrived sets Arrived in the messages of a packet that was first seen at time first, and
// now at another place.
func (h *hold) arrived(src, dst netip.AddrPort, first, at int64) {
	waiting := h.waiting[h.head:]
	i := sort.Search(len(waiting), func(i int) bool { return waiting[i].m.Time >= first })
	for ; i < len(waiting) && waiting[i].m.Time == first; i++ {
		if m := &waiting[i].m; m.Src == src && m.Dst == dst {
			m.Arrived = max(m.Arrived, at)
		}
	}
}
