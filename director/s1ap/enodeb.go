package s1ap

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/s1ap"
)

// A state is that of an association: whether S1 Setup is over.
type state uint8

const (
	down      state = iota // or not set up yet
	settingUp              // S1 Setup Request is sent or received
	up
)

// An enodeb is the association of an eNodeB, its UEs' connections, and an association with
// each instance on its behalf. The worker's lock guards it.
type enodeb struct {
	*association
	worker *worker
	origin *origin
	serial uint64
	region table.Region

	state      state
	gone       bool
	until      time.Duration // when it has to be set up
	last       time.Duration // when it was set up
	id         s1ap.ENB
	key        uint64 // of id
	setup      []byte // the S1 Setup Request for instances
	links      [MaxID + 1]*link
	ues        map[uint32]ue // by eNB UE S1AP ID
	arrivals   [arrivals]arrival
	arrived    uint32       // counts arrivals
	refused    uint32       // counts refusals; the MME UE S1AP ID of the last
	overloaded bool         // it was sent Overload Start
	table      *table.Table // that the links are made by; nil: there are none
}

// serve handles an eNodeB's messages until its association ends.
func (s *Server) serve(ctx context.Context, e *enodeb) {
	stop := context.AfterFunc(ctx, e.abort)
	defer stop()
	t := s.newTurn(e.worker)
	err := e.read(new(reading), func(frames []byte) {
		t.begin()
		t.each(frames, func(whole, message []byte) {
			if !e.gone {
				t.uplink(e, whole, message)
			}
		})
		t.reconcile(ctx, e)
		t.end()
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
		s.config.Log.Debug("an eNodeB's association ended", "enodeb", e.peer, "error", err)
	}
	if errors.Is(err, errLate) || errors.Is(err, os.ErrDeadlineExceeded) {
		s.late.Add(1)
	}
	e.abort()
	t.begin()
	e.gone = true
	t.unreadable(e.association, meter.NoType, err)
	t.clear(e)
	t.end()
	s.forget(e)
}

// clear ends the connections of an eNodeB and its associations with instances, for which
// its UEs become idle.
func (t *turn) clear(e *enodeb) {
	for enb, u := range e.ues {
		t.remove(e, enb, u, meter.Failed)
	}
	e.arrivals = [arrivals]arrival{}
	for n, l := range e.links {
		if l != nil {
			l.end()
			e.links[n] = nil
		}
	}
	e.state, e.table, e.overloaded = down, nil, false
}

// reaches reports whether an eNodeB has an association with an instance.
func (e *enodeb) reaches(t *table.Target) bool {
	if t.ID > MaxID {
		return false
	}
	l := e.links[t.ID]
	return l != nil && l.state == up && l.target.Type == t.Type
}

// anyOf returns any active instance of a type that the eNodeB reaches, or nil.
func (e *enodeb) anyOf(ty table.Type) *table.Target {
	for _, l := range e.links {
		if l != nil && l.target.Type == ty && l.isActive() && e.reaches(l.target) {
			return l.target
		}
	}
	return nil
}

// keyOf returns the hash of an eNodeB's identity.
func keyOf(id s1ap.ENB) uint64 {
	home := uint64(0)
	if id.Home {
		home = 1
	}
	return mix(uint64(id.PLMN[0])<<56 | uint64(id.PLMN[1])<<48 | uint64(id.PLMN[2])<<40 | home<<32 | uint64(id.ID))
}
