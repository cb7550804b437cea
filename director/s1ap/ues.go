package s1ap

import (
	"sync"
	"time"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/s1ap"
)

// A ue is a UE-associated logical connection of an eNodeB (TS 36.413 clause 3.1). It stays at
// one instance from its first message to its end.
type ue struct {
	mme     uint32 // the MME UE S1AP ID; 0: the instance has not answered yet
	source  uint32 // the MME UE S1AP ID at the old eNodeB, until the instance grants a path switch; 0: no path switch
	number  uint8  // number of the instance
	awaits  kind   // the transaction without a final answer; none: there is none
	waited  uint8  // checks of expire that found no answer of the instance
	leaving bool   // the instance has sent a UE Context Release Command
}

// is reports whether the instance has given the connection this MME UE S1AP ID.
func (u *ue) is(mme uint32) bool { return u.mme == mme && mme != 0 }

// An arrival is a Handover Request to an eNodeB.
type arrival struct {
	mme      uint32 // the MME UE S1AP ID; 0: an empty slot
	enb      uint32 // the eNB UE S1AP ID in the Handover Request Acknowledge
	answered bool   // by a Handover Request Acknowledge
}

// arrivals bounds the Handover Requests to one eNodeB that the director remembers. A further one
// overwrites the oldest.
const arrivals = 64

// A place identifies a connection: an eNodeB, and the eNB UE S1AP ID there.
type place struct {
	enodeb *enodeb
	enb    uint32
}

// holders maps MME UE S1AP IDs to places, in shards with their own locks. The director needs it
// to end the old connection after an X2 handover, because the old eNodeB does not report it.
type holders [64]struct {
	sync.Mutex
	at map[uint32]place
}

// set sets the place of a UE, and returns its old place.
func (h *holders) set(mme uint32, p place) (was place) {
	s := &h[mme%uint32(len(h))]
	s.Lock()
	defer s.Unlock()
	if s.at == nil {
		s.at = map[uint32]place{}
	}
	was = s.at[mme]
	s.at[mme] = p
	return was
}

// clear deletes a UE if its place is p.
func (h *holders) clear(mme uint32, p place) {
	s := &h[mme%uint32(len(h))]
	s.Lock()
	defer s.Unlock()
	if s.at[mme] == p {
		delete(s.at, mme)
	}
}

// find returns the place of a UE.
func (h *holders) find(mme uint32) (p place, ok bool) {
	s := &h[mme%uint32(len(h))]
	s.Lock()
	defer s.Unlock()
	p, ok = s.at[mme]
	return p, ok
}

// put adds a connection. It reports false if a limit is reached. The caller ensures that the
// eNodeB has no connection with this ID.
func (t *turn) put(e *enodeb, enb uint32, u ue) bool {
	s := t.server
	if len(e.ues) >= s.config.PerENodeB {
		return false
	}
	all, own := s.ues.Add(1), e.origin.ues.Add(1)
	if all > int64(s.config.UEs) || own > int64(max(s.config.UEs/originShare, 1)) {
		s.ues.Add(-1)
		e.origin.ues.Add(-1)
		return false
	}
	e.ues[enb] = u
	t.worker.meter.Dialog(e.links[u.number].target, true)
	return true
}

// remove ends a connection.
func (t *turn) remove(e *enodeb, enb uint32, u ue, o meter.Outcome) {
	t.ended(e, enb, &u, o)
	delete(e.ues, enb)
	t.server.ues.Add(-1)
	e.origin.ues.Add(-1)
	if u.mme != 0 {
		t.server.holders.clear(u.mme, place{e, enb})
	}
	if l := e.links[u.number]; l != nil {
		t.worker.meter.Dialog(l.target, false)
	}
}

// An instance has 2 minutes to answer the first message of a connection, and up to one answerCheck more.
// An overloaded MME must not lose a connection by that. A UE gives up after 15 s (T3410, TS 24.301 clause
// 10.2), and an MME repeats a request for 30 s (T3460).
const (
	answerCheck  = 30 * time.Second // interval between two checks of an eNodeB's connections
	answerChecks = 4                // checks that a connection without an answer survives
)

// expire ends connections whose instance has not answered their first message in time. An eNodeB drops them
// in silence, because UE Context Release Request needs the MME UE S1AP ID (TS 36.413 clause 9.1.4.5).
func (t *turn) expire(e *enodeb) {
	if t.now < e.checked+answerCheck {
		return
	}
	e.checked = t.now
	for enb, u := range e.ues {
		switch {
		case u.mme != 0:
		case u.waited == answerChecks:
			t.remove(e, enb, u, meter.Unanswered)
		default:
			u.waited++
			e.ues[enb] = u
		}
	}
}

// began counts the begin of a transaction.
func (t *turn) began(e *enodeb, enb uint32, u *ue, k kind) {
	u.awaits = k
	t.worker.meter.Begin(t.now, e.links[u.number].target, e.transaction(enb, k))
}

// ended counts the end of the transaction of a connection, if one is open.
func (t *turn) ended(e *enodeb, enb uint32, u *ue, o meter.Outcome) {
	if u.awaits == none {
		return
	}
	if latency, ok := t.worker.meter.End(t.now, e.transaction(enb, u.awaits), o); ok {
		t.worker.meter.Sample(e.links[u.number].target.Type, latency)
	}
	u.awaits = none
}

// transaction returns a hash that identifies a transaction in the meter.
func (e *enodeb) transaction(enb uint32, k kind) uint64 {
	return table.Mix(e.serial<<32 ^ uint64(k)<<24 ^ uint64(enb))
}

// expect records a Handover Request to the eNodeB.
func (e *enodeb) expect(mme uint32) {
	e.arrivals[e.arrived%arrivals] = arrival{mme: mme}
	e.arrived++
}

// awaited returns the slot of the unanswered Handover Request for the UE; nil: there is none.
func (e *enodeb) awaited(mme uint32) *arrival {
	for i := range e.arrivals {
		if a := &e.arrivals[i]; a.mme == mme && mme != 0 && !a.answered {
			return a
		}
	}
	return nil
}

// connectionOf returns the eNB UE S1AP ID of a UE at the eNodeB. Until the Handover Notify, the
// holder of a UE in handover is its source.
func (t *turn) connectionOf(e *enodeb, mme uint32) (enb uint32, ok bool) {
	if p, found := t.server.holders.find(mme); found && p.enodeb == e {
		return p.enb, true
	}
	for i := range e.arrivals {
		a := &e.arrivals[i]
		if !a.answered || a.mme != mme {
			continue
		}
		if u := e.ues[a.enb]; u.is(mme) {
			return a.enb, true
		}
	}
	return 0, false
}

// unknownOf returns the cause for a message whose UE IDs match no connection of the eNodeB (TS
// 36.413 clause 10.6).
func (t *turn) unknownOf(e *enodeb) s1ap.Cause {
	if p, ok := t.server.holders.find(t.in.mme); ok && p.enodeb == e {
		return s1ap.CauseUnknownPair
	}
	return s1ap.CauseUnknownMMEUEID
}
