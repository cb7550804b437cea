// Package enb has the eNodeB's side of S1AP (3GPP TS 36.413): it builds the messages of an
// eNodeB and parses the messages of an MME. It keeps no state and allocates nothing. The
// S1AP generator and the tests of the MME use it.
package enb

import (
	"errors"
	"net/netip"
	"time"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// A Cell is an eNodeB with one cell.
type Cell struct {
	ID      s1ap.ENB
	Name    string
	TAI     identity.TAI
	Address netip.Addr // IPv4 address of its S1-U tunnels
}

// ecgi returns the identity of the eNodeB's only cell.
func (c *Cell) ecgi() identity.ECGI {
	return identity.ECGI{PLMN: c.ID.PLMN, Cell: c.ID.ID<<8 | 1}
}

// tunnel returns the eNodeB's end of a UE's bearers.
func (c *Cell) tunnel(ue uint32) s1ap.Tunnel { return s1ap.Tunnel{V4: c.Address, TEID: ue} }

// IDs are the two identifiers of a UE's connection.
type IDs struct {
	MME, ENB uint32
}

// AppendSetup appends an S1 Setup Request.
func (c *Cell) AppendSetup(b []byte) []byte {
	start := len(b)
	b = s1ap.AppendHeader(b, s1ap.Initiating, s1ap.S1Setup, s1ap.Reject)
	b = s1ap.AppendENB(b, s1ap.Reject, c.ID)
	b = s1ap.AppendName(b, s1ap.ENBName, s1ap.Ignore, c.Name)
	b = s1ap.AppendAreas(b, s1ap.Reject, c.TAI)
	const v64 = 1
	return s1ap.End(s1ap.AppendEnum(b, s1ap.DefaultPagingDRX, s1ap.Ignore, v64), start)
}

// RRC establishment causes (TS 36.413 clause 9.2.1.3a).
const (
	causeSignalling = 3
	causeData       = 4
	causeVoiceCall  = 6
)

// AppendInitial appends an Initial UE Message. s is nil if the UE has not sent its S-TMSI.
func (c *Cell) AppendInitial(b []byte, ue uint32, pdu []byte, s *identity.STMSI) []byte {
	cause := uint8(causeSignalling)
	if s != nil {
		cause = causeData
	}
	return c.appendInitial(b, ue, pdu, s, cause)
}

// AppendCall appends an Initial UE Message from a UE that begins a voice call.
func (c *Cell) AppendCall(b []byte, ue uint32, pdu []byte, s *identity.STMSI) []byte {
	return c.appendInitial(b, ue, pdu, s, causeVoiceCall)
}

func (c *Cell) appendInitial(b []byte, ue uint32, pdu []byte, s *identity.STMSI, cause uint8) []byte {
	start := len(b)
	b = s1ap.AppendHeader(b, s1ap.Initiating, s1ap.InitialUEMessage, s1ap.Ignore)
	b = s1ap.AppendENBUEID(b, s1ap.Reject, ue)
	b = s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, pdu)
	b = s1ap.AppendTAI(b, s1ap.Reject, c.TAI)
	b = s1ap.AppendECGI(b, s1ap.Ignore, c.ecgi())
	b = s1ap.AppendEnum(b, s1ap.EstablishmentCause, s1ap.Ignore, cause)
	if s != nil {
		b = s1ap.AppendSTMSI(b, s1ap.Reject, *s)
	}
	return s1ap.End(b, start)
}

// AppendUplink appends an Uplink NAS Transport.
func (c *Cell) AppendUplink(b []byte, ids IDs, pdu []byte) []byte {
	start := len(b)
	b = begin(b, s1ap.Initiating, s1ap.UplinkNASTransport, s1ap.Ignore, ids)
	b = s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, pdu)
	b = s1ap.AppendECGI(b, s1ap.Ignore, c.ecgi())
	return s1ap.End(s1ap.AppendTAI(b, s1ap.Ignore, c.TAI), start)
}

// begin begins a message about a UE.
func begin(b []byte, k s1ap.Kind, p s1ap.Procedure, c s1ap.Criticality, ids IDs) []byte {
	element := s1ap.Reject
	if k != s1ap.Initiating {
		element = s1ap.Ignore
	}
	b = s1ap.AppendHeader(b, k, p, c)
	b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, element, ids.MME)
	return s1ap.AppendENBUEID(b, element, ids.ENB)
}

