// Package gtpc steers GTPv2-C messages (3GPP TS 29.274) to instances of aggregates: by
// message type to the aggregate type, then by session key to the instance.
//
// Peers see one node: the director's address, one restart counter, and sequence numbers
// that never collide. If the TEID is 0, the key of a session is its IMSI. Afterwards the
// key is in the bits of the TEID, because instances hand out TEIDs with the Prefix that
// they were started with. For functions that cannot use a prefix, the director learns
// TEIDs. Otherwise messages go by the table of the epoch: see package table.
package gtpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
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

// A Config configures a Server. Limits are numbers of entries, which are allocated at the
// start. 0 means the default at the end of the comment.
type Config struct {
	Addresses []netip.AddrPort // to bind; port 0: the kernel chooses one
	Workers   int              // one per core is right
	Inherited []*os.File       // sockets of the previous process; those of Addresses are used, and the caller closes all
	Now       func() time.Duration
	Epochs    *table.Epochs
	Meter     *meter.Meter
	Policy    *Policy
	Log       *slog.Logger

	// Counter is the restart counter. A change tells peers that all sessions are lost, so
	// the counter must outlive the director's own restarts (TS 23.007 clause 18).
	Counter uint8
	// First is the first of the director's own sequence numbers. It must differ after
	// each start; use for example the clock's seconds times 5000.
	First uint32
	// PeerPort is the port that peers listen on, whatever port they send from (TS 29.274
	// clause 4.2.2.1); 0: 2123.
	PeerPort uint16
	// Region returns the region of a client; nil: no regions.
	Region func(netip.Addr) table.Region

	Exchanges int           // requests whose answer may still come; 262,144, of 120 bytes each, and at most 2,097,152
	Sessions  int           // learned TEIDs, of instances and of peers; 262,144 of each, of 56 bytes
	Keys      int           // keys that each worker remembers; 131,072, of 8 octets each
	Lifetime  time.Duration // of an exchange: T3-RESPONSE times N3-REQUESTS and a margin; 15 s
	Idle      time.Duration // time after its last use until a learned TEID is forgotten; 24 h
}

// Port is the UDP port of GTP-C (TS 29.274 clause 4.2.2.1).
const Port = 2123

// A Server serves the GTP-C listeners.
type Server struct {
	config    Config // with the bound addresses
	group     *datagram.Group
	workers   []*worker
	policy    atomic.Pointer[Policy]
	exchanges *exchanges
	sessions  *learned     // TEIDs that instances gave out
	peers     *learned     // TEIDs of peers, by the TEIDs that instances know
	seed      maphash.Seed // of aliases
	warned    atomic.Bool  // the log has a collision of TEIDs
}

// Listen opens or takes over the sockets. Messages wait in the sockets until Run. The
// caller closes the Server.
func Listen(c Config) (*Server, error) {
	if c.Epochs == nil || c.Meter == nil || c.Policy == nil || c.Now == nil || c.Log == nil || len(c.Addresses) == 0 {
		return nil, errors.New("gtpc: a Config needs Addresses, Epochs, Meter, Policy, Now and Log")
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
		seed:      maphash.MakeSeed(),
	}
	s.peers.wait = uint32(c.Lifetime/time.Second) + 1
	s.policy.Store(c.Policy)
	for range max(c.Workers, 1) {
		s.workers = append(s.workers, s.newWorker(c.Keys, c.Meter.Worker()))
	}
	return s, nil
}

func (s *Server) newWorker(keys int, m *meter.Worker) *worker {
	m.Protocol = "gtpc"
	return &worker{server: s, steering: table.NewSteering(s.config.Epochs, keys), meter: m, places: map[netip.AddrPort]instance{}}
}

// SetPolicy replaces the rules, for the same types.
func (s *Server) SetPolicy(p *Policy) { s.policy.Store(p) }

// Addresses returns the addresses that the Server listens on, in the order of
// Config.Addresses, with the ports that the kernel chose.
func (s *Server) Addresses() []netip.AddrPort { return slices.Clone(s.config.Addresses) }

// Run serves until ctx is done; a Server is run once. Run handles and sends everything
// that it has received. Messages that still wait in the sockets stay there for the
// process that inherits them.
func (s *Server) Run(ctx context.Context) error {
	return s.group.Run(ctx, func(i int) datagram.Handler { return s.workers[i] })
}

// Files duplicates the sockets for another process, which passes them to Listen
// as Inherited. The caller closes them.
func (s *Server) Files() ([]*os.File, error) { return s.group.Files() }

// Steerings returns the memories of the workers, in their order. The caller may use them
// only before and after Run.
func (s *Server) Steerings() []*table.Steering {
	all := make([]*table.Steering, len(s.workers))
	for i, w := range s.workers {
		all[i] = w.steering
	}
	return all
}

