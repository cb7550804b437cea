package gtpc

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/table"
)

// An instance identifies an instance across epochs by its type and ID.
type instance struct {
	ty table.Type
	id uint16 // 0: none
}

func instanceOf(t *table.Target) instance { return instance{t.Type, t.ID} }

// An owner is the holder of a TEID: an instance, with the session's key, or a peer,
// with its address.
type owner struct {
	instance        // if a peer owns the TEID: the instance that accepted it
	given    uint32 // if a peer owns the TEID: the TEID in the peer's F-TEID
	key      uint64
	hasKey   bool // key is set
	address  place
}

// A place is a netip.AddrPort without pointers.
type place struct {
	ip   [16]byte
	port uint16
	four bool
}

func placeOf(a netip.AddrPort) place {
	return place{a.Addr().As16(), a.Port(), a.Addr().Unmap().Is4()}
}

func (p place) addrPort() netip.AddrPort {
	a := netip.AddrFrom16(p.ip)
	if p.four {
		a = a.Unmap()
	}
	return netip.AddrPortFrom(a, p.port)
}

// learned remembers the owners of TEIDs without a prefix: TEIDs of functions that cannot
// use a prefix, and TEIDs of peers. Its size is fixed; a full bucket evicts the least
// recently used TEID. The end of a session does not remove its TEID, because a UE's
// sessions share one (TS 29.274 clause 4.1). But a TEID that was not used since is evicted
// before others. All workers share it.
type learned struct {
	buckets  []learnedBucket
	secret   [16]byte // places TEIDs in buckets
	idle     uint32   // seconds without use after which a TEID is forgotten
	wait     uint32   // seconds after which a claim that was not accepted is forgotten
	locks    [stripes]lock
	overflow atomic.Uint64 // forgotten for lack of room, although no session had ended
}

const (
	stripes = 64
	ways    = 8
)

// A lock has a cache line of its own.
type lock struct {
	sync.Mutex
	_ [56]byte
}

type learnedBucket [ways]learnedEntry

type learnedEntry struct {
	owner
	teid    uint32 // 0 in an unused entry
	seconds uint32 // when it was last used
	claimed bool   // by a peer; the instance has not accepted it yet
	ended   bool   // a session ended, and the TEID was not used since
}

// age returns the seconds since the TEID was last used. It is 0 if the last use is later
// than now, which happens if this worker lags behind another, or after a hand-over.
func (e *learnedEntry) age(seconds uint32) uint32 { return uint32(max(0, int32(seconds-e.seconds))) }

func newLearned(limit int, idle time.Duration) *learned {
	n := 1
	for n*ways < limit {
		n *= 2
	}
	seconds := max(1, uint32(idle/time.Second))
	l := &learned{buckets: make([]learnedBucket, n), idle: seconds, wait: seconds}
	_, _ = rand.Read(l.secret[:]) // never fails (crypto/rand)
	return l
}

// bucket returns the bucket of a TEID. It depends on a secret, so no peer can choose TEIDs that fill the
// bucket of another peer's TEID and evict it. A hand-over carries the secret, so that each TEID finds room
// in the next process. Hashes of package maphash would differ there.
func (l *learned) bucket(teid uint32) (*learnedBucket, *lock) {
	factor, offset := binary.NativeEndian.Uint64(l.secret[:8]), binary.NativeEndian.Uint64(l.secret[8:])
	at := table.Mix(factor*uint64(teid)+offset) & uint64(len(l.buckets)-1)
	return &l.buckets[at], &l.locks[at%stripes]
}

// find returns the owner of a TEID and notes that the TEID was used.
func (l *learned) find(now time.Duration, teid uint32) (owner, bool) {
	b, lock := l.bucket(teid)
	seconds := uint32(now / time.Second)
	lock.Lock()
	defer lock.Unlock()
	if e := l.entry(b, seconds, teid); e != nil && !e.claimed {
		e.seconds, e.ended = seconds, false
		return e.owner, true
	}
	return owner{}, false
}

// end notes that a session of a TEID has ended at an instance. If the TEID has another
// instance, the session has moved there and lives.
func (l *learned) end(now time.Duration, teid uint32, at instance) {
	b, lock := l.bucket(teid)
	lock.Lock()
	defer lock.Unlock()
	if e := l.entry(b, uint32(now/time.Second), teid); e != nil && e.instance == at {
		e.ended = true
	}
}

// live reports whether an entry is in use and has not expired.
func (l *learned) live(e *learnedEntry, seconds uint32) bool {
	limit := l.idle
	if e.claimed {
		limit = l.wait
	}
	return e.teid != 0 && e.age(seconds) <= limit
}

// entry returns the entry of a TEID; nil: there is none. The caller holds the lock.
func (l *learned) entry(b *learnedBucket, seconds, teid uint32) *learnedEntry {
	for i := range b {
		if e := &b[i]; e.teid == teid && l.live(e, seconds) {
			return e
		}
	}
	return nil
}

// victim returns the entry of a bucket to evict. Unused and expired entries go first, then
// the oldest claim, then the TEIDs of ended sessions, then the least recently used TEID. The
// caller holds the lock.
func (l *learned) victim(b *learnedBucket, seconds uint32) (victim *learnedEntry) {
	const unused, claimed, ended = 1 << 34, 1 << 33, 1 << 32 // above every age
	most := uint64(0)
	for i := range b {
		e := &b[i]
		rank := uint64(e.age(seconds))
		switch {
		case !l.live(e, seconds):
			rank = unused
		case e.claimed:
			rank += claimed
		case e.ended:
			rank += ended
		}
		if victim == nil || rank > most {
			victim, most = e, rank
		}
	}
	return victim
}

// put remembers the owner of a TEID, in place of an earlier owner. It returns the earlier
// owner, unless a session of the TEID has ended and the TEID was not used since; id 0: none.
func (l *learned) put(now time.Duration, teid uint32, whose owner) (before owner) {
	b, lock := l.bucket(teid)
	seconds := uint32(now / time.Second)
	lock.Lock()
	defer lock.Unlock()
	if e := l.entry(b, seconds, teid); e != nil && !e.ended {
		before = e.owner
	}
	l.enter(b, learnedEntry{owner: whose, teid: teid, seconds: seconds})
	return before
}

// enter replaces the entry of the same TEID, or else evicts one. The caller holds the lock.
func (l *learned) enter(b *learnedBucket, e learnedEntry) {
	at := l.entry(b, e.seconds, e.teid)
	if at == nil {
		if at = l.victim(b, e.seconds); l.live(at, e.seconds) && !at.claimed && !at.ended {
			l.overflow.Add(1)
		}
	}
	*at = e
}

// len returns the number of TEIDs that are remembered.
func (l *learned) len(now time.Duration) (n int) {
	seconds := uint32(now / time.Second)
	for i := range l.buckets {
		lock := &l.locks[i%stripes]
		lock.Lock()
		for k := range l.buckets[i] {
			if e := &l.buckets[i][k]; l.live(e, seconds) && !e.claimed {
				n++
			}
		}
		lock.Unlock()
	}
	return n
}