// bearers appends a list of E-RABs with the eNodeB's end of each tunnel.
func (c *Cell) bearers(b []byte, list, item s1ap.ID, criticality s1ap.Criticality, ue uint32, of []uint8) []byte {
	start := len(b)
	b = s1ap.BeginList(b, list, criticality, len(of))
	for _, id := range of {
		b = s1ap.AppendERAB(b, item, criticality, s1ap.ERAB{ID: id, Tunnel: c.tunnel(ue)})
	}
	return s1ap.EndElement(b, start)
}

// AppendContextSetUp appends an Initial Context Setup Response for bearers.
func (c *Cell) AppendContextSetUp(b []byte, ids IDs, of ...uint8) []byte {
	start := len(b)
	b = begin(b, s1ap.Successful, s1ap.InitialContextSetup, s1ap.Reject, ids)
	b = c.bearers(b, s1ap.SetupListContext, s1ap.SetupItemContext, s1ap.Ignore, ids.ENB, of)
	return s1ap.End(b, start)
}

// AppendBearerSetUp appends an E-RAB Setup Response for a bearer.
func (c *Cell) AppendBearerSetUp(b []byte, ids IDs, of ...uint8) []byte {
	start := len(b)
	b = begin(b, s1ap.Successful, s1ap.ERABSetup, s1ap.Reject, ids)
	b = c.bearers(b, s1ap.SetupListBearer, s1ap.SetupItemBearer, s1ap.Ignore, ids.ENB, of)
	return s1ap.End(b, start)
}

// AppendBearerRefused appends an E-RAB Setup Response that refuses a bearer.
func (c *Cell) AppendBearerRefused(b []byte, ids IDs, of uint8, cause s1ap.Cause) []byte {
	return item(b, s1ap.ERABSetup, ids, s1ap.FailedToSetupBearer, s1ap.ERABItem, s1ap.ERAB{ID: of, Cause: cause})
}

// AppendBearerReleased appends an E-RAB Release Response for a bearer.
func (c *Cell) AppendBearerReleased(b []byte, ids IDs, of uint8) []byte {
	return item(b, s1ap.ERABRelease, ids, s1ap.ReleasedBearer, s1ap.ReleaseItemBearerRel, s1ap.ERAB{ID: of})
}

// item appends a successful answer with a list of one E-RAB.
func item(b []byte, p s1ap.Procedure, ids IDs, list, id s1ap.ID, e s1ap.ERAB) []byte {
	start := len(b)
	b = begin(b, s1ap.Successful, p, s1ap.Reject, ids)
	at := len(b)
	b = s1ap.AppendERAB(s1ap.BeginList(b, list, s1ap.Ignore, 1), id, s1ap.Ignore, e)
	return s1ap.End(s1ap.EndElement(b, at), start)
}

// AppendReset appends a Reset (TS 36.413 clause 8.7.1.2.2) of some connections, or of all
// connections of the eNodeB if some is empty.
func (c *Cell) AppendReset(b []byte, cause s1ap.Cause, some ...s1ap.Connection) []byte {
	start := len(b)
	b = s1ap.AppendHeader(b, s1ap.Initiating, s1ap.Reset, s1ap.Reject)
	return s1ap.End(s1ap.AppendReset(s1ap.AppendCause(b, s1ap.Ignore, cause), some...), start)
}

// AppendResetAcknowledge appends a Reset Acknowledge (clause 8.7.1.2.1) for some
// connections, or for all if some is empty.
func (c *Cell) AppendResetAcknowledge(b []byte, some ...s1ap.Connection) []byte {
	start := len(b)
	b = s1ap.AppendHeader(b, s1ap.Successful, s1ap.Reset, s1ap.Reject)
	return s1ap.End(s1ap.AppendConnections(b, some...), start)
}

// AppendContextFailure appends an Initial Context Setup Failure.
func (c *Cell) AppendContextFailure(b []byte, ids IDs, cause s1ap.Cause) []byte {
	start := len(b)
	b = begin(b, s1ap.Unsuccessful, s1ap.InitialContextSetup, s1ap.Reject, ids)
	return s1ap.End(s1ap.AppendCause(b, s1ap.Ignore, cause), start)
}

// AppendReleaseRequest appends a UE Context Release Request.
func (c *Cell) AppendReleaseRequest(b []byte, ids IDs, cause s1ap.Cause) []byte {
	start := len(b)
	b = begin(b, s1ap.Initiating, s1ap.UEContextReleaseRequest, s1ap.Ignore, ids)
	return s1ap.End(s1ap.AppendCause(b, s1ap.Ignore, cause), start)
}

