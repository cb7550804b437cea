package gtpc

import (
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
	instance
	key     uint64
	hasKey  bool // key is set
	address place
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

// learned remembers the owners of TEIDs, for functions that cannot use a prefix. Its size
// is fixed; in a full bucket, the least recently used TEID makes room. All workers share
// it.
type learned struct {
	buckets  []learnedBucket
	idle     uint32 // seconds without use after which a TEID is forgotten
	locks    [stripes]lock
	overflow atomic.Uint64 // forgotten for lack of room
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
	space   uint32 // within which the TEID is unique; 0 in an unused entry
	teid    uint32
	seconds uint32 // when it was last used
}

// age returns how many seconds the TEID has not been used. It is 0 if the last use is
// later than now. That happens to a worker that lags behind another, and when entries are
// taken over.
func (e *learnedEntry) age(seconds uint32) uint32 { return uint32(max(0, int32(seconds-e.seconds))) }

// directorSpace is the space of the TEIDs that peers send to. The TEIDs that an instance
// sends to are in the instance's own space, a hash of its address.
const directorSpace = 1

func spaceOf(instance netip.AddrPort) uint32 {
	p := placeOf(instance)
	return 1<<31 | uint32(hashSender(&p, 0, 0)>>33)
}

func newLearned(limit int, idle time.Duration) *learned {
	n := 1
	for n*ways < limit {
		n *= 2
	}
	return &learned{buckets: make([]learnedBucket, n), idle: max(1, uint32(idle/time.Second))}
}

func (l *learned) bucket(space, teid uint32) (*learnedBucket, *lock) {
	at := mix(uint64(space)<<32|uint64(teid)) & uint64(len(l.buckets)-1)
	return &l.buckets[at], &l.locks[at%stripes]
}

// find returns the owner of a TEID and notes that the TEID was used.
func (l *learned) find(now time.Duration, space, teid uint32) (owner, bool) {
	b, lock := l.bucket(space, teid)
	seconds := uint32(now / time.Second)
	lock.Lock()
	defer lock.Unlock()
	for i := range b {
		e := &b[i]
		if e.teid == teid && e.space == space && e.age(seconds) <= l.idle {
			e.seconds = seconds
			return e.owner, true
		}
	}
	return owner{}, false
}

// put remembers the owner of a TEID, in place of an earlier owner.
func (l *learned) put(now time.Duration, space, teid uint32, whose owner) {
	b, lock := l.bucket(space, teid)
	seconds := uint32(now / time.Second)
	lock.Lock()
	defer lock.Unlock()
	var victim *learnedEntry
	oldest := uint32(0)
	for i := range b {
		e := &b[i]
		age := e.age(seconds)
		if e.space == space && e.teid == teid {
			victim, oldest = e, ^uint32(0)
			break
		}
		if e.space == 0 || age > l.idle {
			age = ^uint32(0)
		}
		if victim == nil || age > oldest {
			victim, oldest = e, age
		}
	}
	if oldest != ^uint32(0) {
		l.overflow.Add(1)
	}
	*victim = learnedEntry{whose, space, teid, seconds}
}

// forget removes a TEID.
func (l *learned) forget(space, teid uint32) {
	b, lock := l.bucket(space, teid)
	lock.Lock()
	defer lock.Unlock()
	for i := range b {
		if b[i].teid == teid && b[i].space == space {
			b[i] = learnedEntry{}
		}
	}
}

// len returns the number of TEIDs that are remembered.
func (l *learned) len(now time.Duration) (n int) {
	seconds := uint32(now / time.Second)
	for i := range l.buckets {
		lock := &l.locks[i%stripes]
		lock.Lock()
		for k := range l.buckets[i] {
			if e := &l.buckets[i][k]; e.space != 0 && e.age(seconds) <= l.idle {
				n++
			}
		}
		lock.Unlock()
	}
	return n
}

// mix spreads a value over 64 bits: the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
