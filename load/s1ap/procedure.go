package s1ap

import (
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/ue"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// The dedicated bearer of a UE is for voice (TS 23.203 table 6.1.7: QCI 1). The address of its
// remote end is one for documentation (RFC 5737), because the generator has no user plane.
var (
	voice  = nas.QoS{QCI: 1, MaxUp: 64, MaxDown: 64, GuaranteedUp: 64, GuaranteedDown: 64} // kbit/s
	remote = [4]byte{192, 0, 2, 1}
)

const (
	udp       = 17
	mediaPort = 5004
)

// served continues the call of a UE whose bearers are set up.
func (e *engine) served(u *user) {
	switch u.kind {
	case dedicated:
		e.pdu = u.AppendAllocation(e.pdu[:0], voice, udp, remote, mediaPort)
		e.uplink(u, e.pdu)
		u.step = toActivate
	case handoverX2:
		e.switchPath(u)
	case handoverS1:
		e.handOver(u)
	default:
		e.stay(u)
	}
}

// changeBearer sets up or releases a dedicated bearer at the request of the MME.
func (e *engine) changeBearer(u *user, m *enb.Message) {
	up := m.Procedure == s1ap.ERABSetup
	if up && u.step != toActivate || !up && u.step != toDeactivate || m.Bearer == 0 || m.NAS == nil {
		e.stray++
		return
	}
	reply, event, err := u.Receive(e.pdu[:0], m.NAS)
	e.pdu = reply
	if err != nil || up != (event == ue.Activated) || !up && event != ue.Deactivated || u.Dedicated != m.Bearer {
		e.malformed++
		e.failConnected(u, "malformed")
		return
	}
	if up {
		e.out = u.at.cell.AppendBearerSetUp(e.out[:0], u.ids, m.Bearer)
	} else {
		e.out = u.at.cell.AppendBearerReleased(e.out[:0], u.ids, m.Bearer)
	}
	e.queue(u.at, e.out)
	e.uplink(u, reply)
	if !up {
		e.stay(u)
		return
	}
	e.pdu = u.AppendRelease(e.pdu[:0], m.Bearer)
	e.uplink(u, e.pdu)
	u.step = toDeactivate
}

// failConnected fails a call and requests the release of the UE's connection. Otherwise the UE
// would stay connected at the MME.
func (e *engine) failConnected(u *user, cause string) {
	if u.at != nil {
		e.out = u.at.cell.AppendReleaseRequest(e.out[:0], u.ids, s1ap.CauseUserInactivity)
		e.queue(u.at, e.out)
	}
	e.fail(u, cause)
}

// neighbour returns the association of the next eNodeB with the same MME.
func (e *engine) neighbour(a *association) *association {
	return e.associations[(a.index+e.targets)%len(e.associations)]
}

// toTarget begins a handover to the next eNodeB. It returns false, and fails the
// call, if that eNodeB has no association.
func (e *engine) toTarget(u *user) bool {
	next := e.neighbour(u.at)
	if next.state != ready {
		e.failConnected(u, "connect")
		return false
	}
	u.next, u.nextIDs = next, u.newIDs()
	u.nextIDs.MME = u.ids.MME
	return true
}

// switchPath requests the path switch of an X2 handover (TS 36.413 clause 8.4.4).
func (e *engine) switchPath(u *user) {
	if !e.toTarget(u) {
		return
	}
	e.out = u.next.cell.AppendPathSwitch(e.out[:0], u.nextIDs, u.bearers[:u.count]...)
	e.queue(u.next, e.out)
	u.step = toSwitch
}

// switched ends an X2 handover.
func (e *engine) switched(u *user, m *enb.Message) {
	switch {
	case u.step != toSwitch:
		e.stray++
	case m.Kind != s1ap.Successful: // both eNodeBs drop the UE
		u.at, u.next = nil, nil
		e.fail(u, "path-switch")
	default:
		u.at, u.ids, u.next = u.next, u.nextIDs, nil
		e.stay(u)
	}
}

// handOver requests an S1 handover (TS 36.413 clause 8.4.1). The container, which
// only the target reads, has the UE's identifier at the target.
func (e *engine) handOver(u *user) {
	if !e.toTarget(u) {
		return
	}
	id := u.nextIDs.ENB
	container := [4]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
	e.out = u.at.cell.AppendHandoverRequired(e.out[:0], u.ids, &u.next.cell, container[:])
	e.queue(u.at, e.out)
	u.step = toMove
}

// admit admits a UE at the target of its handover (TS 36.413 clause 8.4.2).
func (e *engine) admit(a *association, m *enb.Message) {
	var u *user
	if c := m.Container; len(c) == 4 {
		u = e.find(a, uint32(c[0])<<24|uint32(c[1])<<16|uint32(c[2])<<8|uint32(c[3]))
	}
	if u == nil || !u.alive || u.step != toMove || u.next != a || len(m.Bearers()) == 0 {
		e.stray++
		e.out = a.cell.AppendHandoverRefused(e.out[:0], m.IDs.MME, s1ap.CauseUnknownTarget)
		e.queue(a, e.out)
		return
	}
	u.nextIDs.MME = m.IDs.MME // an MME may name the UE differently at the target (TS 36.413 clause 9.2.3.3)
	e.out = a.cell.AppendHandoverAdmitted(e.out[:0], u.nextIDs, m.Container, m.Bearers()...)
	e.queue(a, e.out)
}

// commanded moves a UE to the target if the MME commands it.
func (e *engine) commanded(u *user, m *enb.Message) {
	switch {
	case u.step != toMove:
		e.stray++
	case m.Kind != s1ap.Successful:
		u.next = nil
		e.failConnected(u, "handover-preparation")
	default:
		e.out = u.next.cell.AppendHandoverNotify(e.out[:0], u.nextIDs)
		e.queue(u.next, e.out)
		u.step = toArrive
	}
}

// left ends the connection of a UE in a handover at one of the two eNodeBs.
func (e *engine) left(u *user, a *association, m *enb.Message) {
	atSource := a == u.at && m.IDs.ENB == u.ids.ENB
	switch {
	case atSource && u.step == toArrive:
		u.at, u.ids, u.next = u.next, u.nextIDs, nil
		e.stay(u)
	case atSource: // only the source connection was released
		u.at, u.next = nil, nil
		e.failAlive(u, "released")
	default:
		u.next = nil
		e.failAlive(u, "released")
	}
}

// failAlive fails the call of a UE, if it has one.
func (e *engine) failAlive(u *user, cause string) {
	if u.alive {
		e.failConnected(u, cause)
	}
}
