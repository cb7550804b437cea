package s1ap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/s1ap"
)

// A state is the S1 Setup state of an association.
type state uint8

const (
	down      state = iota // not connected, or before S1 Setup
	settingUp              // S1 Setup Request was sent or received
	up                     // S1 Setup succeeded
)

// An enodeb is an eNodeB: its association, its UEs' connections, and its links. The worker's
// lock guards it.
type enodeb struct {
	*association
	worker *worker
	origin *origin
	serial uint64
	region table.Region

	state    state
	gone     bool          // the association has ended
	until    time.Duration // deadline of S1 Setup
	last     time.Duration // time of the last S1 Setup
	checked  time.Duration // time of the last check of expire
	id       s1ap.ENB
	key      uint64           // hash of id
	setup    []byte           // the S1 Setup Request for instances
	links    [MaxID + 1]*link // by the number of the instance
	ues      map[uint32]ue    // by eNB UE S1AP ID
	arrivals [arrivals]arrival
	arrived  uint32       // counts handovers to this eNodeB
	refused  uint32       // MME UE S1AP ID of the last refused connection; counts up
	overload []byte       // the frame of the last Overload Start that the eNodeB was sent; nil: none since Overload Stop
	table    *table.Table // table of the last reconcile; nil: there are no links
	policy   *Policy      // policy of the last reconcile
}

// serve handles the messages of an eNodeB until its association ends.
func (s *Server) serve(ctx context.Context, e *enodeb) {
	stop := context.AfterFunc(ctx, e.abort)
	defer stop()
	t, r := s.newTurn(e.worker), new(reading)
	err := e.read(r, func(frames []byte) {
		t.begin()
		t.each(frames, func(whole, message []byte) {
			if !e.gone {
				t.uplink(e, whole, message)
			}
		})
		t.reconcile(ctx, e)
		r.long = e.state != down
		t.end()
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
		level := slog.LevelDebug
		if isUnreadable(err) {
			level = slog.LevelWarn
		}
		s.config.Log.Log(ctx, level, "an eNodeB's association ended", "enodeb", e.peer, "error", err)
	}
	if errors.Is(err, errLate) || errors.Is(err, os.ErrDeadlineExceeded) {
		s.late.Add(1)
	}
	if errors.Is(err, errStranger) {
		s.turnAway(e.peer, err)
	}
	e.abort()
	t.begin()
	e.gone = true
	t.unreadable(e.association, meter.NoType, err)
	t.clear(e)
	t.end()
	s.forget(e)
}

// clear ends the connections and the links of an eNodeB. The instances then take its UEs for
// idle.
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
	e.state, e.table, e.policy, e.overload = down, nil, nil, nil
}

// reaches reports whether the eNodeB has a working link with an instance.
func (e *enodeb) reaches(t *table.Target) bool {
	if t.ID > MaxID {
		return false
	}
	l := e.links[t.ID]
	return l != nil && l.state == up && l.target.Type == t.Type
}

// anyOf returns any active instance of a type that the eNodeB reaches; nil: there is none.
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
	return table.Mix(uint64(id.PLMN[0])<<56 | uint64(id.PLMN[1])<<48 | uint64(id.PLMN[2])<<40 | uint64(id.Kind)<<32 | uint64(id.ID))
}
