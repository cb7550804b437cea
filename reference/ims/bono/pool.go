package bono

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/truth"
	"vitrine/reference/ims/sipudp"
)

// A poolConfig describes the connections to Sprout.
type poolConfig struct {
	local       netip.Addr
	sentBy      netip.AddrPort // as in sipudp.Socket
	sprouts     []netip.AddrPort
	connections int
	refresh     time.Duration // mean life of a connection
	asideAfter  int
	asideFor    time.Duration
	// busyIsFailure makes a Sprout's 503 count as a failure, as in Clearwater.
	busyIsFailure bool
	messages      *truth.Log
}

// drain is how long a replaced connection stays open at least.
const drain = 10 * time.Second

// A pool holds the connections to all Sprouts. Each is a connected UDP socket to
// a randomly chosen Sprout. Connections are replaced at random times, a Poisson
// process, so the load is never split quite evenly (NFV-VITAL, II.C.2).
type pool struct {
	config  poolConfig
	receive func(data []byte, a sipudp.Arrival)
	inUse   func() map[*sipudp.Socket]bool // sockets on which answers may still arrive
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

// A sprout is the pool's state of one Sprout.
type sprout struct {
	addr  netip.AddrPort
	score int       // failures minus successes, at least 0
	until time.Time // set aside until this time
}

func newPool(config poolConfig, receive func([]byte, sipudp.Arrival), inUse func() map[*sipudp.Socket]bool,
	log *slog.Logger, asides prometheus.Counter) (*pool, error) {
	p := &pool{config: config, receive: receive, inUse: inUse, log: log, asides: asides, sprouts: map[netip.AddrPort]*sprout{}}
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

// connect opens a connection to a randomly chosen Sprout and starts reading it.
func (p *pool) connect() (*connection, error) {
	addr := p.config.sprouts[rand.IntN(len(p.config.sprouts))]
	socket, err := sipudp.Dial(p.config.local, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to Sprout %s from %s: %w", addr, p.config.local, err)
	}
	socket.Messages, socket.SentBy = p.config.messages, p.config.sentBy
	s := p.sprouts[addr]
	p.wg.Go(func() {
		if err := socket.Serve(p.receive, func() { p.recordFailure(s) }); err != nil {
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
	var old []*connection // replaced but still open, oldest first
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
		// There is one replacement per mean, so those within drain are the last
		// few.
		if keep := int(drain/mean) + 1; len(old) > keep {
			old = p.closeUnused(old, keep)
		}
	}
}

// closeUnused closes replaced connections, but not the last keep ones, and none on which
// answers may still arrive: a call may ring for minutes. It returns those that stay open.
func (p *pool) closeUnused(old []*connection, keep int) []*connection {
	used, recent := p.inUse(), old[len(old)-keep:]
	open := slices.DeleteFunc(old[:len(old)-keep], func(c *connection) bool {
		if used[c.socket] {
			return false
		}
		c.socket.Close()
		return true
	})
	return append(open, recent...)
}

// choose returns a random connection to a Sprout that is not set aside and is not
// tried. It prefers the Sprout wanted, unless that is zero. If all Sprouts are
// set aside it uses one of them, because a Sprout that answers 503 is better than
// none. It returns nil if tried is the only Sprout.
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

// recordFailure records that a Sprout did not serve a request. It sets the Sprout aside
// if failures exceed successes by asideAfter.
func (p *pool) recordFailure(s *sprout) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.score++
	if s.score < p.config.asideAfter || len(p.sprouts) == 1 {
		return // never set aside the only Sprout
	}
	now := time.Now()
	if !s.until.After(now) {
		p.asides.Inc()
		p.log.Warn("a Sprout is set aside", "sprout", s.addr, "for", p.config.asideFor)
	}
	s.score, s.until = 0, now.Add(p.config.asideFor)
}

// recordBusy records a 503 from a Sprout.
func (p *pool) recordBusy(s *sprout) {
	if p.config.busyIsFailure {
		p.recordFailure(s)
	}
}

// fromSprout reports whether the address belongs to a Sprout.
func (p *pool) fromSprout(from netip.AddrPort) bool { return p.sprouts[from] != nil }

// recordSuccess records any other answer.
func (p *pool) recordSuccess(s *sprout) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.score = max(s.score-1, 0)
}
