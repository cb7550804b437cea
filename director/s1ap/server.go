// Package s1ap steers the S1AP messages (3GPP TS 36.413) of eNodeBs to instances of
// aggregates that contain an MME: a UE's first message by what NAS says in clear to the
// aggregate type, and by its S-TMSI or IMSI to the instance; the later ones to the
// instance that the connection is at.
//
// eNodeBs see one MME, whose name and GUMMEIs are the pool's. Each eNodeB has one
// association with the director. The director has, on its behalf, one with each instance,
// because an MME knows an eNodeB by its association. So messages pass unchanged in both
// directions, Paging and handovers need no table of tracking areas here, and eNB UE S1AP
// IDs need no translation. One association for each instance would need both, and a
// rewritten identifier in every message.
//
// Instances put their number into the high octet of the MME UE S1AP IDs that they give,
// and into the MME code of their GUTIs. The number is the ID of the instance, which must
// be unique among the instances of all types with S1AP. 0 is the director itself.
//
// The transport is SCTP, or TCP with the frames of wire/s1ap/frame. Either end has its
// own: inside, all messages are frames. Clauses named without a document are those of
// TS 36.413.
package s1ap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/inherit"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/internal/source"
	"vitrine/wire/s1ap"
)

// A Config configures a Server; 0 is the default that is given here.
type Config struct {
	Addresses []netip.AddrPort // to listen on; port 0: the kernel chooses one
	SCTP      []bool           // which of Addresses are of SCTP; nil: all are of TCP
	Workers   int              // that eNodeBs are shared among; one per core is right
	Inherited []*os.File       // sockets of the previous process; those of Addresses are used, and the caller closes all
	Now       func() time.Duration
	Epochs    *table.Epochs
	Meter     *meter.Meter
	Policy    *Policy
	Log       *slog.Logger
	Region    func(netip.Addr) table.Region // of a client; nil: no regions

	Keys      int           // keys that each worker remembers; 131,072, of table.EntrySize each
	ENodeBs   int           // associations; 1,024
	PerSource int           // associations with one IP address (IPv6: one /64); 64
	UEs       int           // connections of all eNodeBs; 1,048,576, of UESize each; those of one IP address have at most a quarter
	PerENodeB int           // connections of one eNodeB; 16,384
	Queues    int64         // octets that may wait in all queues; 64 MiB
	First     time.Duration // how long an eNodeB may take to be set up; 10 s
	Setup     time.Duration // how long an instance may take to accept a connection, and to answer S1 Setup; 5 s
}

// keepAlive finds peers that have gone without a word, as the heartbeats of SCTP do.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// A Server serves the S1AP listeners.
type Server struct {
	config     Config // with the bound addresses
	listeners  []listener
	workers    []*worker
	policy     atomic.Pointer[Policy]
	holders    holders
	goroutines sync.WaitGroup

	mu      sync.Mutex
	enodebs map[s1ap.ENB]*enodeb // those that are set up, or about to be
	open    map[*enodeb]struct{}
	origins map[netip.Addr]*origin
	serial  uint64

	queued atomic.Int64 // octets
	ues    atomic.Int64

	accepted, turnedAway, late, setups, setupFailures, losses, misnumbered atomic.Uint64
}

// An origin is an address (IPv6: a /64) that eNodeBs connect from.
type origin struct {
	associations int // under Server.mu
	ues          atomic.Int64
}

// originShare is the part of all connections that the eNodeBs of one origin may have.
const originShare = 4

// Listen opens or takes over the sockets. Connections wait in the sockets until Run. The
// caller closes the Server.
func Listen(c Config) (_ *Server, err error) {
	if c.Epochs == nil || c.Meter == nil || c.Policy == nil || c.Now == nil || c.Log == nil || len(c.Addresses) == 0 {
		return nil, errors.New("s1ap: a Config needs Addresses, Epochs, Meter, Policy, Now and Log")
	}
	s := newServer(c)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for i := range s.config.Addresses {
		l, err := s.config.listen(i)
		if err != nil {
			return nil, fmt.Errorf("listen for S1AP: %w", err)
		}
		s.listeners = append(s.listeners, l)
		s.config.Addresses[i] = l.Addr().(*net.TCPAddr).AddrPort()
	}
	return s, nil
}

// A listener is a *net.TCPListener or a *sctp.Listener.
type listener interface {
	net.Listener
	File() (*os.File, error)
	SetDeadline(time.Time) error
}

// listen opens or takes over the listener of an address.
func (c *Config) listen(i int) (listener, error) {
	if i < len(c.SCTP) && c.SCTP[i] {
		return inherit.ListenSCTP(c.Addresses[i], c.Inherited)
	}
	return inherit.ListenTCP(c.Addresses[i], c.Inherited)
}

