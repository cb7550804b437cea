// Package replica is a map with timers, replicated synchronously among the
// instances of a cluster. It has the role of memcached and Chronos for
// Clearwater's Sprout, and of Cassandra for its Homestead.
//
// Each key belongs to Copies of the instances, ordered by rendezvous hashing. A
// write is compared and set at the first live replica, and copied to the others
// before it is acknowledged. At level One a read asks the first live replica, and
// the next if that does not have the key. At level Quorum it asks a majority and
// takes the newest answer. Instances that do not answer are skipped and counted. After a
// late answer an instance receives the record again, if the writer holds a copy, and after
// a new connection it receives all records that it replicates. The newest version wins.
// During a partition both sides accept writes.
package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims"
)

// ErrConflict is the error for a write whose expected version is not the present
// one.
var ErrConflict = errors.New("the record has changed")

// A Level is the number of replicas that a read asks.
type Level int

// The levels, named after Cassandra's.
const (
	One    Level = iota // the first live replica that has the key
	Quorum              // a majority of the copies, or all live replicas if they are fewer
)

// A Config configures one instance of a cluster.
type Config struct {
	Self   netip.AddrPort   // where this instance listens for its peers; zero if it is alone
	Peers  []netip.AddrPort // addresses of all instances; may include Self
	Copies int              // copies of each record, including this instance's
	Read   Level
	Ask    time.Duration // how long a peer's answer may take
	// Derive returns the value of a key that was never written. If Derive is nil,
	// such a key has no value.
	Derive func(key string) ([]byte, bool)
	// OnTimer is called for each due timer, on one instance only.
	OnTimer func(ctx context.Context, key string, value []byte)
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// A Store is one instance's view of the map. Its methods may be called
// concurrently.
type Store struct {
	config  Config
	members []member
	table   *table
	due     chan due
	counts  counts
}

type member struct {
	name uint64 // hash of the member's address
	link *link  // nil for this instance
}

type due struct {
	key string
	r   Record
}

type counts struct {
	writes, copies, missed, remote, conflicts, fired, resynced prometheus.Counter
}

// New returns a Store; Run connects it.
func New(config Config) *Store {
	s := &Store{config: config, due: make(chan due, 1024)}
	s.table = newTable(config.Derive, s.rank, s.queueDue)
	peers := slices.Clone(config.Peers)
	if !slices.Contains(peers, config.Self) {
		peers = append(peers, config.Self)
	}
	for _, p := range peers {
		m := member{name: hash(p.String())}
		if p != config.Self {
			m.link = &link{self: config.Self, peer: p, ask: config.Ask, resync: s.resync}
		}
		s.members = append(s.members, m)
	}
	counter := ims.Counters(config.Metrics, "replica")
	s.counts = counts{
		writes:    counter("writes", "Records written through this instance."),
		copies:    counter("copies", "Copies of records acknowledged by peers."),
		missed:    counter("missed", "Copies that a peer did not acknowledge."),
		remote:    counter("remote_reads", "Records read from peers."),
		conflicts: counter("conflicts", "Writes refused because the record had changed."),
		fired:     counter("timers_fired", "Timers that fired on this instance."),
		resynced:  counter("resynced", "Records sent to peers that came back or may have missed them."),
	}
	return s
}

// Run listens for peers and connects to them until ctx is done. listener may be
// nil if the instance is alone.
func (s *Store) Run(ctx context.Context, listener net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, m := range s.members {
		if m.link != nil {
			wg.Go(func() { m.link.run(ctx) })
		}
	}
	wg.Go(func() { s.table.run(ctx) })
	for range 8 {
		wg.Go(func() { s.fire(ctx) })
	}
	if listener == nil {
		<-ctx.Done()
		return nil
	}
	return s.serve(ctx, listener)
}

// hash is FNV-1a with a finalizer, because FNV alone mixes the last bytes poorly.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// replicas returns the members that hold key, in their order.
func (s *Store) replicas(key string) []member {
	if len(s.members) == 1 {
		return s.members
	}
	k := hash(key)
	order := slices.Clone(s.members)
	slices.SortFunc(order, func(a, b member) int {
		if mix(a.name^k) > mix(b.name^k) {
			return -1
		}
		return 1
	})
	return order[:min(max(s.config.Copies, 1), len(order))]
}

// living returns the replicas of key that can be reached now.
func (s *Store) living(key string) []member {
	return slices.DeleteFunc(slices.Clone(s.replicas(key)), func(m member) bool {
		return m.link != nil && !m.link.up.Load()
	})
}

// rank returns this instance's place among the replicas of key, or the number of
// replicas if it is not one.
func (s *Store) rank(key string) int {
	replicas := s.replicas(key)
	for i, m := range replicas {
		if m.link == nil {
			return i
		}
	}
	return len(replicas)
}

// Get returns a record; Version 0 means that there is none. A deleted record has
// no value, but has the version that the next write expects.
func (s *Store) Get(ctx context.Context, key string) (Record, error) {
	if len(key) > maxKey {
		return Record{}, nil // Put refuses such keys, and a peer would end the link
	}
	living := s.living(key)
	want := 1
	if s.config.Read == Quorum {
		want = min(s.config.Copies, len(s.members))/2 + 1
	}
	var newest Record
	var failed error
	asked := 0
	for _, m := range living {
		r, err := s.read(ctx, m, key)
		if err != nil {
			failed = err
			continue
		}
		asked++
		if r.Version > newest.Version {
			newest = r
		}
		if asked >= want && (newest.Version > 0 || asked == len(living)) {
			return newest, nil
		}
	}
	if asked == 0 {
		return Record{}, fmt.Errorf("read %s: no replica answered: %w", key, errors.Join(errDown, failed))
	}
	return newest, nil
}

func (s *Store) read(ctx context.Context, m member, key string) (Record, error) {
	if m.link == nil {
		return s.table.get(key, time.Now()), nil
	}
	s.counts.remote.Inc()
	op, body, err := m.link.roundTrip(ctx, opGet, func(b []byte) []byte { return append(b, key...) })
	switch {
	case err != nil:
		return Record{}, err
	case op == opMissing:
		return Record{}, nil
	case op != opRecord:
		return Record{}, fmt.Errorf("%w: peer %s answered a read with op %#x: %s", errWire, m.link.peer, op, body)
	}
	_, r, err := parseRecord(body)
	return r, err
}

// Put writes r if key's version is expect (0 for no such record), and returns the
// new version. Otherwise the error is ErrConflict.
func (s *Store) Put(ctx context.Context, key string, r Record, expect uint64) (uint64, error) {
	if len(key) > maxKey || len(r.Value) > maxFrame/2 {
		return 0, fmt.Errorf("write %.80s: key of %d bytes, value of %d: too long", key, len(key), len(r.Value))
	}
	s.counts.writes.Inc()
	replicas := s.replicas(key)
	var failed error
	for i, m := range replicas {
		if m.link != nil && !m.link.up.Load() {
			continue
		}
		version, err := s.compareAndSet(ctx, m, key, r, expect)
		if errors.Is(err, ErrConflict) {
			s.counts.conflicts.Inc()
			return 0, fmt.Errorf("write %s: %w", key, err)
		}
		if err != nil {
			failed = err // copyTo tries this replica again
			continue
		}
		r.Version = version
		s.copyTo(ctx, slices.Concat(replicas[:i], replicas[i+1:]), key, r)
		return version, nil
	}
	return 0, fmt.Errorf("write %s: no replica answered: %w", key, errors.Join(errDown, failed))
}

// Delete removes a record whose version is expect.
func (s *Store) Delete(ctx context.Context, key string, expect uint64) error {
	_, err := s.Put(ctx, key, Record{deleted: true, Expires: time.Now().Add(deletedFor)}, expect)
	return err
}

func (s *Store) compareAndSet(ctx context.Context, m member, key string, r Record, expect uint64) (uint64, error) {
	if m.link == nil {
		version, ok := s.table.compareAndSet(key, expect, r, time.Now())
		if !ok {
			return 0, ErrConflict
		}
		return version, nil
	}
	op, body, err := m.link.roundTrip(ctx, opCompare, func(b []byte) []byte {
		return appendRecord(binary.BigEndian.AppendUint64(b, expect), key, r)
	})
	switch {
	case err != nil:
		return 0, err
	case op == opConflict:
		return 0, ErrConflict
	case op != opVersion:
		return 0, fmt.Errorf("%w: peer %s answered a write with op %#x: %s", errWire, m.link.peer, op, body)
	}
	s.counts.copies.Inc()
	version, _, err := parseVersion(body)
	return version, err
}

// copyTo sends the record to the other replicas and waits for them.
func (s *Store) copyTo(ctx context.Context, others []member, key string, r Record) {
	for _, m := range others {
		if m.link == nil { // first, because a resync sends what this instance holds
			s.table.set(key, r)
		}
	}
	var calls []call
	for _, m := range others {
		if m.link == nil {
			continue
		}
		var c call
		err := errDown
		if m.link.up.Load() {
			c, err = m.link.start(opSet, func(b []byte) []byte { return appendRecord(b, key, r) })
		}
		if err != nil {
			s.miss(m.link, key)
			continue
		}
		calls = append(calls, c)
	}
	for _, c := range calls {
		if op, _, err := c.wait(ctx); err != nil || op != opOK {
			s.miss(c.link, key)
			continue
		}
		s.counts.copies.Inc()
	}
}

func (s *Store) miss(l *link, key string) {
	s.counts.missed.Inc()
	l.miss(key)
}

// Living returns how many of the cluster's instances can be reached now,
// including this one.
func (s *Store) Living() int {
	n := 0
	for _, m := range s.members {
		if m.link == nil || m.link.up.Load() {
			n++
		}
	}
	return n
}

// Held returns the number of records that this instance holds itself.
func (s *Store) Held() int { return s.table.len() }
