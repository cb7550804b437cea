// Package s1ap steers the S1AP messages (3GPP TS 36.413) of eNodeBs to instances of
// aggregates that contain an MME. For the first message of a UE's connection, the cleartext
// part of NAS selects the aggregate type, and the S-TMSI or IMSI selects the instance. Later
// messages go to the instance of the connection.
//
// eNodeBs see one MME with the name and the GUMMEIs of the pool. Each eNodeB has one
// association with the director. On its behalf the director has one association with each
// instance, because an MME identifies an eNodeB by its association. So messages pass unchanged
// in both directions, the director needs no table of tracking areas for Paging and handovers,
// and eNB UE S1AP IDs need no translation. With a single association for each instance, the
// director would need both, and would rewrite an identifier in every message.
//
// Instances put their number into the high octet of their MME UE S1AP IDs, and into the MME
// code of their GUTIs. The number is the ID of the instance. It must be unique among the
// instances of all types with S1AP. 0 is the director itself.
//
// The transport is SCTP, or TCP with the frames of wire/s1ap/frame. The two sides can use
// different transports: internally, all messages are frames.
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

// A Config configures a Server. For numbers and durations, 0 stands for the default below.
type Config struct {
	Addresses []netip.AddrPort // to listen on; port 0: the kernel chooses one
	SCTP      []bool           // for each of Addresses, whether it uses SCTP or TCP; nil: TCP
	Workers   int              // number of workers; each eNodeB belongs to one. Use one per core
	Inherited []*os.File       // sockets of the previous process; Listen uses those of Addresses, and the caller closes all
	Now       func() time.Duration
	Epochs    *table.Epochs
	Meter     *meter.Meter
	Policy    *Policy
	Log       *slog.Logger
	Region    func(netip.Addr) table.Region // region of an eNodeB's address; nil: no regions

	Keys      int           // keys that each worker remembers, with 8 octets each; default 131,072
	ENodeBs   int           // most associations with eNodeBs; default 1,024
	PerSource int           // most associations with one IP address (IPv6: one /64); default 64
	UEs       int           // most connections of all eNodeBs, with at most 160 octets each; default 1,048,576. One IP address (IPv6: one /64) may have a quarter
	PerENodeB int           // most connections of one eNodeB; default 16,384
	Queues    int64         // most octets in all send queues; default 64 MiB
	First     time.Duration // timeout for an eNodeB to complete S1 Setup; default 10 s
	Setup     time.Duration // timeout for an instance to accept a connection and answer S1 Setup; default 5 s
}

// A Server serves the S1AP listeners.
type Server struct {
	config     Config // with defaults applied, and the bound addresses
	listeners  []listener
	workers    []*worker
	policy     atomic.Pointer[Policy]
	holders    holders
	goroutines sync.WaitGroup

	mu      sync.Mutex
	enodebs map[s1ap.ENB]*enodeb // eNodeBs that have sent a valid S1 Setup Request
	open    map[*enodeb]struct{} // all associations with eNodeBs
	origins map[netip.Addr]*origin
	serial  uint64

	queued atomic.Int64 // octets in all send queues
	ues    atomic.Int64 // connections of all eNodeBs

	accepted, turnedAway, crowded, strangers, late, setups, setupFailures, losses, misnumbered atomic.Uint64
}

// An origin is an address (IPv6: a /64) that eNodeBs connect from.
type origin struct {
	associations int // guarded by Server.mu
	ues          atomic.Int64
}

// originShare bounds the connections of one origin to 1/originShare of Config.UEs.
const originShare = 4

// Listen opens the listening sockets, or takes over inherited ones. Connections wait in their
// backlogs until Run. The caller must call Close.
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

// SetPolicy replaces the policy. The new policy may add types, and change their transports: the
// links follow. An added type must be in the table already.
func (s *Server) SetPolicy(p *Policy) { s.policy.Store(p) }

// Addresses returns the addresses that the Server listens on, in the order of
// Config.Addresses, with the ports that the kernel chose.
func (s *Server) Addresses() []netip.AddrPort {
	return slices.Clone(s.config.Addresses)
}

// Steerings returns the steering memory of each worker. The caller may use them only before and
// after Run.
func (s *Server) Steerings() []*table.Steering {
	all := make([]*table.Steering, len(s.workers))
	for i, w := range s.workers {
		all[i] = w.steering
	}
	return all
}

// Datagrams returns zero counters, because S1AP uses no datagrams.
func (s *Server) Datagrams() (datagram.Counters, error) { return datagram.Counters{}, nil }

// Files duplicates the listening sockets for another process, which passes them to Listen as
// Config.Inherited. The caller closes the files.
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

