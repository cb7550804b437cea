package capture

import (
	"time"
	"unsafe"
)

// entryOverhead is the memory of an entry without its bytes and parts, in bytes.
const entryOverhead = 256

// partSize is the memory of a part, in bytes. Fragments may be shorter.
const partSize = int(unsafe.Sizeof(part{}))

// maxParts is the maximum number of fragments in one entry.
const maxParts = 1024

// A table holds incomplete fragments, in entries from the oldest to the newest. It drops
// entries after a timeout, and the oldest entries when its memory is used up.
type table[K comparable] struct {
	entries map[K]*entry[K]
	ends    entry[K] // head of the list: ends.next is the oldest, ends.prev the newest
	free    []*entry[K]
	spent   []*entry[K] // removed, but a packet may still point into them
	memory  int         // bytes of the entries
	limit   int
	timeout int64
	counts  *Reassembly
	expired func(*entry[K]) // counts the datagrams or messages that an entry lacked a fragment of
}

// An entry holds the fragments of one datagram, or of messages of one stream.
type entry[K comparable] struct {
	key        K
	since      int64 // time of the first fragment
	octets     []byte
	parts      []part
	memory     int
	total      int   // length of the datagram; negative while unknown
	protocol   uint8 // of the datagram
	overlapped bool  // further fragments are dropped
	next, prev *entry[K]
}

// A part is a run of bytes in an entry.
type part struct {
	from, to int    // in octets
	tsn      uint32 // SCTP
	ppid     uint32 // SCTP
	missing  uint16 // SCTP: bytes that the capture cut off after to
	edges    uint8  // SCTP: whether it begins or ends a message
}

func (t *table[K]) init(limit int, timeout time.Duration, counts *Reassembly, expired func(*entry[K])) {
	t.entries = map[K]*entry[K]{}
	t.ends.next, t.ends.prev = &t.ends, &t.ends
	t.limit, t.timeout, t.counts, t.expired = limit, int64(timeout), counts, expired
}

// entry returns the entry of a key, and creates it if there is none.
func (t *table[K]) entry(key K, now int64) *entry[K] {
	// A clock that jumps back must not keep entries for ever.
	for old := t.ends.next; old != &t.ends && (now-old.since > t.timeout || old.since-now > t.timeout); old = t.ends.next {
		t.expire(old)
	}
	if e := t.entries[key]; e != nil {
		return e
	}
	var e *entry[K]
	if n := len(t.free); n > 0 {
		e, t.free = t.free[n-1], t.free[:n-1]
	} else {
		e = &entry[K]{}
	}
	e.key, e.since, e.total, e.overlapped = key, now, -1, false
	e.octets, e.parts = e.octets[:0], e.parts[:0]
	e.next, e.prev = &t.ends, t.ends.prev
	e.next.prev, e.prev.next = e, e
	t.entries[key] = e
	t.charge(e)
	return e
}

// expire drops an entry that lacks a fragment.
func (t *table[K]) expire(e *entry[K]) {
	t.expired(e)
	t.remove(e)
}

// expireAll drops all entries.
func (t *table[K]) expireAll() {
	for t.ends.next != &t.ends {
		t.expire(t.ends.next)
	}
}

// grow makes room for n bytes in an entry.
func (t *table[K]) grow(e *entry[K], n int) {
	if cap(e.octets) < n {
		octets := make([]byte, len(e.octets), max(n, 2*cap(e.octets), 2048))
		copy(octets, e.octets)
		e.octets = octets
	}
	t.charge(e)
}

// charge updates the memory of an entry, and drops the oldest other entries while the limit
// is exceeded. It drops the entry itself if it alone exceeds the limit. The part of the
// current fragment counts with the next fragment.
func (t *table[K]) charge(e *entry[K]) {
	memory := cap(e.octets) + cap(e.parts)*partSize + entryOverhead
	t.memory += memory - e.memory
	e.memory = memory
	for t.memory > t.limit {
		old := t.ends.next
		if old == e && e.next != &t.ends {
			old = e.next
		}
		if !old.overlapped {
			t.counts.GivenUp++
		}
		t.remove(old)
		if old == e {
			return
		}
	}
}

// held reports whether an entry is in the table.
func (e *entry[K]) held() bool { return e.next != nil }

// remove takes an entry out of the table. Its bytes stay valid until recycle.
func (t *table[K]) remove(e *entry[K]) {
	delete(t.entries, e.key)
	e.next.prev, e.prev.next = e.prev, e.next
	e.next, e.prev = nil, nil
	t.memory -= e.memory
	e.memory = 0
	t.spent = append(t.spent, e)
}

// recycle makes removed entries available again. It keeps few, because they do not count
// towards the limit.
func (t *table[K]) recycle() {
	for i, e := range t.spent {
		const keep, largest = 16, 64 << 10
		if len(t.free) < keep && cap(e.octets) <= largest {
			t.free = append(t.free, e)
		}
		t.spent[i] = nil
	}
	t.spent = t.spent[:0]
}
