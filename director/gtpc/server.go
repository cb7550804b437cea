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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A Config says what a Server listens to and steers by. Limits are numbers of
// entries that are allocated at once; 0 is the default that is named.
type Config struct {
	Addresses []netip.AddrPort // to bind; port 0: the kernel chooses one
	Workers   int              // one a core is right
	Inherited []*os.File       // sockets of the process before; those of Addresses are used; the caller closes them
	Now       func() time.Duration
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

// A Server is the sockets of GTP-C listeners and what serves them.
type Server struct {
	config    Config // with the addresses that are bound
	group     *datagram.Group
	workers   []*worker
	policy    atomic.Pointer[Policy]
	exchanges *exchanges
	sessions  *learned // TEIDs that instances gave out, and
	peers     *learned // those that peers gave to an instance
}

// Listen opens or takes over the sockets; messages wait in them until Run. The
// caller closes the Server.
func Listen(c Config) (*Server, error) {
	if c.Epochs == nil || c.Meter == nil || c.Policy == nil || c.Now == nil || len(c.Addresses) == 0 {
		return nil, errors.New("gtpc: a Config needs Addresses, Epochs, Meter, Policy and Now")
	}
	c.Exchanges = cmp.Or(c.Exchanges, 1<<18)
	c.Sessions = cmp.Or(c.Sessions, 1<<18)
	c.Keys = cmp.Or(c.Keys, 1<<17)
	c.Lifetime = cmp.Or(c.Lifetime, 15*time.Second)
	c.Idle = cmp.Or(c.Idle, 24*time.Hour)
	c.PeerPort = cmp.Or(c.PeerPort, Port)
	group, err := datagram.Listen(datagram.Config{Addresses: c.Addresses, Workers: max(c.Workers, 1), Inherited: c.Inherited, Now: c.Now})
	if err != nil {
		return nil, fmt.Errorf("listen for GTP-C: %w", err)
	}
	c.Addresses = group.Addresses()
	s := &Server{
		config:    c,
		group:     group,
		exchanges: newExchanges(c.Exchanges, c.Lifetime, c.First),
		sessions:  newLearned(c.Sessions, c.Idle),
		peers:     newLearned(c.Sessions, c.Idle),
	}
	s.policy.Store(c.Policy)
	for range max(c.Workers, 1) {
		s.workers = append(s.workers, s.newWorker(c.Keys, c.Meter.Worker()))
	}
	return s, nil
}

func (s *Server) newWorker(keys int, m *meter.Worker) *worker {
	return &worker{server: s, steering: table.NewSteering(s.config.Epochs, keys), meter: m, places: map[netip.AddrPort]instance{}}
}

// SetPolicy puts other rules in force, for the same types.
func (s *Server) SetPolicy(p *Policy) { s.policy.Store(p) }

// Addresses are what is listened to, in the order of Config.Addresses, with the
// ports that the kernel chose.
func (s *Server) Addresses() []netip.AddrPort { return slices.Clone(s.config.Addresses) }

// Run serves until ctx is done; a Server is run once. What came in is handled
// and sent; what waits in the sockets stays there for who inherits them.
func (s *Server) Run(ctx context.Context) error {
	return s.group.Run(ctx, func(i int) datagram.Handler { return s.workers[i] })
}

// Files duplicates the sockets for another process, which passes them to Listen
// as Inherited. The caller closes them.
func (s *Server) Files() ([]*os.File, error) { return s.group.Files() }

// Steerings are those of the workers, in their order. They may be touched before
// Run and after.
func (s *Server) Steerings() []*table.Steering {
	all := make([]*table.Steering, len(s.workers))
	for i, w := range s.workers {
		all[i] = w.steering
	}
	return all
}

// Close closes the sockets; Run must have returned.
func (s *Server) Close() error { return s.group.Close() }

// via is the listener to reach an address by: the one at hand when it is of the
// address's family; -1: none is.
func (s *Server) via(at int, to netip.Addr) int {
	if s.config.Addresses[at].Addr().Is4() == to.Is4() {
		return at
	}
	for i, a := range s.config.Addresses {
		if a.Addr().Is4() == to.Is4() {
			return i
		}
	}
	return -1
}

// own says whether an address is one of the director's.
func (s *Server) own(a netip.Addr) bool {
	return slices.ContainsFunc(s.config.Addresses, func(l netip.AddrPort) bool { return l.Addr() == a })
}

// isOwn says whether a message came from the director itself: an instance has
// its address.
func (s *Server) isOwn(from netip.AddrPort) bool {
	return slices.Contains(s.config.Addresses, from)
}

// ownerOf finds whose a TEID is that a peer sends to.
func (s *Server) ownerOf(p *Policy, now time.Duration, teid uint32) owner {
	if teid == 0 {
		return owner{}
	}
	prefixed := prefixOwner(p, teid)
	if prefixed.id != 0 && !p.learns {
		return prefixed
	}
	// A function that takes no prefix may have drawn a TEID that looks like one.
	if o, ok := s.sessions.find(now, directorSpace, teid); ok {
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

// Counters count the messages of a Server since its start.
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
	Datagrams          datagram.Counters
}

// Counters adds up the workers.
func (s *Server) Counters() (t Counters, err error) {
	now := s.config.Now()
	t = Counters{
		ExchangesForgotten: s.exchanges.overflow.Load(),
		SessionsForgotten:  s.sessions.overflow.Load(), PeersForgotten: s.peers.overflow.Load(),
		Sessions: s.sessions.len(now), Peers: s.peers.len(now),
	}
	for _, w := range s.workers {
		c := &w.counts
		t.Received += c.received.Load()
		t.Forwarded += c.forwarded.Load()
		t.Echoes += c.echoes.Load()
		t.VersionsRefused += c.versions.Load()
		t.Malformed += c.malformed.Load()
		t.Stray += c.stray.Load()
		t.Retransmitted += c.again.Load()
		t.Rejected += c.rejected.Load()
		t.Unruled += c.unruled.Load()
		t.Unreachable += c.unreachable.Load()
		t.UnknownTEID += c.unknownTEID.Load()
		t.Keyless += c.keyless.Load()
		t.Piggybacked += c.piggybacked.Load()
	}
	t.Datagrams, err = s.group.Counters()
	return t, err
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
