// Package mme is the mobility management entity of the reference EPC (3GPP TS
// 23.401). It speaks S1AP (TS 36.413) with eNodeBs and NAS (TS 24.301) with UEs,
// and it calls an HSS and a gateway through the interfaces Subscribers and Gateway.
//
// # Structure
//
// Each eNodeB has an association with a reader and a writer. The readers hand
// messages to a worker, one goroutine that owns all UE contexts, their indexes and
// their timers, as in the MME of Sheoran et al. With several workers a UE context
// belongs to one of them, and the reader finds it in the MME UE S1AP ID or the
// M-TMSI. A worker never waits: calls to the HSS and to the gateway run in a fixed
// number of goroutines, and their results come back as messages do. A UE has at
// most one call at a time.
//
// UE contexts are found by MME UE S1AP ID, M-TMSI and IMSI. The instance number is
// the top byte of each MME UE S1AP ID and the MME code of each GUTI, so a steering
// function in front of several MMEs can tell whose UE a message is about.
//
// # Procedures
//
// S1 Setup; attach by IMSI and GUTI with authentication, security mode (128-EIA2
// with EEA0 or 128-EEA2) and a default bearer; detach by the UE; UE context release
// to idle; service request; tracking area update; X2 handover (path switch) and S1
// handover within the MME; paging of an idle UE in its tracking area; dedicated bearers,
// which the UE or the network asks for. A UE has one PDN connection, for IPv4. There is no
// handover between MMEs and no emergency service.
//
// An attach whose GUTI and NAS count are known and whose message authentication
// code is right keeps its keys: it has no authentication and no security mode
// command (TS 23.401 clause 5.3.2.1 step 5a).
//
// # Overload and bad input
//
// While procedures take longer than a target, new attaches are refused with cause
// #22 and a back-off timer (T3346) before any other work. The control is that of
// the reference IMS (overload.Window). Admitted procedures are carried through.
//
// A malformed S1AP message is answered with Error Indication, and a malformed NAS
// message with the cause that TS 24.301 names, or not at all. Each kind of refusal
// is counted.
//
// # Store
//
// With a store, UE contexts are kept there, and any MME of the group serves a UE's next
// connection (fetch.go). A write claims the UE for each connection; of two MMEs one
// succeeds.
package mme

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/internal/truth"
	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/s1"
	"vitrine/reference/ims"
	"vitrine/reference/ims/overload"
	"vitrine/reference/keep"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// A Config configures an MME. Zero values of the optional fields stand for their
// defaults.
type Config struct {
	GUMMEI      identity.GUMMEI // its MME code is Instance
	Instance    uint8           // number of this MME among those of the group
	Subscribers Subscribers
	Gateway     Gateway

	Name        string        // default "vitrine-mme"
	Workers     int           // default 1
	Cipher      aka.Algorithm // for UEs that support it: aka.Null (the default) or aka.AES
	TargetDelay time.Duration // refuse attaches while procedures take longer; 0: never
	BackOff     time.Duration // T3346 of refused attaches, default 10 s
	Contexts    int           // most UE contexts, default 2^20
	ENodeBs     int           // most associations, default 1024
	Calls       int           // calls of a worker to HSS and gateway at the same time, default 256
	CallTime    time.Duration // longest time of one call, default 3 s
	Timers      Timers
	Store       *keep.Store // of UE contexts, shared with other MMEs; nil: they are in memory

	Log      *slog.Logger         // default: nothing is logged
	Registry *prometheus.Registry // default: the counters are not registered
	Messages *truth.Log           // nil: messages are not logged
}

// Timers are those of TS 24.301 clause 10.2 and of S1AP. Zero values stand for the
// defaults.
type Timers struct {
	NAS       time.Duration // T3450, T3460, T3470; default 6 s
	S1        time.Duration // answer of an eNodeB; default 5 s
	Update    time.Duration // T3412, periodic tracking area update; default 54 min
	Reachable time.Duration // from idle to the implicit detach; default T3412 + 8 min
}

func (t Timers) withDefaults() Timers {
	t.NAS = cmp.Or(t.NAS, 6*time.Second)
	t.S1 = cmp.Or(t.S1, 5*time.Second)
	t.Update = cmp.Or(t.Update, 54*time.Minute)
	t.Reachable = cmp.Or(t.Reachable, t.Update+8*time.Minute)
	return t
}

