package s1ap

import (
	"time"

	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/ue"
	"vitrine/wire/s1ap"
)

// A procedure is the kind of a call.
type procedure uint8

const (
	attach       procedure = iota
	attachDetach           // attach, then detach
	attachIdle             // attach, then release to idle
	service                // service request, then release to idle
	update                 // tracking area update, then the MME releases
	detach                 // detach from idle
	dedicated              // service request, activate and deactivate a dedicated bearer, then release to idle
	handoverX2             // service request, X2 handover, then release to idle
	handoverS1             // service request, S1 handover, then release to idle
	procedures
)

func (p procedure) String() string {
	return [...]string{"attach", "attach-detach", "attach-idle", "service-request", "tracking-area-update", "detach", "dedicated-bearer", "x2-handover", "s1-handover"}[p]
}

// A step is the message that a call waits for.
type step uint8

const (
	toAttach     step = iota // Attach Accept, and the messages before it
	toServe                  // Initial Context Setup Request
	toUpdate                 // Tracking Area Update Accept
	toDetach                 // Detach Accept
	toRelease                // UE Context Release Command
	toLeave                  // the end of the UE's stay
	toActivate               // E-RAB Setup Request, with the NAS request to activate a bearer
	toDeactivate             // E-RAB Release Command, with the NAS request to deactivate it
	toSwitch                 // Path Switch Request Acknowledge
	toMove                   // Handover Request at the target, and then Handover Command
	toArrive                 // UE Context Release Command at the source
)

// A user is a subscriber's UE, which has one call at a time.
type user struct {
	ue.UE
	index      uint32
	generation uint32 // counts the UE's connections; part of the eNB UE S1AP ID
	at         *association
	ids        enb.IDs
	next       *association // the target of a handover
	nextIDs    enb.IDs
	bearers    [maxBearers]uint8 // of the connection
	count      int
	target     int  // number of the MME that the UE is attached to
	attached   bool // attached and idle, between calls

	alive   bool // the UE has a call
	retries int  // remaining
	serial  uint32
	due     time.Duration // relative to the start of the window
	kind    procedure
	step    step
	stayed  time.Duration // how long the UE has stayed connected by Params.Stay, but for the present stay
	since   time.Duration // start of the present stay
}

// The parts of an eNB UE S1AP ID: 20 bits of the user and four bits of the generation. With the
// generation, messages of an earlier connection do not match the current one.
const (
	indexBits      = 20
	generationBits = 4
)

// maxBearers is the maximum number of bearers of a UE: the identities 5 to 15.
const maxBearers = 11

// newConnection gives the UE a new connection at an eNodeB.
func (u *user) newConnection(a *association) {
	u.at, u.ids, u.next = a, u.newIDs(), nil
}

// newIDs returns the identifiers of a new connection.
func (u *user) newIDs() enb.IDs {
	u.generation = (u.generation + 1) & (1<<generationBits - 1)
	return enb.IDs{ENB: u.generation<<indexBits | u.index}
}

// find returns the UE of a live connection, or nil. A UE in a handover has two
// connections.
func (e *engine) find(a *association, enbID uint32) *user {
	i := enbID & (1<<indexBits - 1)
	if int(i) >= len(e.users) {
		return nil
	}
	u := &e.users[i]
	if u.at == a && u.ids.ENB == enbID || u.next != nil && u.next == a && u.nextIDs.ENB == enbID {
		return u
	}
	return nil
}

// start sends the first message of a call.
func (e *engine) start(u *user, a *association) {
	if u.kind <= attachIdle {
		u.Forget() // by IMSI
	}
	u.target = a.number
	u.newConnection(a)
	var pdu []byte
	short := u.GUTI.STMSI()
	given := &short
	switch u.kind {
	case service, dedicated, handoverX2, handoverS1:
		u.step, pdu = toServe, u.AppendService(e.pdu[:0])
	case update:
		u.Connect()
		u.step, pdu = toUpdate, u.AppendUpdate(e.pdu[:0], false)
	case detach:
		u.Connect()
		u.step, pdu = toDetach, u.AppendDetach(e.pdu[:0], false)
	default:
		u.step, pdu, given = toAttach, u.AppendAttach(e.pdu[:0]), nil
	}
	e.pdu = pdu
	if u.kind == dedicated {
		e.out = a.cell.AppendCall(e.out[:0], u.ids.ENB, pdu, given)
	} else {
		e.out = a.cell.AppendInitial(e.out[:0], u.ids.ENB, pdu, given)
	}
	e.queue(a, e.out)
}

// uplink sends a NAS message.
func (e *engine) uplink(u *user, pdu []byte) {
	e.out = u.at.cell.AppendUplink(e.out[:0], u.ids, pdu)
	e.queue(u.at, e.out)
}

