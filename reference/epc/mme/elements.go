package mme

import (
	"errors"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// present is a set of information elements.
type present uint32

const (
	hasMME present = 1 << iota
	hasENB
	hasNAS
	hasTAI
	hasECGI
	hasSTMSI
	hasCause
	hasList
	hasENodeB
	hasAreas
	hasTarget
	hasSource
	hasHandover
	hasContainer
	hasStatus
	hasRadio
	hasReset
	needsNone // in required: the message needs no elements
)

// statusContainer is the identifier of the eNB Status Transfer Transparent
// Container (TS 36.413 clause 9.3.6), which the MME forwards without reading it.
const statusContainer s1ap.ID = 90

// maxContainer bounds the containers that the MME forwards, in octets. The message to the
// other eNodeB may have 16,383 octets. Its other elements need less than 2,000.
const maxContainer = 12 << 10

// elements are the values of a message's information elements. Slices are views
// into the message.
type elements struct {
	has       present
	mme, enb  uint32
	source    uint32 // MME UE S1AP ID of a path switch
	nas       []byte
	tai       identity.TAI
	ecgi      identity.ECGI
	stmsi     identity.STMSI
	cause     s1ap.Cause
	list      []byte // of E-RABs
	enodeb    s1ap.ENB
	areas     []byte
	target    s1ap.ENB
	handover  uint8
	container []byte // Source to Target, or Target to Source
	status    []byte
	radio     []byte
	reset     []byte
}

// The errors of elements.
var (
	errElement = errors.New("mme: information element is malformed or missing")
	errUnknown = errors.New("mme: procedure is unknown")
)

// parse reads the elements that the MME uses, and checks that the message has the
// elements that its procedure requires.
func (e *elements) parse(m *s1ap.Message) error {
	*e = elements{}
	need := required[m.Kind][m.Procedure]
	if need == 0 {
		return errUnknown
	}
	it := m.Elements()
	for it.Next() {
		if !e.element(it.ID, it.Value) {
			return errElement
		}
	}
	if it.Err != nil {
		return it.Err
	}
	if need != needsNone && e.has&need != need {
		return errElement
	}
	return nil
}

// element reads one element. It returns false if the element is malformed.
func (e *elements) element(id s1ap.ID, v []byte) (ok bool) {
	var which present
	switch id {
	case s1ap.MMEUEID:
		which = hasMME
		e.mme, ok = s1ap.ParseMMEUEID(v)
	case s1ap.ENBUEID:
		which = hasENB
		e.enb, ok = s1ap.ParseENBUEID(v)
	case s1ap.NASPDU:
		which = hasNAS
		e.nas, ok = s1ap.ParseNAS(v)
	case s1ap.TAI:
		which = hasTAI
		e.tai, ok = s1ap.ParseTAI(v)
	case s1ap.ECGI:
		which = hasECGI
		e.ecgi, ok = s1ap.ParseECGI(v)
	case s1ap.STMSI:
		which = hasSTMSI
		e.stmsi, ok = s1ap.ParseSTMSI(v)
	case s1ap.CauseID:
		which = hasCause
		e.cause, ok = s1ap.ParseCause(v)
	case s1ap.SetupListContext, s1ap.SetupListBearer, s1ap.ToBeSwitchedDL, s1ap.AdmittedList, s1ap.ReleasedIndication:
		which, e.list, ok = hasList, v, true
	default:
		return e.rare(id, v)
	}
	e.has |= which
	return ok
}

// rare reads an element that only messages of eNodeB procedures and handovers have.
func (e *elements) rare(id s1ap.ID, v []byte) (ok bool) {
	var which present
	switch id {
	case s1ap.GlobalENBID:
		which = hasENodeB
		e.enodeb, ok = s1ap.ParseENB(v)
	case s1ap.SupportedTAs:
		which, e.areas, ok = hasAreas, v, true
	case s1ap.TargetID:
		which = hasTarget
		e.target, _, ok = s1ap.ParseTarget(v)
		if !ok { // a target of another system: the handover fails, but the message is valid
			return true
		}
	case s1ap.SourceMMEUEID:
		which = hasSource
		e.source, ok = s1ap.ParseMMEUEID(v)
	case s1ap.HandoverType:
		which = hasHandover
		e.handover, ok = s1ap.ParseEnum(id, v)
	case s1ap.SourceToTarget, s1ap.TargetToSource:
		which = hasContainer
		e.container, ok = s1ap.ParseNAS(v)
		ok = ok && len(e.container) <= maxContainer
	case s1ap.RadioCapability:
		which = hasRadio
		e.radio, ok = s1ap.ParseNAS(v)
	case s1ap.ResetType:
		which, e.reset, ok = hasReset, v, true
	case statusContainer:
		which, e.status, ok = hasStatus, v, len(v) <= maxContainer
	default:
		return true // not used here
	}
	e.has |= which
	return ok
}

// required are the elements that a message must have for the MME to handle it, by kind and
// procedure (TS 36.413 clause 9.1). The MME knows no other messages.
var required = [...][256]present{
	s1ap.Initiating: {
		s1ap.S1Setup:                 hasENodeB | hasAreas,
		s1ap.InitialUEMessage:        hasENB | hasNAS | hasTAI | hasECGI,
		s1ap.UplinkNASTransport:      hasMME | hasENB | hasNAS | hasTAI | hasECGI,
		s1ap.NASNonDelivery:          hasMME | hasENB | hasNAS | hasCause,
		s1ap.UEContextReleaseRequest: hasMME | hasENB | hasCause,
		s1ap.UECapabilityIndication:  hasMME | hasENB | hasRadio,
		s1ap.PathSwitchRequest:       hasENB | hasList | hasSource | hasECGI | hasTAI,
		s1ap.HandoverPreparation:     hasMME | hasENB | hasHandover | hasCause | hasContainer,
		s1ap.HandoverNotification:    hasMME | hasENB | hasECGI | hasTAI,
		s1ap.HandoverCancel:          hasMME | hasENB | hasCause,
		s1ap.ENBStatusTransfer:       hasMME | hasENB | hasStatus,
		s1ap.ERABReleaseIndication:   hasMME | hasENB | hasList,
		s1ap.ENBConfigurationUpdate:  needsNone,
		s1ap.Reset:                   hasCause | hasReset,
		s1ap.ErrorIndication:         needsNone,
	},
	s1ap.Successful: {
		s1ap.InitialContextSetup:        hasMME | hasENB | hasList,
		s1ap.UEContextRelease:           hasMME | hasENB,
		s1ap.ERABSetup:                  hasMME | hasENB,
		s1ap.ERABRelease:                hasMME | hasENB,
		s1ap.HandoverResourceAllocation: hasMME | hasENB | hasList | hasContainer,
	},
	s1ap.Unsuccessful: {
		s1ap.InitialContextSetup:        hasMME | hasENB | hasCause,
		s1ap.HandoverResourceAllocation: hasMME | hasCause,
	},
}