// AppendReleased appends a UE Context Release Complete.
func (c *Cell) AppendReleased(b []byte, ids IDs) []byte {
	start := len(b)
	return s1ap.End(begin(b, s1ap.Successful, s1ap.UEContextRelease, s1ap.Reject, ids), start)
}

// AppendPathSwitch appends a Path Switch Request: the UE with the identifiers has come to
// this eNodeB over X2.
func (c *Cell) AppendPathSwitch(b []byte, ids IDs, of ...uint8) []byte {
	start := len(b)
	b = s1ap.AppendHeader(b, s1ap.Initiating, s1ap.PathSwitchRequest, s1ap.Reject)
	b = s1ap.AppendENBUEID(b, s1ap.Reject, ids.ENB)
	b = c.bearers(b, s1ap.ToBeSwitchedDL, s1ap.ToBeSwitchedItemDL, s1ap.Reject, ids.ENB, of)
	b = s1ap.AppendMMEUEID(b, s1ap.SourceMMEUEID, s1ap.Reject, ids.MME)
	b = s1ap.AppendECGI(b, s1ap.Ignore, c.ecgi())
	b = s1ap.AppendTAI(b, s1ap.Ignore, c.TAI)
	const algorithms = 0x4000 // EEA2 and EIA2
	return s1ap.End(s1ap.AppendCapabilities(b, s1ap.Ignore, algorithms, algorithms), start)
}

// AppendHandoverRequired appends a Handover Required to another eNodeB.
func (c *Cell) AppendHandoverRequired(b []byte, ids IDs, to *Cell, container []byte) []byte {
	start := len(b)
	b = begin(b, s1ap.Initiating, s1ap.HandoverPreparation, s1ap.Reject, ids)
	b = s1ap.AppendEnum(b, s1ap.HandoverType, s1ap.Reject, 0)
	b = s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseHandoverDesirable)
	b = s1ap.AppendTarget(b, s1ap.Reject, to.ID, to.TAI)
	return s1ap.End(s1ap.AppendNAS(b, s1ap.SourceToTarget, s1ap.Reject, container), start)
}

// AppendHandoverAdmitted appends a Handover Request Acknowledge.
func (c *Cell) AppendHandoverAdmitted(b []byte, ids IDs, container []byte, of ...uint8) []byte {
	start := len(b)
	b = begin(b, s1ap.Successful, s1ap.HandoverResourceAllocation, s1ap.Reject, ids)
	b = c.bearers(b, s1ap.AdmittedList, s1ap.AdmittedItem, s1ap.Ignore, ids.ENB, of)
	return s1ap.End(s1ap.AppendNAS(b, s1ap.TargetToSource, s1ap.Reject, container), start)
}

// AppendHandoverRefused appends a Handover Failure.
func (c *Cell) AppendHandoverRefused(b []byte, mme uint32, cause s1ap.Cause) []byte {
	start := len(b)
	b = s1ap.AppendHeader(b, s1ap.Unsuccessful, s1ap.HandoverResourceAllocation, s1ap.Reject)
	b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Ignore, mme)
	return s1ap.End(s1ap.AppendCause(b, s1ap.Ignore, cause), start)
}

// AppendHandoverCancel appends a Handover Cancel.
func (c *Cell) AppendHandoverCancel(b []byte, ids IDs) []byte {
	start := len(b)
	b = begin(b, s1ap.Initiating, s1ap.HandoverCancel, s1ap.Reject, ids)
	return s1ap.End(s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseHandoverCancelled), start)
}

// AppendHandoverNotify appends a Handover Notify: the UE has come to this eNodeB.
func (c *Cell) AppendHandoverNotify(b []byte, ids IDs) []byte {
	start := len(b)
	b = begin(b, s1ap.Initiating, s1ap.HandoverNotification, s1ap.Ignore, ids)
	b = s1ap.AppendECGI(b, s1ap.Ignore, c.ecgi())
	return s1ap.End(s1ap.AppendTAI(b, s1ap.Ignore, c.TAI), start)
}