// Close closes the listening sockets. Run must have returned.
func (s *Server) Close() (err error) {
	for _, l := range s.listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Run serves until ctx is done, and then ends all associations. Call Run only once. Connections
// in the backlog of a listener stay there for the process that inherits the listener.
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

// following is the interval at which follow compares links with the table and the policy.
const following = 100 * time.Millisecond

// follow reconciles the links of all eNodeBs with the current table and policy. It ends the
// associations of eNodeBs that do not complete S1 Setup in time, or that the policy no longer admits, and
// connections that an instance leaves unanswered. It runs until ctx is done.
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
			t.expire(e)
			late, stranger := e.state == down && t.now >= e.until, !t.policy.admits(e.peer.Addr())
			t.end()
			switch {
			case stranger:
				e.abortFor(errStranger)
			case late:
				e.abortFor(errLate)
			}
		}
	}
}

// associations returns all associations with eNodeBs.
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
			select { // probably out of file descriptors: wait until some are closed
			case <-ctx.Done():
			case <-time.After(following):
			}
			continue
		}
		e, err := s.admit(conn)
		if err != nil {
			s.turnAway(conn.RemoteAddr(), err)
			_ = conn.Close() // no error matters: nothing was read
			continue
		}
		s.accepted.Add(1)
		s.goroutines.Go(func() { s.serve(ctx, e) })
	}
}

// turnAway counts and logs an association that the director refuses, or ends because of the policy.
func (s *Server) turnAway(peer fmt.Stringer, why error) {
	switch {
	case errors.Is(why, errTotal):
		s.turnedAway.Add(1)
	case errors.Is(why, errSource):
		s.crowded.Add(1)
	case errors.Is(why, errStranger):
		s.strangers.Add(1)
	default: // most likely the peer has ended it already
		s.config.Log.Debug("an eNodeB's association ended", "enodeb", peer, "error", why)
		return
	}
	s.config.Log.Warn("association of an eNodeB refused: "+why.Error(), "enodeb", peer)
}

// admit adds an eNodeB for a connection, if the limits allow it and the policy admits its
// address.
func (s *Server) admit(conn net.Conn) (*enodeb, error) {
	a, err := newAssociation(s, conn, false)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := source.Of(a.peer.Addr())
	from := s.origins[at]
	if from == nil {
		from = new(origin)
	}
	switch {
	case !s.policy.Load().admits(a.peer.Addr()):
		return nil, errStranger
	case from.associations >= s.config.PerSource:
		return nil, errSource
	case len(s.open) >= s.config.ENodeBs:
		return nil, errTotal
	}
	s.serial++
	e := &enodeb{association: a, worker: s.workers[s.serial%uint64(len(s.workers))], origin: from, serial: s.serial, ues: map[uint32]ue{}, until: s.config.Now() + s.config.First}
	if s.config.Region != nil {
		e.region = s.config.Region(a.peer.Addr())
	}
	s.open[e] = struct{}{}
	from.associations++
	s.origins[at] = from
	return e, nil
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

// claim assigns an eNodeB identity to an association. If another association from the same
// address has the identity, the eNodeB has restarted: claim ends the old association. If the
// other association is from another address, claim refuses, so that a second host cannot take
// over an identity.
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

// drop counts a message that is lost outside a turn.
func (s *Server) drop(cause meter.Cause, peer netip.AddrPort) {
	s.workers[0].meter.Drop(s.config.Now(), meter.NoType, cause, peer)
}

// Counters count since the start of the Server. Fields marked "now" have present values.
type Counters struct {
	Received, Forwarded uint64
	Answered            uint64 // messages that the director sent itself
	Absorbed            uint64 // messages that the director did not forward, such as answers to its own
	Malformed           uint64
	Unexpected          uint64 // messages before S1 Setup, or S1 Setup during S1 Setup
	Refused             uint64 // first messages that the director refused: no rule, no instance, gate, quota, or no room
	Full                uint64 // connections refused because of a limit
	Unknown             uint64 // messages about connections that the sender does not have
	OverQuota           uint64
	Unruled             uint64
	Strayed             uint64 // messages without a destination
	Resets              uint64 // received Resets
	Accepted            uint64 // associations with eNodeBs
	TurnedAway          uint64 // associations refused because of Config.ENodeBs
	Crowded             uint64 // associations refused because of Config.PerSource
	Strangers           uint64 // associations refused or ended because of Policy.ENodeBs
	Late                uint64 // associations that ended because S1 Setup or the rest of a frame was late
	Setups, Failures    uint64 // S1 Setups of eNodeBs
	Losses              uint64 // links that ended after their S1 Setup
	Misnumbered         uint64 // messages whose MME UE S1AP ID does not carry the instance's number
	ENodeBs, UEs        int    // now
	Links               int    // associations with instances, now
	Queued              int64  // octets in all send queues, now
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
	t.Crowded, t.Strangers = s.crowded.Load(), s.strangers.Load()
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
