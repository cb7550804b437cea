package gtpc

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"vitrine/wire/gtpc"
)

// An exchange is a forwarded request and the return path of its answer. In GTPv2-C, a relay
// can encode the return path only in the sequence number, and 24 bits do not hold an
// address. So the director gives requests its own sequence numbers, as every sender does,
// and remembers the exchange of each number.
type exchange struct {
	from, to place
	began    uint32 // in units of moment
	sequence uint32 // the sender's, with the command bit
	number   uint32 // the director's, without the command bit
	teid     uint32 // of the request
	key      uint64
	claim    claim    // of the sender's TEID, at the receiver
	receiver instance // of the request, if it is an instance
	sender   instance // of the request, if it is an instance
	listener uint8    // that received the request
	kind     gtpc.Type
	live     bool
	answered bool
	hasKey   bool
	linked   bool // the request has an EPS bearer ID of instance 0
}

// endsSession reports whether the request ends a session when it is accepted: a Delete Session Request,
// or a Delete Bearer Request that names the session's default bearer (TS 29.274 table 7.2.9.2-1).
func (e *exchange) endsSession() bool {
	return e.kind == gtpc.DeleteSessionRequest || e.kind == gtpc.DeleteBearerRequest && e.linked
}

// moment is the unit of time of exchanges.
const moment = 64 * time.Microsecond

// numbers is how many sequence numbers the director uses before it wraps around: 24 bits
// without the command bit and ownBit.
const numbers = 1 << 22

// exchanges remembers the latest exchanges, in a ring. All workers share it, because the
// kernel may deliver an answer to another worker than the request.
type exchanges struct {
	ring     []exchange // by number, modulo its length
	index    []indexBucket
	seed     maphash.Seed // of index: nobody can choose requests for one bucket without it
	lifetime uint32       // in units of moment
	next     atomic.Uint32
	ringLock [stripes]lock
	idxLock  [stripes]lock
	overflow atomic.Uint64 // forgotten for lack of room while unanswered and younger than lifetime
}

// An indexBucket finds exchanges by their sender. It is one cache line of entries. An entry
// has 10 bits of the sender's hash and the exchange's number, which locates the exchange in
// the ring for a full comparison. 0 marks an unused entry, because no exchange has the
// number 0.
type indexBucket [indexWays]uint32

const (
	indexWays   = 16
	indexNumber = numbers - 1
)

func indexTag(h uint64) uint32 { return uint32(h>>54) << 22 }

// newExchanges makes room for limit exchanges, at most numbers/2. first is the first
// number. It must differ after each start, so that the director does not reuse a number
// while an instance may still remember it.
func newExchanges(limit int, lifetime time.Duration, first uint32) *exchanges {
	n := stripes // with fewer, two locks would guard one entry of the ring
	for n < limit && n < numbers/2 {
		n *= 2
	}
	x := &exchanges{ring: make([]exchange, n), index: make([]indexBucket, n/indexWays*2), seed: maphash.MakeSeed(), lifetime: uint32(lifetime / moment)}
	x.next.Store(first)
	return x
}

func momentOf(now time.Duration) uint32 { return uint32(now / moment) }

// isLive reports whether an exchange that began then is still alive. It may have begun up
// to a second after now, because one worker may lag behind another.
func (x *exchanges) isLive(began uint32, now time.Duration) bool {
	const behind = uint32(time.Second / moment)
	return momentOf(now)-began+behind <= x.lifetime+behind
}

// hash hashes what identifies an exchange on the sender's side. The order of the fields leaves no padding
// between them, so that they are hashed in one piece.
func (x *exchanges) hash(from *place, listener uint8, sequence uint32) uint64 {
	return maphash.Comparable(x.seed, struct {
		ip       [16]byte
		sequence uint32
		port     uint16
		listener uint8
	}{from.ip, sequence, from.port, listener})
}

// find returns a copy of the exchange that a sender began at a listener with that
// sequence number and message type; kind 0 means any type.
func (x *exchanges) find(now time.Duration, from place, listener uint8, sequence uint32, kind gtpc.Type) (e exchange, found bool) {
	h := x.hash(&from, listener, sequence)
	at := h & uint64(len(x.index)-1)
	lock := &x.idxLock[at%stripes]
	lock.Lock()
	bucket := x.index[at]
	lock.Unlock()
	tag := indexTag(h)
	for _, entry := range bucket {
		if entry == 0 || entry&^indexNumber != tag {
			continue
		}
		got, ok := x.get(now, entry&indexNumber)
		if !ok || got.sequence != sequence || got.listener != listener || got.from != from || kind != 0 && got.kind != kind {
			continue
		}
		if !found || (got.number-e.number)&indexNumber < numbers/2 { // the latest of several
			e, found = got, true
		}
	}
	return e, found
}

// get returns a copy of the exchange with that number.
func (x *exchanges) get(now time.Duration, number uint32) (exchange, bool) {
	lock := &x.ringLock[number%stripes]
	lock.Lock()
	e := x.ring[number&uint32(len(x.ring)-1)]
	lock.Unlock()
	return e, e.live && e.number == number && x.isLive(e.began, now)
}

// answer returns the exchange that an answer from that address belongs to, by its number,
// and reports whether the answer is the first.
func (x *exchanges) answer(now time.Duration, number uint32, from netip.AddrPort) (e exchange, first, ok bool) {
	if number >= numbers {
		return e, false, false
	}
	p := placeOf(from)
	lock := &x.ringLock[number%stripes]
	lock.Lock()
	defer lock.Unlock()
	at := &x.ring[number&uint32(len(x.ring)-1)]
	if !at.live || at.number != number || at.to != p || !x.isLive(at.began, now) {
		return e, false, false
	}
	first = !at.answered
	at.answered = true
	return *at, first, true
}

// add remembers an exchange and returns its new number.
func (x *exchanges) add(now time.Duration, e exchange) (number uint32) {
	for number == 0 {
		number = x.next.Add(1) & (numbers - 1)
	}
	e.number, e.began, e.live = number, momentOf(now), true
	x.put(e)
	return number
}

// put enters an exchange in the ring and in the index.
func (x *exchanges) put(e exchange) {
	number := e.number
	lock := &x.ringLock[number%stripes]
	lock.Lock()
	at := &x.ring[number&uint32(len(x.ring)-1)]
	if at.live && !at.answered && e.began-at.began <= x.lifetime {
		x.overflow.Add(1)
	}
	*at = e
	lock.Unlock()

	h := x.hash(&e.from, e.listener, e.sequence)
	place := h & uint64(len(x.index)-1)
	lock = &x.idxLock[place%stripes]
	lock.Lock()
	bucket := &x.index[place]
	victim, oldest := 0, uint32(0)
	for i, old := range bucket {
		if old == 0 {
			victim = i
			break
		}
		if age := (number - old) & indexNumber; age >= oldest {
			victim, oldest = i, age
		}
	}
	bucket[victim] = indexTag(h) | number
	lock.Unlock()
}
