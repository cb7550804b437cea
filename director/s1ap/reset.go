package s1ap

import (
	"vitrine/director/meter"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// The director answers a Reset (TS 36.413 clause 8.7.1) itself, and sends a new Reset to the
// instances or to the eNodeB with the connections. It absorbs their acknowledgements.

// maxReset is the largest number of connections in a Reset
// (maxnoofIndividualS1ConnectionsToReset).
const maxReset = 256

// resetCause is the cause of the director's own Resets: "hardware failure".
var resetCause = s1ap.Cause{Group: s1ap.Misc, Value: 2}

// resetByENodeB handles a Reset from an eNodeB, for all of its connections or for a list.
func (t *turn) resetByENodeB(e *enodeb, whole []byte) {
	all, some, ok := s1ap.ParseReset(t.in.reset)
	if t.in.has&hasReset == 0 || !ok {
		t.malformed(e.association, meter.NoType, 0, s1ap.CauseAbstractSyntax)
		return
	}
	t.worker.counts.resets.Add(1)
	if all {
		for enb, u := range e.ues {
			t.remove(e, enb, u, meter.Failed)
		}
		t.broadcast(e, whole)
		t.out = s1ap.AppendHeader(t.out[:0], s1ap.Successful, s1ap.Reset, s1ap.Reject)
		t.answer(e.association, frame.Common)
		return
	}
	t.items, t.numbers = t.items[:0], t.numbers[:0]
	for some.Next() && len(t.items) < maxReset {
		t.items, t.numbers = append(t.items, some.Connection), append(t.numbers, t.endItem(e, &some.Connection))
	}
	if some.Malformed {
		t.malformed(e.association, meter.NoType, 0, s1ap.CauseAbstractSyntax)
		return
	}
	t.acknowledge(e.association)
	for i, number := range t.numbers {
		if number != 0 {
			t.resetAt(e.links[number], i)
		}
	}
}

// endItem ends a connection in the list of an eNodeB's Reset, and returns the number of its
// instance. 0: the eNodeB has no such connection.
func (t *turn) endItem(e *enodeb, c *s1ap.Connection) uint8 {
	enb, u, ok := t.connectionAt(e, c)
	if !ok {
		t.worker.counts.unknown.Add(1)
		return 0
	}
	t.remove(e, enb, u, meter.Failed)
	return u.number
}

// resetAt sends an instance a Reset for its connections in t.items[i:]. It moves them to the
// front of t.items[i:], and marks them as done with number 0.
func (t *turn) resetAt(l *link, i int) {
	number := t.numbers[i]
	own := 0
	for k := i; k < len(t.items); k++ {
		if t.numbers[k] == number {
			// t.items[:i+own] are already sent, or are items of this instance.
			t.items[i+own], t.items[k] = t.items[k], t.items[i+own]
			t.numbers[i+own], t.numbers[k] = t.numbers[k], t.numbers[i+own]
			t.numbers[i+own] = 0
			own++
		}
	}
	if l != nil {
		t.reset(l.association, t.items[i:i+own])
	}
}

// acknowledge sends a Reset Acknowledge with t.items.
func (t *turn) acknowledge(to *association) {
	b := s1ap.AppendHeader(t.out[:0], s1ap.Successful, s1ap.Reset, s1ap.Reject)
	t.out = s1ap.AppendConnections(b, t.items...)
	t.answer(to, frame.Common)
}

// reset sends a Reset for a list of connections.
func (t *turn) reset(to *association, some []s1ap.Connection) {
	b := s1ap.AppendHeader(t.out[:0], s1ap.Initiating, s1ap.Reset, s1ap.Reject)
	b = s1ap.AppendCause(b, s1ap.Ignore, resetCause)
	t.out = s1ap.AppendReset(b, some...)
	t.answer(to, frame.Common)
}

// resetByInstance handles a Reset from an instance. The eNodeB sees a single MME, so a Reset for
// all connections becomes a Reset for the list of connections at this instance.
func (t *turn) resetByInstance(l *link) {
	all, some, ok := s1ap.ParseReset(t.in.reset)
	if t.in.has&hasReset == 0 || !ok {
		t.malformed(l.association, l.target.Type, 0, s1ap.CauseAbstractSyntax)
		return
	}
	t.worker.counts.resets.Add(1)
	t.items = t.items[:0]
	if all {
		t.acknowledge(l.association)
		t.resetConnections(l)
		return
	}
	e, kept := l.enodeb, t.numbers[:0]
	for some.Next() && len(t.items) < maxReset {
		c := some.Connection
		enb, u, ok := t.connectionAt(e, &c)
		t.items = append(t.items, c)
		kept = append(kept, 0)
		if ok && u.number == l.number {
			kept[len(kept)-1] = l.number
			t.remove(e, enb, u, meter.Failed)
		}
	}
	t.numbers = kept
	t.acknowledge(l.association)
	n := 0
	for i := range t.items {
		if t.numbers[i] != 0 {
			t.items[n] = t.items[i]
			n++
		}
	}
	if n > 0 {
		t.reset(e.association, t.items[:n])
	}
}

// connectionAt returns the connection of an eNodeB that c names by either identifier or both.
func (t *turn) connectionAt(e *enodeb, c *s1ap.Connection) (enb uint32, u ue, ok bool) {
	enb = c.ENB
	if !c.HasENB {
		if enb, ok = t.connectionOf(e, c.MME); !ok {
			return 0, ue{}, false
		}
	}
	u, ok = e.ues[enb]
	return enb, u, ok && (!c.HasMME || u.is(c.MME))
}

// resetConnections ends all connections at an instance, such as a lost one. The eNodeB then
// releases their UEs, whose next messages begin connections at other instances.
func (t *turn) resetConnections(l *link) {
	e := l.enodeb
	t.items = t.items[:0]
	for enb, u := range e.ues {
		if u.number != l.number {
			continue
		}
		t.remove(e, enb, u, meter.Failed)
		t.items = append(t.items, s1ap.Connection{MME: u.mme, ENB: enb, HasMME: u.mme != 0, HasENB: true})
		if len(t.items) == maxReset {
			t.reset(e.association, t.items)
			t.items = t.items[:0]
		}
	}
	if len(t.items) > 0 {
		t.reset(e.association, t.items)
	}
	for i := range e.arrivals {
		if numberOf(e.arrivals[i].mme) == l.number {
			e.arrivals[i] = arrival{}
		}
	}
}