// Close closes the sockets; Run must have returned.
func (s *Server) Close() error { return s.group.Close() }

// listenerFor returns the listener to send from: at, if it has the address family of to, else the
// first that has; -1: none.
func (s *Server) listenerFor(at int, to netip.Addr) int {
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

// own reports whether an address is one of the director's.
func (s *Server) own(a netip.Addr) bool {
	return slices.ContainsFunc(s.config.Addresses, func(l netip.AddrPort) bool { return l.Addr() == a })
}

// isOwn reports whether a message came from the director itself, because an instance has
// the director's address.
func (s *Server) isOwn(from netip.AddrPort) bool {
	return slices.Contains(s.config.Addresses, from)
}

// ownerOf returns the owner of a TEID that a peer sends to.
func (s *Server) ownerOf(p *Policy, now time.Duration, teid uint32) owner {
	if teid == 0 {
		return owner{}
	}
	prefixed := prefixOwner(p, teid)
	if prefixed.id != 0 && !p.learns {
		return prefixed
	}
	// A function without prefixes may have chosen a TEID that looks like one with a
	// prefix.
	if o, ok := s.sessions.find(now, teid); ok {
		return o
	}
	return prefixed
}

// end notes that a session of a TEID has ended. of gave the TEID, and other uses it.
func (s *Server) end(now time.Duration, teid uint32, of, other instance) {
	if of.id != 0 {
		s.sessions.end(now, teid, of)
	} else {
		s.peers.end(now, teid, other)
	}
}

// prefixOwner returns the instance whose prefix a TEID has; id 0: none. The key counts
// even if that instance has gone.
func prefixOwner(p *Policy, teid uint32) owner {
	number, id, key := splitTEID(teid)
	if number == 0 || id == 0 || !p.has[number] {
		return owner{}
	}
	return owner{instance: instance{p.numbered[number], id}, key: uint64(key), hasKey: true}
}

// Counters count the messages of a Server since its start.
type Counters struct {
	Received        uint64 // messages, also piggybacked ones, but not those of a dropped carrier
	Forwarded       uint64
	Echoes          uint64 // Echo Requests answered
	VersionsRefused uint64 // answered with Version Not Supported
	Malformed       uint64 // dropped
	Stray           uint64 // answers without a known request, dropped
	Retransmitted   uint64 // retransmitted requests, sent to the first receiver
	Rejected        uint64 // requests that the director answered itself, because no instance or token was available
	Unruled         uint64 // requests that no rule matches, dropped
	Unreachable     uint64 // requests of instances to an unknown TEID, and messages to an address of a family without listener
	UnknownTEID     uint64 // requests to a TEID without a known owner, steered by a hash of the TEID
	Keyless         uint64 // requests with neither TEID nor IMSI, steered by the sender's address
	Piggybacked     uint64
	OverQuota       uint64 // requests of peers over their quota, dropped
	Strangers       uint64 // messages from, and F-TEIDs of, networks that are not Policy.Peers, dropped
	Aliased         uint64 // F-TEIDs sent on with an alias, because another peer has the TEID

	ExchangesForgotten uint64 // unanswered exchanges that made room: their answer is lost
	SessionsForgotten  uint64 // learned TEIDs that made room, although no session had ended
	SessionsCollided   uint64 // learned TEIDs that two instances gave to sessions that live
	PeersForgotten     uint64
	Sessions, Peers    int // TEIDs remembered now
	Datagrams          datagram.Counters
}

// Counters returns the sums over all workers.
func (s *Server) Counters() (t Counters, err error) {
	now := s.config.Now()
	t = Counters{Sessions: s.sessions.len(now), Peers: s.peers.len(now)}
	t.ExchangesForgotten, t.SessionsForgotten, t.PeersForgotten = s.Forgotten()
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
		t.OverQuota += c.overQuota.Load()
		t.Strangers += c.strangers.Load()
		t.Aliased += c.aliased.Load()
		t.SessionsCollided += c.collided.Load()
	}
	t.Datagrams, err = s.group.Counters()
	return t, err
}

// Forgotten returns the counts of what was forgotten, as Counters does, without looking at what is
// remembered.
func (s *Server) Forgotten() (exchanges, sessions, peers uint64) {
	return s.exchanges.overflow.Load(), s.sessions.overflow.Load(), s.peers.overflow.Load()
}

// Datagrams returns the counters of the sockets.
func (s *Server) Datagrams() (datagram.Counters, error) { return s.group.Counters() }

// outcome returns the meter's outcome of a request that was answered with that cause.
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