// newServer returns a Server without listeners.
func newServer(c Config) *Server {
	c.Keys = cmp.Or(c.Keys, 1<<17)
	c.ENodeBs = cmp.Or(c.ENodeBs, 1024)
	c.PerSource = cmp.Or(c.PerSource, 64)
	c.UEs = cmp.Or(c.UEs, 1<<20)
	c.PerENodeB = cmp.Or(c.PerENodeB, 1<<14)
	c.Queues = cmp.Or(c.Queues, 64<<20)
	c.First = cmp.Or(c.First, 10*time.Second)
	c.Setup = cmp.Or(c.Setup, 5*time.Second)
	c.Addresses = slices.Clone(c.Addresses)
	s := &Server{config: c, enodebs: map[s1ap.ENB]*enodeb{}, open: map[*enodeb]struct{}{}, origins: map[netip.Addr]*origin{}}
	s.policy.Store(c.Policy)
	for range max(c.Workers, 1) {
		m := c.Meter.Worker()
		m.Protocol = "s1ap"
		s.workers = append(s.workers, &worker{steering: table.NewSteering(c.Epochs, c.Keys), meter: m})
	}
	return s
}

// SetPolicy replaces the rules, for the same types.
func (s *Server) SetPolicy(p *Policy) { s.policy.Store(p) }

// Addresses returns the addresses that the Server listens on, in the order of
// Config.Addresses, with the ports that the kernel chose.
func (s *Server) Addresses() []netip.AddrPort {
	return slices.Clone(s.config.Addresses)
}

// Steerings returns the memories of the workers, in their order. The caller may use them
// only before and after Run.
func (s *Server) Steerings() []*table.Steering {
	all := make([]*table.Steering, len(s.workers))
	for i, w := range s.workers {
		all[i] = w.steering
	}
	return all
}

// Datagrams returns no counts, because S1AP has no datagrams.
func (s *Server) Datagrams() (datagram.Counters, error) { return datagram.Counters{}, nil }

// Files duplicates the listening sockets for another process, which passes them to Listen
// as Inherited. The caller closes them.
func (s *Server) Files() (files []*os.File, err error) {
	for _, l := range s.listeners {
		f, err := l.File()
		if err != nil {
			for _, open := range files {
				err = errors.Join(err, open.Close())
			}
			return nil, fmt.Errorf("duplicate the listener of %v: %w", l.Addr(), err)
		}
		files = append(files, f)
	}
	return files, nil
}

// Close closes the sockets; Run must have returned.
func (s *Server) Close() (err error) {
	for _, l := range s.listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Run serves until ctx is done, and then ends all associations; a Server is run once.
// eNodeBs that wait in the listeners stay there for the process that inherits these.
func (s *Server) Run(ctx context.Context) error {
	var accepting sync.WaitGroup
	for _, l := range s.listeners {
		accepting.Go(func() { s.accept(ctx, l) })
	}
	s.follow(ctx)
	for _, l := range s.listeners {
		if err := l.SetDeadline(time.Unix(1, 0)); err != nil {
			s.config.Log.Warn("S1AP: stop accepting", "error", err)
		}
	}
	accepting.Wait()
	s.goroutines.Wait()
	return context.Cause(ctx)
}

// following is how often the associations with instances are compared with the table.
const following = 100 * time.Millisecond

// follow gives all eNodeBs the associations that the table in force asks for, and ends
// those of eNodeBs that do not set themselves up, until ctx is done.
func (s *Server) follow(ctx context.Context) {
	ticker := time.NewTicker(following)
	defer ticker.Stop()
	turns := make(map[*worker]*turn, len(s.workers))
	for _, w := range s.workers {
		turns[w] = s.newTurn(w)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, e := range s.associations() {
			t := turns[e.worker]
			t.begin()
			t.reconcile(ctx, e)
			late := e.state == down && t.now >= e.until
			t.end()
			if late {
				e.abortFor(errLate)
			}
		}
	}
}

// associations returns the associations with eNodeBs.
func (s *Server) associations() []*enodeb {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*enodeb, 0, len(s.open))
	for e := range s.open {
		all = append(all, e)
	}
	return all
}

func (s *Server) accept(ctx context.Context, l listener) {
	for ctx.Err() == nil {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			s.config.Log.Warn("S1AP: accept", "listener", l.Addr(), "error", err)
			select { // probably out of descriptors: wait until some are closed
			case <-ctx.Done():
			case <-time.After(following):
			}
			continue
		}
		e, ok := s.admit(conn)
		if !ok {
			s.turnedAway.Add(1)
			_ = conn.Close() // nothing was read
			continue
		}
		s.accepted.Add(1)
		s.goroutines.Go(func() { s.serve(ctx, e) })
	}
}

