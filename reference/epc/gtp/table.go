package gtp

import (
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
)

// A Prefix is the part of a TEID that names the instance that allocated it. A
// director routes messages by it (docs/director-gtpc.md). A TEID has 3 bits for
// the number of the instance's type, 7 bits for the instance, 12 bits for a hash
// of the IMSI, and 10 bits that the instance chooses. An instance without a
// director has the zero Prefix and uses all bits.
type Prefix struct {
	Type     uint8 // 1 to 7
	Instance uint8 // 1 to 127; 0: no prefix
}

// The highest values of a Prefix.
const (
	maxType     = 7
	maxInstance = 127
)

const (
	keyBits    = 12
	serialBits = 10
)

// A Table holds a node's sessions by the TEIDs that the node allocated, up to a
// limit. Only one goroutine may use it at a time.
type Table[T any] struct {
	limit    int
	prefix   Prefix
	serial   uint32
	sessions map[uint32]T
}

// NewTable returns a table for at most limit sessions. Its first TEID is random, because peers may
// still use the TEIDs of the node's last run, and must not reach other subscribers by them.
func NewTable[T any](limit int, prefix Prefix) *Table[T] {
	return &Table[T]{limit: limit, prefix: prefix, serial: rand.Uint32(), sessions: map[uint32]T{}}
}

// Add allocates a TEID for a session of the subscriber. It returns false if the
// table is full, or if all TEIDs with the subscriber's hash are taken.
func (t *Table[T]) Add(imsi []byte, session T) (teid uint32, ok bool) {
	if len(t.sessions) >= t.limit {
		return 0, false
	}
	for range 1 << serialBits {
		t.serial++
		teid = t.serial
		if t.prefix.Instance != 0 {
			key := uint32(xxhash.Sum64(imsi)) & (1<<keyBits - 1)
			teid = uint32(t.prefix.Type)<<29 | uint32(t.prefix.Instance)<<22 | key<<serialBits | t.serial&(1<<serialBits-1)
		}
		if _, taken := t.sessions[teid]; teid != 0 && !taken {
			t.sessions[teid] = session
			return teid, true
		}
	}
	return 0, false
}

// Set replaces the session of a TEID from Add.
func (t *Table[T]) Set(teid uint32, session T) {
	if _, ok := t.sessions[teid]; ok {
		t.sessions[teid] = session
	}
}

// Get returns a session.
func (t *Table[T]) Get(teid uint32) (session T, ok bool) {
	session, ok = t.sessions[teid]
	return session, ok
}

// Remove removes a session.
func (t *Table[T]) Remove(teid uint32) { delete(t.sessions, teid) }

// Len returns the number of sessions.
func (t *Table[T]) Len() int { return len(t.sessions) }

// All iterates over the sessions. The caller may remove sessions during the
// iteration.
func (t *Table[T]) All(yield func(teid uint32, session T) bool) {
	for teid, session := range t.sessions {
		if !yield(teid, session) {
			return
		}
	}
}
