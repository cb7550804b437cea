package s1ap

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"vitrine"
	"vitrine/director/table"
	"vitrine/internal/sctp"
	"vitrine/wire/s1ap/frame"
)

const (
	// firstWait and lastWait bound the back-off between two attempts to reach an instance.
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
)

// A link is the association with an instance on behalf of an eNodeB. An MME identifies an
// eNodeB by its association (TS 36.412 clause 7), so each eNodeB has one link with each
// instance, and messages pass unchanged in both directions.
type link struct {
	enodeb  *enodeb
	number  uint8
	address netip.AddrPort
	sctp    bool
	stop    context.CancelFunc

	// The worker's lock guards the fields below.
	*association // nil: not connected
	target       *table.Target
	setup        []byte // the S1 Setup Request that the instance got
	state        state
	settled      bool   // the first attempt has succeeded or failed
	gone         bool   // end was called
	misnumbers   bool   // a message had an MME UE S1AP ID without the instance's number; it is logged once
	overload     []byte // the frame of the instance's last Overload Start; nil: it is not overloaded
}

// isActive reports whether new connections may go to the instance.
func (l *link) isActive() bool { return l.target.State == vitrine.Active }

// end ends a link for good.
func (l *link) end() {
	l.gone, l.state = true, down
	l.stop()
	if l.association != nil {
		l.abort()
	}
}

// reconcile gives an eNodeB one link with each active or draining instance of the current
// table, over the transport of the current policy, and drops the other links. An eNodeB before
// S1 Setup has no links.
func (t *turn) reconcile(ctx context.Context, e *enodeb) {
	if e.gone || e.state == down || e.table == t.view.Table && e.policy == t.policy {
		return
	}
	table := t.view.Table
	e.table, e.policy = table, t.policy
	var wanted [MaxID + 1]bool
	for i := range int32(table.Len()) {
		target := table.Target(i)
		if !t.policy.has(target.Type) || target.ID > MaxID || target.State != vitrine.Active && target.State != vitrine.Draining {
			continue
		}
		wanted[target.ID] = true
		l, over := e.links[target.ID], slices.Contains(t.policy.sctp, target.Type)
		if l != nil && l.address == target.Address && l.target.Name == target.Name && l.target.Type == target.Type && l.sctp == over {
			l.target = target
			continue
		}
		if l != nil {
			t.drop(l)
		}
		t.start(ctx, e, target, over)
	}
	for n, l := range e.links {
		if l != nil && !wanted[n] {
			t.drop(l)
		}
	}
	t.relinked(e) // an instance may have begun to drain, or have ended that
}

// start makes a link, over SCTP or TCP.
func (t *turn) start(ctx context.Context, e *enodeb, target *table.Target, over bool) {
	ctx, stop := context.WithCancel(ctx)
	l := &link{enodeb: e, number: uint8(target.ID), address: target.Address, sctp: over, stop: stop, target: target}
	e.links[target.ID] = l
	t.server.goroutines.Go(func() { l.run(ctx, t.server) })
}

// drop ends a link that is no longer wanted, and its connections.
func (t *turn) drop(l *link) {
	t.resetConnections(l)
	l.end()
	l.enodeb.links[l.number] = nil
}

// run connects to the instance, and reconnects after a loss, until ctx is done.
func (l *link) run(ctx context.Context, s *Server) {
	defer l.stop()
	t := s.newTurn(l.enodeb.worker)
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, lastWait) {
		was, err := l.connect(ctx, t)
		if was {
			wait = firstWait
		}
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug
		if wait == firstWait { // not again for each further attempt
			level = slog.LevelWarn
		}
		s.config.Log.Log(ctx, level, "the association of an instance with an eNodeB ended or failed", "enodeb", l.enodeb.peer, "instance", l.address, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// connect connects to the instance and serves the association until it ends. was reports
// whether S1 Setup succeeded.
func (l *link) connect(ctx context.Context, t *turn) (was bool, err error) {
	defer func() {
		t.begin()
		t.lost(l)
		t.end()
	}()
	deadline := time.Now().Add(t.server.config.Setup)
	conn, err := l.dial(ctx, deadline)
	if err != nil {
		return false, err
	}
	a, err := newAssociation(t.server, conn, true)
	if err != nil {
		_ = conn.Close() // no error matters: nothing was sent
		return false, err
	}
	defer a.abort()
	stop := context.AfterFunc(ctx, a.abort)
	defer stop()
	t.begin()
	if !l.gone {
		l.association, l.state, l.setup = a, settingUp, l.enodeb.setup
		if !a.send(frame.Common, l.setup) {
			err = fmt.Errorf("no room for S1 Setup")
		}
		t.touch(a)
	}
	t.end()
	if err != nil {
		return false, err
	}
	r := &reading{first: deadline}
	err = a.read(r, func(frames []byte) {
		t.begin()
		t.each(frames, func(whole, message []byte) {
			if !l.gone && l.association == a {
				t.downlink(l, whole, message)
			}
		})
		if was = was || l.state == up; was {
			r.first, r.long = time.Time{}, true
		}
		t.end()
	})
	t.begin()
	t.unreadable(a, l.target.Type, err)
	t.end()
	return was, err
}

// dial connects to the instance.
func (l *link) dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if !l.sctp {
		return new(net.Dialer).DialContext(ctx, "tcp", l.address.String())
	}
	conn, err := sctp.Dial(ctx, l.address)
	if err != nil {
		return nil, err // a nil interface, not a nil *sctp.Conn in it
	}
	return conn, nil
}

// lost handles the loss of a link's association: the connections at the instance end.
func (t *turn) lost(l *link) {
	if l.gone {
		return
	}
	if l.state == up {
		t.resetConnections(l)
		t.server.losses.Add(1)
	}
	l.association, l.state, l.settled, l.overload = nil, down, true, nil
	t.relinked(l.enodeb)
}

// has reports whether a type's instances speak S1AP.
func (p *Policy) has(ty table.Type) bool {
	for _, own := range p.types {
		if own == ty {
			return true
		}
	}
	return false
}
