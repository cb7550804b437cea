package s1ap

import (
	"vitrine/reference/epc/enb"
	"vitrine/wire/s1ap"
)

// maxReset is the maximum number of connections in a Reset (TS 36.413:
// maxnoofIndividualS1ConnectionsToReset).
const maxReset = 256

// reset handles a Reset of an MME or a director (TS 36.413 clause 8.7.1.2.1): the eNodeB
// releases the connections and acknowledges them, in the same order. Their UEs become idle.
func (e *engine) reset(a *association, m *enb.Message) {
	all, some, ok := m.Reset()
	if m.Kind != s1ap.Initiating || !ok {
		e.malformed++
		return
	}
	e.items = e.items[:0]
	for !all && some.Next() && len(e.items) < maxReset {
		e.items = append(e.items, some.Connection)
	}
	if some.Malformed {
		e.malformed++
		return
	}
	e.out = a.cell.AppendResetAcknowledge(e.out[:0], e.items...)
	e.queue(a, e.out)
	if all {
		for i := range e.users {
			if u := &e.users[i]; u.at == a || u.next != nil && u.next == a {
				e.idle(u, a)
			}
		}
		return
	}
	for _, c := range e.items {
		if u := e.named(a, c); u != nil {
			e.idle(u, a)
		}
	}
}

// named returns the UE of a connection that a message identifies by one or both identifiers, or nil
// if there is no such connection.
func (e *engine) named(a *association, c s1ap.Connection) *user {
	if c.HasENB {
		return e.find(a, c.ENB)
	}
	for i := range e.users {
		u := &e.users[i]
		if c.HasMME && (u.at == a && u.ids.MME == c.MME || u.next != nil && u.next == a && u.nextIDs.MME == c.MME) {
			return u
		}
	}
	return nil
}

// idle handles the reset of a UE's connection. The UE stays registered. A call that finish does
// not end begins again on a new connection, or fails.
func (e *engine) idle(u *user, a *association) {
	u.at, u.next = nil, nil
	e.resets++
	if !u.alive || e.finish(u) {
		return
	}
	if u.retries > 0 {
		e.again(u, a)
		return
	}
	registered := u.kind > attachIdle && u.kind != detach
	e.failAs(u, "reset", registered)
}

// finish ends the call of a UE whose connection has ended. The call succeeds if it waits for the
// release or stays connected until the release. For any other call, finish returns false.
func (e *engine) finish(u *user) bool {
	leaving := u.step == toLeave && u.kind != attachDetach
	if !leaving && u.step != toRelease {
		return false
	}
	if leaving {
		u.stayed += e.now - u.since
	}
	u.attached = u.kind != detach && u.kind != attachDetach
	e.succeed(u)
	return true
}