// A Message is a message from an MME. Slices are views into it.
type Message struct {
	Kind      s1ap.Kind
	Procedure s1ap.Procedure
	HasMME    bool
	HasENB    bool
	IDs       IDs
	NAS       []byte      // of the message or of its E-RAB; nil: none
	Bearer    uint8       // identity of the first E-RAB to set up or to release; 0: none
	Uplink    s1ap.Tunnel // gateway's end of the first E-RAB's tunnel
	bearers   [maxBearers]uint8
	count     int
	Cause     s1ap.Cause
	Wait      time.Duration  // Time To Wait of a failure; 0: none
	Paged     identity.STMSI // the UE that is paged
	Container []byte         // Source to Target, or Target to Source
	Chain     uint8          // next hop chaining counter
	Key       [32]byte       // the eNodeB's key, or the next hop

	reset []byte // value of the Reset Type
}

// maxBearers is the most bearers of a UE: the identities 5 to 15.
const maxBearers = 11

// timeToWait returns the duration of a Time To Wait (TS 36.413 clause 9.2.1.61). A value of a later version
// counts as the longest.
func timeToWait(value uint8) time.Duration {
	seconds := [...]int{1, 2, 5, 10, 20, 60}
	return time.Duration(seconds[min(int(value), len(seconds)-1)]) * time.Second
}

// Bearers returns the identities of all E-RABs of the message.
func (m *Message) Bearers() []uint8 { return m.bearers[:m.count] }

// ErrElement is the error for a malformed information element.
var ErrElement = errors.New("enb: information element is malformed")

// Parse parses a message from an MME.
func (m *Message) Parse(data []byte) error {
	*m = Message{}
	var s s1ap.Message
	if err := s.Parse(data); err != nil {
		return err
	}
	m.Kind, m.Procedure = s.Kind, s.Procedure
	it := s.Elements()
	for it.Next() {
		if !m.element(it.ID, it.Value) {
			return ErrElement
		}
	}
	return it.Err
}

func (m *Message) element(id s1ap.ID, v []byte) (ok bool) {
	switch id {
	case s1ap.MMEUEID:
		m.IDs.MME, ok = s1ap.ParseMMEUEID(v)
		m.HasMME = true
	case s1ap.ENBUEID:
		m.IDs.ENB, ok = s1ap.ParseENBUEID(v)
		m.HasENB = true
	case s1ap.UEIDs:
		mme, enb, pair, sound := s1ap.ParseUEIDs(v)
		m.IDs.MME, m.HasMME = mme, true
		if pair { // otherwise IDs.ENB may be that of an ENBUEID
			m.IDs.ENB, m.HasENB = enb, true
		}
		return sound
	case s1ap.NASPDU:
		m.NAS, ok = s1ap.ParseNAS(v)
	case s1ap.ToBeSetupContext:
		return m.bearer(v, s1ap.ToBeSetupItemContext)
	case s1ap.ToBeSetupHO:
		return m.bearer(v, s1ap.ToBeSetupItemHO)
	case s1ap.ToBeSetupBearer:
		return m.bearer(v, s1ap.ToBeSetupItemBearer)
	case s1ap.ToBeReleased:
		return m.bearer(v, s1ap.ERABItem)
	case s1ap.UEPagingID:
		m.Paged, _, ok = s1ap.ParsePaged(v)
	case s1ap.CauseID:
		m.Cause, ok = s1ap.ParseCause(v)
	case s1ap.TimeToWait:
		var value uint8
		value, ok = s1ap.ParseEnum(id, v)
		m.Wait = timeToWait(value)
	case s1ap.SourceToTarget, s1ap.TargetToSource:
		m.Container, ok = s1ap.ParseNAS(v)
	case s1ap.ResetType:
		m.reset = v
		return true
	case s1ap.SecurityKey:
		m.Key, ok = s1ap.ParseKey(v)
	case s1ap.SecurityContext:
		m.Chain, m.Key, ok = s1ap.ParseNextHop(v)
	default:
		return true
	}
	return ok
}

// Reset returns the connections that a Reset names, or all. It returns false if the message
// has no valid Reset Type.
func (m *Message) Reset() (all bool, some s1ap.Connections, ok bool) { return s1ap.ParseReset(m.reset) }

// bearer reads a list of E-RABs. It keeps tunnel and NAS message of the first one.
func (m *Message) bearer(list []byte, item s1ap.ID) bool {
	for it := s1ap.List(list); it.Next(); {
		e, ok := s1ap.ParseERAB(item, it.Value)
		if !ok || it.ID != item || m.count == maxBearers {
			return false
		}
		if m.count == 0 {
			m.Bearer, m.Uplink = e.ID, e.Tunnel
			if e.NAS != nil {
				m.NAS = e.NAS
			}
		}
		m.bearers[m.count] = e.ID
		m.count++
	}
	return m.count > 0
}
