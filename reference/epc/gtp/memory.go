package gtp

import (
	"net/netip"
	"sync"
	"time"
)

// An exchangeKey identifies a request from a peer (clause 7.6).
type exchangeKey struct {
	peer     netip.AddrPort
	sequence uint32
}

// A memory keeps the answers to the latest requests: at most limit of them, and
// each at most for life. A new entry displaces the oldest.
type memory struct {
	limit int
	life  time.Duration
	index map[exchangeKey]int
	ring  []remembered
	next  int // the oldest, once the ring is full
}

// A remembered is a request in progress, or its answer.
type remembered struct {
	key    exchangeKey
	at     time.Time
	octets []byte // empty while the request is in progress; reused
}

// find returns the entry of a request, or nil if there is none or it is too old.
// The entry is valid until the next add.
func (m *memory) find(key exchangeKey, now time.Time) *remembered {
	i, ok := m.index[key]
	if !ok || now.Sub(m.ring[i].at) > m.life {
		return nil
	}
	return &m.ring[i]
}

// add adds a request in progress.
func (m *memory) add(key exchangeKey, now time.Time) {
	i := m.next
	if len(m.ring) < m.limit {
		i = len(m.ring)
		m.ring = append(m.ring, remembered{})
	} else {
		m.next = (m.next + 1) % m.limit
		if old := m.ring[i].key; m.index[old] == i {
			delete(m.index, old)
		}
	}
	entry := &m.ring[i]
	entry.key, entry.at, entry.octets = key, now, entry.octets[:0]
	m.index[key] = i
}

// peers holds the restart counters of peers (clause 7.6, TS 23.007 clause 18).
type peers struct {
	mu       sync.Mutex
	counters map[netip.Addr]uint8
}

// maxPeers limits the peers whose restart counters are kept. Restarts of other
// peers are not noticed.
const maxPeers = 4096

// restarted stores a peer's counter and reports whether it has changed.
func (p *peers) restarted(peer netip.Addr, counter uint8) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.counters[peer]
	switch {
	case p.counters == nil:
		p.counters = map[netip.Addr]uint8{}
	case !known && len(p.counters) >= maxPeers:
		return false
	}
	p.counters[peer] = counter
	return known && old != counter
}