// admit makes the eNodeB of a connection, if there is room for it and its address may
// connect.
func (s *Server) admit(conn net.Conn) (*enodeb, bool) {
	a, err := newAssociation(s, conn, false)
	if err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.origins[source.Of(a.peer.Addr())]
	if from == nil {
		from = new(origin)
	}
	if len(s.open) >= s.config.ENodeBs || from.associations >= s.config.PerSource || !s.policy.Load().admits(a.peer.Addr()) {
		return nil, false
	}
	if tcp, ok := conn.(*net.TCPConn); ok { // SCTP has heartbeats of its own
		if err := tcp.SetKeepAliveConfig(keepAlive); err != nil {
			return nil, false
		}
	}
	s.serial++
	e := &enodeb{association: a, worker: s.workers[s.serial%uint64(len(s.workers))], origin: from, serial: s.serial, ues: map[uint32]ue{}, until: s.config.Now() + s.config.First}
	if s.config.Region != nil {
		e.region = s.config.Region(a.peer.Addr())
	}
	s.open[e] = struct{}{}
	from.associations++
	s.origins[source.Of(a.peer.Addr())] = from
	return e, true
}

// forget removes an eNodeB whose association has ended.
func (s *Server) forget(e *enodeb) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, e)
	if e.origin.associations--; e.origin.associations == 0 {
		delete(s.origins, source.Of(e.peer.Addr()))
	}
	if s.enodebs[e.id] == e {
		delete(s.enodebs, e.id)
	}
}

// claim makes an association that of an identity. An older one of the same address ends,
// because the eNodeB has started again. One of another address keeps the identity, which a
// second host cannot take.
func (s *Server) claim(e *enodeb, id s1ap.ENB) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.enodebs[id]
	if old != nil && old != e {
		if old.peer.Addr() != e.peer.Addr() {
			return false
		}
		old.abort()
	}
	if s.enodebs[e.id] == e {
		delete(s.enodebs, e.id)
	}
	s.enodebs[id] = e
	return true
}

// drop counts a message that is lost outside of a turn.
func (s *Server) drop(cause meter.Cause, peer netip.AddrPort) {
	s.workers[0].meter.Drop(s.config.Now(), meter.NoType, cause, peer)
}

// Counters count since the start, except those that say now.
type Counters struct {
	Received, Forwarded uint64
	Answered            uint64 // messages of the director's own
	Absorbed            uint64 // answers to those, and messages that concern the director alone
	Malformed           uint64
	Unexpected          uint64 // before S1 Setup
	Refused             uint64 // first messages that the director answered: no instance, gate, quota, no room
	Full                uint64 // connections for which there was no room
	Unknown             uint64 // about connections that the sender does not have
	OverQuota           uint64
	Unruled             uint64
	Strayed             uint64 // had nowhere to go
	Resets              uint64 // received
	Accepted            uint64 // associations with eNodeBs
	TurnedAway          uint64 // associations for which there was no room, or that may not be
	Late                uint64 // associations that ended because S1 Setup, or the rest of a frame, did not come in time
	Setups, Failures    uint64 // S1 Setups
	Losses              uint64 // associations with instances that ended
	Misnumbered         uint64 // messages whose MME UE S1AP ID does not carry the instance's number
	ENodeBs, UEs        int    // now
	Links               int    // associations with instances, now
	Queued              int64  // octets that wait, now
}

// Counters returns the sums over all workers.
func (s *Server) Counters() (t Counters) {
	for _, w := range s.workers {
		c := &w.counts
		t.Received += c.received.Load()
		t.Forwarded += c.forwarded.Load()
		t.Answered += c.answered.Load()
		t.Absorbed += c.absorbed.Load()
		t.Malformed += c.malformed.Load()
		t.Unexpected += c.unexpected.Load()
		t.Refused += c.refused.Load()
		t.Full += c.full.Load()
		t.Unknown += c.unknown.Load()
		t.OverQuota += c.overQuota.Load()
		t.Unruled += c.unruled.Load()
		t.Strayed += c.strayed.Load()
		t.Resets += c.resets.Load()
	}
	t.Accepted, t.TurnedAway, t.Setups, t.Failures = s.accepted.Load(), s.turnedAway.Load(), s.setups.Load(), s.setupFailures.Load()
	t.Late, t.Losses, t.Misnumbered, t.UEs, t.Queued = s.late.Load(), s.losses.Load(), s.misnumbered.Load(), int(s.ues.Load()), s.queued.Load()
	for _, e := range s.associations() {
		e.worker.mu.Lock()
		if e.state == up {
			t.ENodeBs++
		}
		for _, l := range e.links {
			if l != nil && l.state == up {
				t.Links++
			}
		}
		e.worker.mu.Unlock()
	}
	return t
}
