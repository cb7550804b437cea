// Package gtpc steers GTPv2-C messages (3GPP TS 29.274) to instances of
// aggregates: by message type to the aggregate type, then by session key to the
// instance.
//
// Peers see one node: the director's address, one restart counter, sequence
// numbers that never collide. The key of a session is its IMSI where the TEID is
// 0; afterwards it is in the bits of the TEID, which the instances hand out by
// the Prefix that they were started with, or it is learned, for functions that
// take none. Everything that a message leaves open goes by the epoch's table, as
// in package table.
package gtpc

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A Config says what a Director is made of. Limits are numbers of entries that
// are allocated at once; 0 is the default that is named.
type Config struct {
	Addresses []netip.AddrPort // listened to, as datagram.Config has them
	Epochs    *table.Epochs
	Meter     *meter.Meter
	Policy    *Policy

	// Counter is the restart counter: it says to peers that all sessions are
	// lost when it changes, so it outlives the director's own restarts (TS
	// 23.007 clause 18).
	Counter uint8
	// First is where the director's own sequence numbers begin: another after
	// each start, such as the clock's seconds times 5000.
	First uint32
	// PeerPort is where peers listen, whatever port they send from (TS 29.274
	// clause 4.2.2.1); 0: 2123.
	PeerPort uint16
	// Region is where a client is; nil: nowhere in particular.
	Region func(netip.Addr) table.Region

	Exchanges int           // requests whose answer may still come; 262,144, of 96 bytes
	Sessions  int           // TEIDs learned; 262,144, twice, of 56 bytes
	Keys      int           // keys that each worker remembers; 131,072, of table.EntrySize
	Lifetime  time.Duration // of an exchange: T3-RESPONSE times N3-REQUESTS and some; 15 s
	Idle      time.Duration // without use, until a learned TEID is forgotten; 24 h
}

// Port is where GTP-C is spoken (TS 29.274 clause 4.2.2.1).
const Port = 2123

// A Director is what the workers of one director share.
type Director struct {
	config    Config
	policy    atomic.Pointer[Policy]
	exchanges *exchanges
	sessions  *learned // TEIDs that instances gave out, and
	peers     *learned // those that peers gave to an instance

	mu      sync.Mutex
	workers []*Worker
}

