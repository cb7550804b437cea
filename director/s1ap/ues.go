package s1ap

import (
	"sync"

	"vitrine/director/meter"
	"vitrine/wire/s1ap"
)

// A ue is a UE-associated logical connection of an eNodeB (TS 36.413 clause 3.1). It is
// at one instance from its first message to its end.
type ue struct {
	mme     uint32 // the MME UE S1AP ID; 0: the instance has not answered yet
	number  uint8  // of the instance
	awaits  kind   // the transaction that has no final answer yet; none: there is none
	leaving bool   // the instance has released it
}

// An arrival is a UE that an instance hands over to an eNodeB, which has not answered.
type arrival uint32 // its MME UE S1AP ID; 0: there is none

// arrivals is how many handovers to one eNodeB may be unanswered. Then the oldest is
// forgotten.
const arrivals = 64

// UESize is an upper bound of the memory for one connection, in octets: an entry of the
// eNodeB's table and one of the index, with the free room of their maps.
const UESize = 160

// A place is an eNodeB and the eNB UE S1AP ID of a UE there.
type place struct {
	enodeb *enodeb
	enb    uint32
}

// holders says at which eNodeB a UE is, by its MME UE S1AP ID. An X2 handover ends a
// connection without a word of the eNodeB that the UE leaves.
type holders [64]struct {
	sync.Mutex
	at map[uint32]place
}

// set moves a UE and returns where it was.
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

// clear forgets a UE, if it is there.
func (h *holders) clear(mme uint32, p place) {
	s := &h[mme%uint32(len(h))]
	s.Lock()
	defer s.Unlock()
	if s.at[mme] == p {
		delete(s.at, mme)
	}
}

// find returns where a UE is.
func (h *holders) find(mme uint32) (p place, ok bool) {
	s := &h[mme%uint32(len(h))]
	s.Lock()
	defer s.Unlock()
	p, ok = s.at[mme]
	return p, ok
}

// put adds a connection, unless there are too many. The eNodeB has none with that ID.
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

// began counts the beginning of a transaction.
func (t *turn) began(e *enodeb, enb uint32, u *ue, k kind) {
	u.awaits = k
	t.worker.meter.Begin(t.now, e.links[u.number].target, e.transaction(enb, k))
}

// ended counts the final answer of the transaction that a connection awaits.
func (t *turn) ended(e *enodeb, enb uint32, u *ue, o meter.Outcome) {
	if u.awaits == none {
		return
	}
	if latency, ok := t.worker.meter.End(t.now, e.transaction(enb, u.awaits), o); ok {
		t.worker.meter.Sample(e.links[u.number].target.Type, latency)
	}
	u.awaits = none
}

// transaction returns the hash of a transaction.
func (e *enodeb) transaction(enb uint32, k kind) uint64 {
	return mix(e.serial<<32 ^ uint64(k)<<24 ^ uint64(enb))
}

// mix spreads a value over 64 bits: the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// expect notes that an instance hands a UE over to an eNodeB.
func (e *enodeb) expect(mme uint32) {
	e.arrivals[e.arrived%arrivals] = arrival(mme)
	e.arrived++
}

// expects forgets a handover and reports whether there was one.
func (e *enodeb) expects(mme uint32) bool {
	for i := range e.arrivals {
		if e.arrivals[i] == arrival(mme) && mme != 0 {
			e.arrivals[i] = 0
			return true
		}
	}
	return false
}

// unknownOf returns the cause for a message with identifiers that belong to no connection
// of an eNodeB (TS 36.413 clause 10.6).
func (t *turn) unknownOf(e *enodeb) s1ap.Cause {
	if p, ok := t.server.holders.find(t.in.mme); ok && p.enodeb == e {
		return s1ap.CauseUnknownPair
	}
	return s1ap.CauseUnknownMMEUEID
}
