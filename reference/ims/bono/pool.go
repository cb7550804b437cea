package bono

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims/sipudp"
)

// A poolConfig describes the connections to Sprout.
type poolConfig struct {
	local       netip.Addr
	sprouts     []netip.AddrPort
	connections int
	refresh     time.Duration // mean life of a connection
	asideAfter  int
	asideFor    time.Duration
	buffer      int // receive queue of each, bytes
	// busyIsFailure has a Sprout's 503 count against it, as in Clearwater.
	busyIsFailure bool
}

// drain is how long a replaced connection still takes answers.
const drain = 10 * time.Second

// A pool is the connections to all Sprouts. Each is a connected UDP socket to a
// Sprout drawn at random; connections are replaced at random times, a Poisson
// process, so the split among Sprouts is never quite even (NFV-VITAL, II.C.2).
type pool struct {
	config  poolConfig
	receive func(data []byte, a sipudp.Arrival)
	log     *slog.Logger
	asides  prometheus.Counter

	mu      sync.Mutex
	slots   []*connection
	sprouts map[netip.AddrPort]*sprout
	wg      sync.WaitGroup
}

type connection struct {
	socket *sipudp.Socket
	sprout *sprout
}

// A sprout is what the pool knows of one Sprout.
type sprout struct {
	addr  netip.AddrPort
	score int       // failures less successes, at least 0
	until time.Time // set aside until
}

func newPool(config poolConfig, receive func([]byte, sipudp.Arrival), log *slog.Logger, asides prometheus.Counter) (*pool, error) {
	p := &pool{config: config, receive: receive, log: log, asides: asides, sprouts: map[netip.AddrPort]*sprout{}}
	for _, a := range config.sprouts {
		p.sprouts[a] = &sprout{addr: a}
	}
	for range config.connections {
		c, err := p.connect()
		if err != nil {
			p.close()
			return nil, err
		}
		p.slots = append(p.slots, c)
	}
	return p, nil
}

// connect opens a connection to a Sprout drawn at random and starts reading it.
func (p *pool) connect() (*connection, error) {
	addr := p.config.sprouts[rand.IntN(len(p.config.sprouts))]
	socket, err := sipudp.Dial(p.config.local, addr, p.config.buffer)
	if err != nil {
		return nil, fmt.Errorf("connect to Sprout %s from %s: %w", addr, p.config.local, err)
	}
	s := p.sprouts[addr]
	p.wg.Go(func() {
		if err := socket.Serve(p.receive, func() { p.failed(s) }); err != nil {
			p.log.Warn("a connection to Sprout failed", "sprout", addr, "error", err)
		}
	})
	return &connection{socket: socket, sprout: s}, nil
}

func (p *pool) close() {
	p.mu.Lock()
	for _, c := range p.slots {
		c.socket.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// run replaces connections until ctx is done, then closes all.
func (p *pool) run(ctx context.Context) {
	defer p.close()
	var old []*connection // replaced, still open; the first is the oldest
	defer func() {
		for _, c := range old {
			c.socket.Close()
		}
	}()
	mean := max(p.config.refresh/time.Duration(len(p.slots)), time.Millisecond)
	for {
		wait := time.Duration(rand.ExpFloat64() * float64(mean))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		fresh, err := p.connect()
		if err != nil {
			p.log.Warn("a connection was not refreshed", "error", err)
			continue
		}
		p.mu.Lock()
		i := rand.IntN(len(p.slots))
		old = append(old, p.slots[i])
		p.slots[i] = fresh
		p.mu.Unlock()
		// Replacements come one each mean; those that drain are the latest few.
		for keep := int(drain/mean) + 1; len(old) > keep; old = old[1:] {
			old[0].socket.Close()
		}
	}
}

// choose draws a connection whose Sprout is not set aside and not in tried; to
// the Sprout wanted when it has one (zero: any). When all are set aside it
// draws among them: a Sprout that answers 503 is better than none.
func (p *pool) choose(wanted netip.AddrPort, tried *sprout) *connection {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	first := rand.IntN(len(p.slots))
	var healthy, fallback *connection
	for i := range p.slots {
		c := p.slots[(first+i)%len(p.slots)]
		if c.sprout == tried {
			continue
		}
		if fallback == nil {
			fallback = c
		}
		if c.sprout.until.After(now) {
			continue
		}
		if !wanted.IsValid() || c.sprout.addr == wanted {
			return c
		}
		if healthy == nil {
			healthy = c
		}
	}
	if healthy != nil {
		return healthy
	}
	return fallback
}

// failed notes that a Sprout did not serve a request, and sets it aside
// when failures have kept ahead of successes.
func (p *pool) failed(s *sprout) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.score++
	if s.score < p.config.asideAfter || len(p.sprouts) == 1 {
		return // one that has no other beside it is never set aside
	}
	now := time.Now()
	if !s.until.After(now) {
		p.asides.Inc()
		p.log.Warn("a Sprout is set aside", "sprout", s.addr, "for", p.config.asideFor)
	}
	s.score, s.until = 0, now.Add(p.config.asideFor)
}

// busy notes a 503 of a Sprout.
func (p *pool) busy(s *sprout) {
	if p.config.busyIsFailure {
		p.failed(s)
	}
}

// fromSprout says whether a Sprout sends from the address.
func (p *pool) fromSprout(from netip.AddrPort) bool { return p.sprouts[from] != nil }

// served notes any other answer.
func (p *pool) served(s *sprout) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.score = max(s.score-1, 0)
}