// message handles a message of an MME.
func (e *engine) message(a *association, data []byte) {
	m := &e.in
	if err := m.Parse(data); err != nil {
		e.malformed++
		return
	}
	switch m.Procedure {
	case s1ap.S1Setup:
		e.setUp(a, m)
		return
	case s1ap.UEContextRelease:
		e.release(a, m)
		return
	case s1ap.Reset:
		e.reset(a, m)
		return
	case s1ap.HandoverResourceAllocation:
		e.admit(a, m)
		return
	}
	var u *user
	if m.HasENB {
		u = e.find(a, m.IDs.ENB)
	}
	if u == nil || !u.alive {
		e.stray++ // the call has ended, for example by a timeout
		return
	}
	if u.next == a && u.nextIDs.ENB == m.IDs.ENB {
		u.nextIDs.MME = m.IDs.MME
	} else {
		u.ids.MME = m.IDs.MME
	}
	switch m.Procedure {
	case s1ap.DownlinkNASTransport:
		e.download(u, m)
	case s1ap.InitialContextSetup:
		e.bearer(u, m)
	case s1ap.ERABSetup, s1ap.ERABRelease:
		e.changeBearer(u, m)
	case s1ap.PathSwitchRequest:
		e.switched(u, m)
	case s1ap.HandoverPreparation:
		e.commanded(u, m)
	case s1ap.ErrorIndication:
		e.fail(u, "error-indication")
	default:
		e.stray++
	}
}

// release confirms the release of a connection, whether the UE has a call or not.
func (e *engine) release(a *association, m *enb.Message) {
	u := e.named(a, s1ap.Connection{MME: m.IDs.MME, HasMME: m.HasMME, ENB: m.IDs.ENB, HasENB: m.HasENB})
	if u != nil && !m.HasENB { // the command may have only the MME's identifier (TS 36.413 clause 8.3.3.2)
		m.IDs.ENB = u.ids.ENB
		if u.at != a {
			m.IDs.ENB = u.nextIDs.ENB
		}
	}
	e.out = a.cell.AppendReleased(e.out[:0], m.IDs)
	e.queue(a, e.out)
	if u == nil {
		return
	}
	if u.next != nil {
		e.left(u, a, m)
		return
	}
	u.at = nil
	switch {
	case !u.alive:
	case u.step == toRelease:
		u.attached = u.kind != detach && u.kind != attachDetach
		e.succeed(u)
	default:
		e.fail(u, "released")
	}
}

// bearer confirms the set-up of a bearer and continues the call.
func (e *engine) bearer(u *user, m *enb.Message) {
	cell := &u.at.cell
	switch u.step {
	case toServe:
		u.Serve()
		e.out = cell.AppendContextSetUp(e.out[:0], u.ids, m.Bearers()...)
		e.queue(u.at, e.out)
		u.count = copy(u.bearers[:], m.Bearers())
		e.served(u)
	case toAttach:
		reply, event, err := u.Receive(e.pdu[:0], m.NAS)
		e.pdu = reply
		if err != nil || event != ue.Accepted {
			e.malformed++
			e.fail(u, "malformed")
			return
		}
		e.out = cell.AppendContextSetUp(e.out[:0], u.ids, m.Bearers()...)
		e.queue(u.at, e.out)
		e.uplink(u, reply)
		e.accepted(u)
	default:
		e.stray++
	}
}

// accepted continues a call whose UE has attached.
func (e *engine) accepted(u *user) {
	if u.kind == attach {
		e.succeed(u)
		return
	}
	e.stay(u)
}

// stay keeps a UE connected for a while.
func (e *engine) stay(u *user) {
	if e.params.Stay == 0 {
		e.endStay(u)
		return
	}
	u.step, u.since = toLeave, e.now
	e.staying.Push(alarm{user: u.index, serial: u.serial, at: e.now + time.Duration(e.params.Stay)})
}

// leave ends the stays whose time is over.
func (e *engine) leave() {
	for e.staying.Len() > 0 && e.staying.Front().at <= e.now {
		a := e.staying.Pop()
		if u := &e.users[a.user]; u.alive && u.serial == a.serial && u.step == toLeave && a.at == u.since+time.Duration(e.params.Stay) {
			u.stayed += e.now - u.since
			e.endStay(u)
		}
	}
}

// endStay detaches a connected UE or releases its connection.
func (e *engine) endStay(u *user) {
	if u.kind != attachDetach {
		e.toIdle(u)
		return
	}
	e.pdu = u.AppendDetach(e.pdu[:0], false)
	e.uplink(u, e.pdu)
	u.step = toDetach
}

// toIdle requests the release of the UE's connection.
func (e *engine) toIdle(u *user) {
	e.out = u.at.cell.AppendReleaseRequest(e.out[:0], u.ids, s1ap.CauseUserInactivity)
	e.queue(u.at, e.out)
	u.step = toRelease
}

// download handles a NAS message.
func (e *engine) download(u *user, m *enb.Message) {
	reply, event, err := u.Receive(e.pdu[:0], m.NAS)
	e.pdu = reply
	if err != nil {
		e.malformed++
		e.fail(u, "malformed")
		return
	}
	if len(reply) > 0 {
		e.uplink(u, reply)
	}
	switch event {
	case ue.Updated:
		if u.step == toUpdate {
			u.step = toRelease
		}
	case ue.Detached:
		if u.step == toDetach {
			u.step = toRelease
		}
	case ue.Rejected:
		e.fail(u, e.causes.Text(int(u.Cause)))
	case ue.Forbidden:
		e.fail(u, "authentication")
	case ue.Untrusted:
		e.fail(u, "untrusted")
	case ue.Dismissed:
		e.fail(u, "detached")
	case ue.Refused:
		e.failConnected(u, e.esmCauses.Text(int(u.ESM)))
	case ue.None, ue.Asked, ue.Accepted, ue.Activated, ue.Deactivated: // the call continues
	}
}
