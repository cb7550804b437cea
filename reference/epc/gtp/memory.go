package gtp

import (
	"net/netip"
	"sync"
	"time"
)

// An exchangeKey identifies a request of a peer (clause 7.6).
type exchangeKey struct {
	peer     netip.AddrPort
	sequence uint32
}

// A memory keeps the answers to the latest requests, at most limit and for a time.
// The oldest is displaced.
type memory struct {
	limit int
	life  time.Duration
	index map[exchangeKey]int
	ring  []remembered
	next  int // the oldest, once the ring is full
}

// remembered is a request that is being handled, or its answer.
type remembered struct {
	key    exchangeKey
	at     time.Time
	octets []byte // empty until it is answered; reused
}

// find returns the entry of a request; nil if there is none or if it is too old.
// The entry is valid until the next add.
func (m *memory) find(key exchangeKey, now time.Time) *remembered {
	i, ok := m.index[key]
	if !ok || now.Sub(m.ring[i].at) > m.life {
		return nil
	}
	return &m.ring[i]
}

// add adds a request that is being handled.
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

// maxPeers limits the peers whose restart counters are kept. Others never restart.
const maxPeers = 4096

// restarted keeps a peer's counter and reports whether it has changed.
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
