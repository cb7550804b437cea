package capture

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"vitrine/internal/fifo"
)

// maxPlaces is the number of places that a Finder remembers for a packet.
const maxPlaces = 12

// A Finder finds packets that were captured more than once. A packet that is seen at
// two places within a short time is one message, and its two times give the delay
// between them. A packet that is seen again at one place is a duplicate or a retransmission.
//
// Packets are the same if their innermost IP headers have the same addresses and
// identification, and their transport headers and payloads are equal. Fields that routers
// change do not count. Copies on both sides of a network address translation are not
// recognised.
//
// A capture may cut packets off (tcpdump -s). TCP and SCTP number what they send, so the first bytes of
// the payload are enough there. UDP has no numbers, so all captured bytes count. An SCTP message that is
// cut off cannot be decoded, so a copy with more bytes is a new packet.
//
// A sender gives each transmission over IPv4 an identification of its own, so a packet that comes
// again with the same one is a duplicate. So is a datagram of UDP: no protocol over UDP that is read
// here sends again within the window (SIP after 500 ms: RFC 3261 section 17.1.1.1, timer T1). IPv6 has
// no identification, and that of IPv4 may be zero. Then a packet of TCP or SCTP that comes again
// counts as a retransmission, and a copy of it as a copy of the last transmission at the place where
// the first was seen.
//
// Two different packets within the window have the same hash with a probability of 1 in
// 10^19 per pair.
type Finder struct {
	window int64
	limit  int
	seen   map[uint64]sighting
	order  fifo.Queue[arrival] // of the sightings
	given  uint64
}

type sighting struct {
	at      int64 // when it was first seen
	places  [maxPlaces]Where
	count   uint8
	missing int32 // Packet.Missing
}

type arrival struct {
	key uint64
	at  int64
}

// A Kind is the relation of a packet to earlier packets.
type Kind uint8

// The kinds of packets.
const (
	New            Kind = iota
	Copy                // seen before, at other places
	Duplicate           // seen before at this place, such as a mirror port that shows both directions
	Retransmission      // seen before at this place, and may have been sent again
)

// A Sighting is the relation of a packet to earlier packets.
type Sighting struct {
	Kind  Kind
	Delay time.Duration // since it was first seen
}

// NewFinder returns a Finder that compares packets within a window of time, usually 50 ms.
// It remembers at most limit packets, some 120 bytes each.
func NewFinder(window time.Duration, limit int) *Finder {
	return &Finder{window: int64(window), limit: max(limit, 1), seen: map[uint64]sighting{}}
}

// GivenUp returns how many packets were forgotten within the window, because limit was
// reached.
func (f *Finder) GivenUp() uint64 { return f.given }

// Find returns how a packet relates to earlier packets. Packets must come in order of time.
func (f *Finder) Find(p *Packet) Sighting {
	f.expire(p.Time)
	key := p.Identity()
	s, known := f.seen[key]
	if !known || p.Transport == SCTP && p.Missing < int(s.missing) {
		f.remember(key, p)
		return Sighting{Kind: New}
	}
	result := Sighting{Kind: Copy, Delay: time.Duration(p.Time - s.at)}
	switch again := slices.Contains(s.places[:s.count], p.Where); {
	case again && (p.ID != 0 || p.Transport == UDP):
		result.Kind = Duplicate
	case again:
		result.Kind = Retransmission
		if p.Where == s.places[0] { // later copies are copies of this transmission
			f.remember(key, p)
		}
	case s.count < maxPlaces:
		s.places[s.count] = p.Where
		s.count++
		f.seen[key] = s
	}
	return result
}

// remember records a packet whose later copies count from here.
func (f *Finder) remember(key uint64, p *Packet) {
	if f.order.Len() == f.limit {
		f.forget()
		f.given++
	}
	s := sighting{at: p.Time, count: 1, missing: int32(p.Missing)}
	s.places[0] = p.Where
	f.seen[key] = s
	f.order.Push(arrival{key, p.Time})
}

// expire forgets packets outside the window. A clock that jumps back must not keep packets
// for ever.
func (f *Finder) expire(now int64) {
	for f.order.Len() > 0 {
		age := now - f.order.Front().at
		if -f.window <= age && age <= f.window {
			return
		}
		f.forget()
	}
}

// forget forgets the oldest arrival, unless the packet was seen again later.
func (f *Finder) forget() {
	oldest := f.order.Pop()
	if f.seen[oldest.key].at == oldest.at {
		delete(f.seen, oldest.key)
	}
}

// Identity returns a hash that is the same for all copies of a packet.
func (p *Packet) Identity() uint64 {
	const enough = 64 // bytes of a payload of TCP or SCTP
	payload := p.Payload
	if p.Transport != UDP {
		payload = payload[:min(len(payload), enough)]
	}
	var b [96]byte
	src, dst := p.Src.Addr().As16(), p.Dst.Addr().As16()
	copy(b[0:], src[:])
	copy(b[16:], dst[:])
	binary.LittleEndian.PutUint16(b[32:], p.Src.Port())
	binary.LittleEndian.PutUint16(b[34:], p.Dst.Port())
	binary.LittleEndian.PutUint16(b[36:], p.ID)
	b[38], b[39] = byte(p.Transport), byte(p.Flags)
	binary.LittleEndian.PutUint32(b[40:], p.Seq)
	binary.LittleEndian.PutUint32(b[44:], p.Ack)
	binary.LittleEndian.PutUint32(b[48:], p.Tag)
	binary.LittleEndian.PutUint32(b[52:], p.TSN)
	binary.LittleEndian.PutUint32(b[56:], p.PPID)
	binary.LittleEndian.PutUint16(b[60:], p.Stream)
	binary.LittleEndian.PutUint64(b[64:], xxhash.Sum64(payload))
	binary.LittleEndian.PutUint64(b[72:], uint64(len(p.Payload)+p.Missing))
	return xxhash.Sum64(b[:80])
}
