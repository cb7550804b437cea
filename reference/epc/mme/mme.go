// Package mme is the mobility management entity of the reference EPC (3GPP TS 23.401). It
// speaks S1AP (TS 36.413) with eNodeBs and NAS (TS 24.301) with UEs, and it calls an HSS
// and a gateway through the interfaces Subscribers and Gateway.
//
// # Structure
//
// Each eNodeB has an association with a reader and a writer. The readers hand messages to
// a worker: one goroutine that owns all UE contexts, their indexes and their timers, as in
// the MME of Sheoran et al. With several workers, each UE context belongs to one of them,
// and the reader finds the worker by the MME UE S1AP ID or the M-TMSI. A worker never
// blocks. A fixed number of goroutines call the HSS, the gateway and the store, and hand
// the results to the worker like messages. A UE has at most one call at a time.
//
// The indexes of UE contexts are MME UE S1AP ID, M-TMSI and IMSI. The instance number is
// the top byte of each MME UE S1AP ID and the MME code of each GUTI, so a steering
// function in front of several MMEs knows which MME has a message's UE.
//
// # Procedures
//
// S1 Setup, eNB Configuration Update, Reset and Error Indication; attach by IMSI and GUTI with
// authentication, security mode (128-EIA2 with EEA0 or 128-EEA2) and a default bearer; detach
// by the UE; UE context release to idle; service request; tracking area update; X2 handover
// (path switch) and S1 handover within the MME; paging of an idle UE in its tracking area;
// dedicated bearers, at the request of the UE or the network. A UE has one PDN connection, for
// IPv4; the MME refuses requests for more.
// There is no handover between MMEs, no CS domain and no emergency service.
//
// If an attach has a known GUTI, the expected NAS COUNT and a valid message authentication
// code, the UE keeps its keys, and the MME skips authentication and the security mode
// command (TS 23.401 clause 5.3.2.1 step 5a).
//
// # Overload and bad input
//
// While procedures take longer than a target, the MME refuses new attaches with cause #22
// and a back-off timer (T3346) before any other work. The load control is the reference
// IMS's (overload.Window). The MME completes every procedure that it has admitted.
//
// The MME answers a malformed S1AP message with Error Indication. It answers a malformed
// NAS message with the cause that TS 24.301 names, or not at all. A connection whose first
// message gets no answer is released. The MME counts each kind of refusal.
//
// # Store
//
// With a store, UE contexts are kept there, and any MME of the group can serve a UE's next
// connection (fetch.go). For each connection an MME claims the UE by a write; if two MMEs
// try, one write fails.
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
	GUMMEI      identity.GUMMEI // its MME code is set to Instance
	Instance    uint8           // this MME's number in the group
	Subscribers Subscribers
	Gateway     Gateway

	Name        string        // default "vitrine-mme"
	Workers     int           // default 1
	Cipher      aka.Algorithm // for UEs that support it: aka.Null (the default) or aka.AES
	TargetDelay time.Duration // refuse attaches while procedures take longer; 0: never
	BackOff     time.Duration // T3346 of refused attaches, default 10 s
	Contexts    int           // most UE contexts, default 2^20
	ENodeBs     int           // most eNodeB associations, default 1024
	Calls       int           // concurrent calls of a worker to HSS, gateway and store, default 256
	CallTime    time.Duration // longest time of one call, default 10 s
	Timers      Timers
	Store       *keep.Store // of UE contexts, shared with other MMEs; nil: they are in memory

	Log      *slog.Logger         // default: nothing is logged
	Registry *prometheus.Registry // default: the counters are not registered
	Messages *truth.Log           // nil: messages are not logged
}

// Timers are the NAS timers of TS 24.301 clause 10.2, and a timer for S1AP. Zero values
// stand for the defaults.
type Timers struct {
	NAS       time.Duration // T3450, T3460, T3470; default 6 s
	S1        time.Duration // for an eNodeB's answer; default 5 s
	Update    time.Duration // T3412, periodic tracking area update; default 54 min
	Reachable time.Duration // from idle until the implicit detach; default T3412 + 8 min
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
	c.CallTime = cmp.Or(c.CallTime, 10*time.Second)
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
	enodebs map[s1ap.ENB]*enodeb // whose S1 Setup succeeded
	count   int                  // associations
	holders map[identity.Digits]holder
}

// A holder is the context that an IMSI has now.
type holder struct {
	ue     *ue
	serial uint32 // of the context when it became the IMSI's
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

// accept serves an eNodeB's connection, or closes it if there are too many.
func (m *MME) accept(ctx context.Context, group *errgroup.Group, conn net.Conn) {
	m.mu.Lock()
	full := m.count >= m.config.ENodeBs
	if !full {
		m.count++
	}
	m.mu.Unlock()
	if full {
		m.counts.refusedENodeBs.Inc()
		_ = conn.Close() // no association uses it yet
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

// work is one worker's state of an eNodeB.
type work struct {
	head    *ue  // UEs that are connected through the eNodeB
	touched bool // queued messages wait for flush
	lost    bool // the association has ended
}

func newENodeB(conn net.Conn, workers int) *enodeb {
	return &enodeb{Association: s1.NewAssociation(conn), perWork: make([]work, workers)}
}

// claim makes a context its IMSI's context, and returns the previous one.
func (m *MME) claim(u *ue) (before holder, had bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, had = m.holders[u.imsi]
	m.holders[u.imsi] = holder{ue: u, serial: u.serial}
	return before, had && before.ue != u
}

// disclaim removes a context from the index by IMSI.
func (m *MME) disclaim(u *ue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.holders[u.imsi]; h.ue == u && h.serial == u.serial {
		delete(m.holders, u.imsi)
	}
}

// holds reports whether the IMSI has a context.
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

// find returns the eNodeB with an identity; nil if it is not set up.
func (m *MME) find(id s1ap.ENB) *enodeb {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.enodebs[id]
}