// New makes a Director.
func New(config Config) (*Director, error) {
	if config.Epochs == nil || config.Meter == nil || config.Policy == nil || len(config.Addresses) == 0 {
		return nil, errors.New("gtpc: a director needs an address, epochs, a meter and a policy")
	}
	setDefault(&config.Exchanges, 1<<18)
	setDefault(&config.Sessions, 1<<18)
	setDefault(&config.Keys, 1<<17)
	setDefault(&config.Lifetime, 15*time.Second)
	setDefault(&config.Idle, 24*time.Hour)
	setDefault(&config.PeerPort, Port)
	d := &Director{
		config:    config,
		exchanges: newExchanges(config.Exchanges, config.Lifetime, config.First),
		sessions:  newLearned(config.Sessions, config.Idle),
		peers:     newLearned(config.Sessions, config.Idle),
	}
	d.policy.Store(config.Policy)
	return d, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetPolicy puts other rules in force, for the same types.
func (d *Director) SetPolicy(p *Policy) { d.policy.Store(p) }

// Policy is what is in force.
func (d *Director) Policy() *Policy { return d.policy.Load() }

// Worker makes the handler of one more datagram worker.
func (d *Director) Worker() *Worker {
	w := &Worker{
		director: d,
		steering: table.NewSteering(d.config.Epochs, d.config.Keys),
		meter:    d.config.Meter.Worker(),
		places:   map[netip.AddrPort]instance{},
	}
	d.mu.Lock()
	d.workers = append(d.workers, w)
	d.mu.Unlock()
	return w
}

// via is the listener to reach an address by: the one at hand when it is of the
// address's family; -1: none is.
func (d *Director) via(at int, to netip.Addr) int {
	if d.config.Addresses[at].Addr().Is4() == to.Is4() {
		return at
	}
	for i, a := range d.config.Addresses {
		if a.Addr().Is4() == to.Is4() {
			return i
		}
	}
	return -1
}

// own says whether an address is one of the director's.
func (d *Director) own(a netip.Addr) bool {
	for _, l := range d.config.Addresses {
		if l.Addr() == a {
			return true
		}
	}
	return false
}

// isOwn says whether a message came from the director itself: an instance has
// its address.
func (d *Director) isOwn(from netip.AddrPort) bool {
	for _, l := range d.config.Addresses {
		if l == from {
			return true
		}
	}
	return false
}

// ownerOf finds whose a TEID is that a peer sends to.
func (d *Director) ownerOf(p *Policy, now time.Duration, teid uint32) owner {
	if teid == 0 {
		return owner{}
	}
	prefixed := prefixOwner(p, teid)
	if prefixed.id != 0 && !p.learns {
		return prefixed
	}
	// A function that takes no prefix may have drawn a TEID that looks like one.
	if o, ok := d.sessions.find(now, directorSpace, teid); ok {
		return o
	}
	return prefixed
}

// prefixOwner is the instance whose prefix a TEID has; none: id is 0. It need
// not be there any more: then the key still counts.
func prefixOwner(p *Policy, teid uint32) owner {
	number, id, key := splitTEID(teid)
	if number == 0 || id == 0 || !p.has[number] {
		return owner{}
	}
	return owner{instance: instance{p.numbered[number], id}, key: uint64(key), hasKey: true}
}

// Counters count the messages of a Director since its start.
type Counters struct {
	Received        uint64 // messages; a piggybacked one counts with its carrier
	Forwarded       uint64
	Echoes          uint64 // Echo Requests answered
	VersionsRefused uint64 // answered by Version Not Supported
	Malformed       uint64 // dropped
	Stray           uint64 // answers to nothing that is remembered, dropped
	Retransmitted   uint64 // requests that came again, sent where they went before
	Rejected        uint64 // requests that the director answered itself, for want of an instance or of tokens
	Unruled         uint64 // requests that no rule fits, dropped
	Unreachable     uint64 // requests of instances to a TEID that is not known, and messages to an address of a family that is not listened to
	UnknownTEID     uint64 // requests steered by a hash of the TEID, whose owner is not known
	Keyless         uint64 // requests with neither TEID nor IMSI, steered by the sender's address
	Piggybacked     uint64

	ExchangesForgotten uint64 // unanswered ones that made room: their answer is lost
	SessionsForgotten  uint64 // learned TEIDs that made room
	PeersForgotten     uint64
	Sessions, Peers    int // TEIDs remembered now
}

// Counters adds up the workers.
func (d *Director) Counters(now time.Duration) Counters {
	t := Counters{
		ExchangesForgotten: d.exchanges.overflow.Load(),
		SessionsForgotten:  d.sessions.overflow.Load(), PeersForgotten: d.peers.overflow.Load(),
		Sessions: d.sessions.len(now), Peers: d.peers.len(now),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.workers {
		c := &w.counts
		for _, add := range []struct {
			to   *uint64
			more uint64
		}{
			{&t.Received, c.received.Load()}, {&t.Forwarded, c.forwarded.Load()}, {&t.Echoes, c.echoes.Load()},
			{&t.VersionsRefused, c.versions.Load()}, {&t.Malformed, c.malformed.Load()}, {&t.Stray, c.stray.Load()},
			{&t.Retransmitted, c.again.Load()}, {&t.Rejected, c.rejected.Load()}, {&t.Unruled, c.unruled.Load()},
			{&t.Unreachable, c.unreachable.Load()}, {&t.UnknownTEID, c.unknownTEID.Load()}, {&t.Keyless, c.keyless.Load()},
			{&t.Piggybacked, c.piggybacked.Load()},
		} {
			*add.to += add.more
		}
	}
	return t
}

// outcome is what the meter calls the end of a request with that cause.
func outcome(cause gtpc.CauseValue) meter.Outcome {
	switch {
	case cause == 0 || cause.Accepted():
		return meter.Succeeded
	case cause == gtpc.EntityCongestion || cause == gtpc.NoResourcesAvailable:
		return meter.Busy
	case cause == gtpc.PeerNotResponding || cause == systemFailure:
		return meter.Failed
	}
	return meter.Declined
}

const systemFailure gtpc.CauseValue = 72