func (c Config) withDefaults() Config {
	c.GUMMEI.Code = c.Instance
	c.Name = cmp.Or(c.Name, "vitrine-mme")
	c.Workers = max(c.Workers, 1)
	c.BackOff = cmp.Or(c.BackOff, 10*time.Second)
	c.Contexts = cmp.Or(c.Contexts, 1<<20)
	c.ENodeBs = cmp.Or(c.ENodeBs, 1024)
	c.Calls = cmp.Or(c.Calls, 256)
	c.CallTime = cmp.Or(c.CallTime, 3*time.Second)
	c.Timers = c.Timers.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// An MME is a mobility management entity.
type MME struct {
	config  Config
	workers []*worker
	jobs    chan *job
	window  *overload.Window // nil: nothing is refused
	counts  *counts
	start   time.Time
	free    sync.Pool // of *batch

	mu      sync.Mutex
	enodebs map[s1ap.ENB]*enodeb // those that are set up
	count   int                  // associations
	holders map[identity.Digits]holder
}

// A holder is the UE context of an IMSI.
type holder struct {
	ue     *ue
	serial uint32 // of the context when it got the IMSI
}

// New returns an MME. Serve runs it.
func New(c Config) *MME {
	c = c.withDefaults()
	m := &MME{
		config: c, jobs: make(chan *job, c.Calls*c.Workers), counts: newCounts(c.Registry), start: time.Now(),
		free:    sync.Pool{New: func() any { return new(batch) }},
		enodebs: map[s1ap.ENB]*enodeb{}, holders: map[identity.Digits]holder{},
	}
	if c.TargetDelay > 0 {
		m.window = overload.NewWindow(c.TargetDelay, m.start)
	}
	for i := range c.Workers {
		m.workers = append(m.workers, newWorker(m, i))
	}
	m.gauges()
	return m
}

// Serve accepts eNodeBs until ctx ends or the listener fails. It closes the
// listener.
func (m *MME) Serve(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	for range cap(m.jobs) {
		group.Go(func() error { m.perform(ctx); return nil })
	}
	for _, w := range m.workers {
		group.Go(func() error { w.run(ctx); return nil })
	}
	group.Go(func() error { <-ctx.Done(); return listener.Close() })
	if m.config.Store != nil {
		group.Go(func() error { return m.config.Store.Run(ctx, m.overdue) })
	}
	group.Go(func() error {
		for {
			conn, err := ims.Accept(ctx, listener)
			if err != nil || conn == nil {
				return err
			}
			m.accept(ctx, group, conn)
		}
	})
	return group.Wait()
}

// accept serves an eNodeB's connection, unless there are too many.
func (m *MME) accept(ctx context.Context, group *errgroup.Group, conn net.Conn) {
	m.mu.Lock()
	full := m.count >= m.config.ENodeBs
	if !full {
		m.count++
	}
	m.mu.Unlock()
	if full {
		m.counts.refusedENodeBs.Inc()
		_ = conn.Close() // it has no association
		return
	}
	e := newENodeB(conn, len(m.workers))
	group.Go(func() error {
		err := e.Serve(ctx, func(frames []byte) { m.distribute(ctx, e, frames) })
		m.lost(ctx, e)
		if err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
			m.config.Log.Warn("an association with an eNodeB ended", "enodeb", e.Remote(), "error", err)
		}
		return nil
	})
}

// lost removes an eNodeB whose association ended. Its UEs become idle.
func (m *MME) lost(ctx context.Context, e *enodeb) {
	m.mu.Lock()
	m.count--
	if m.enodebs[e.id] == e {
		delete(m.enodebs, e.id)
	}
	m.mu.Unlock()
	for _, w := range m.workers {
		select {
		case w.batches <- &batch{enodeb: e, lost: true}:
		case <-ctx.Done():
		}
	}
}

// An enodeb is an eNodeB's association and its UEs.
type enodeb struct {
	*s1.Association
	id      s1ap.ENB // under MME.mu
	areas   []identity.TAI
	up      atomic.Bool // S1 Setup has succeeded
	perWork []work
}

// work is what one worker keeps about an eNodeB.
type work struct {
	head    *ue  // UEs that are connected through the eNodeB
	touched bool // messages wait to be flushed
	lost    bool // the association has ended
}

func newENodeB(conn net.Conn, workers int) *enodeb {
	return &enodeb{Association: s1.NewAssociation(conn), perWork: make([]work, workers)}
}

// claim makes a context the one of its IMSI and returns the one before.
func (m *MME) claim(u *ue) (before holder, had bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, had = m.holders[u.imsi]
	m.holders[u.imsi] = holder{ue: u, serial: u.serial}
	return before, had && before.ue != u
}

// disclaim removes a context from the index of IMSIs.
func (m *MME) disclaim(u *ue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.holders[u.imsi]; h.ue == u && h.serial == u.serial {
		delete(m.holders, u.imsi)
	}
}

// holds reports whether a context is the one of an IMSI.
func (m *MME) holds(imsi identity.Digits) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.holders[imsi]
	return ok
}

// Cancel detaches a subscriber because another MME serves it now (TS 29.272 clause
// 5.2.1.2, Cancel Location). It may be called from any goroutine, and does not wait.
func (m *MME) Cancel(imsi identity.Digits) {
	m.mu.Lock()
	h, ok := m.holders[imsi]
	m.mu.Unlock()
	if ok {
		h.ue.worker.order(order{holder: h})
	}
}

// find returns the eNodeB of an identity.
func (m *MME) find(id s1ap.ENB) *enodeb {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.enodebs[id]
}
