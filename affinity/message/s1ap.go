package message

import (
	"strconv"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// s1apNames has the names of a procedure's initiating message, and of its successful and
// unsuccessful outcome (TS 36.413 tables 1 and 2 of clause 8.1). Procedures of class 2 have
// no outcome.
func s1apNames(p s1ap.Procedure) [3]string {
	switch p {
	case s1ap.HandoverPreparation:
		return [3]string{"Handover Required", "Handover Command", "Handover Preparation Failure"}
	case s1ap.HandoverResourceAllocation:
		return [3]string{"Handover Request", "Handover Request Acknowledge", "Handover Failure"}
	case s1ap.HandoverNotification:
		return [3]string{"Handover Notify"}
	case s1ap.PathSwitchRequest:
		return [3]string{"Path Switch Request", "Path Switch Request Acknowledge", "Path Switch Request Failure"}
	case s1ap.HandoverCancel:
		return [3]string{"Handover Cancel", "Handover Cancel Acknowledge"}
	case s1ap.ERABSetup:
		return [3]string{"E-RAB Setup Request", "E-RAB Setup Response"}
	case s1ap.ERABModify:
		return [3]string{"E-RAB Modify Request", "E-RAB Modify Response"}
	case s1ap.ERABRelease:
		return [3]string{"E-RAB Release Command", "E-RAB Release Response"}
	case s1ap.InitialContextSetup:
		return [3]string{"Initial Context Setup Request", "Initial Context Setup Response", "Initial Context Setup Failure"}
	case s1ap.Reset:
		return [3]string{"Reset", "Reset Acknowledge"}
	case s1ap.S1Setup:
		return [3]string{"S1 Setup Request", "S1 Setup Response", "S1 Setup Failure"}
	case 21: // UE Context Modification
		return [3]string{"UE Context Modification Request", "UE Context Modification Response", "UE Context Modification Failure"}
	case s1ap.UEContextRelease:
		return [3]string{"UE Context Release Command", "UE Context Release Complete"}
	case 29: // eNB Configuration Update
		return [3]string{"ENB Configuration Update", "ENB Configuration Update Acknowledge", "ENB Configuration Update Failure"}
	case 30: // MME Configuration Update
		return [3]string{"MME Configuration Update", "MME Configuration Update Acknowledge", "MME Configuration Update Failure"}
	case 36: // Write-Replace Warning
		return [3]string{"Write-Replace Warning Request", "Write-Replace Warning Response"}
	case 43: // Kill
		return [3]string{"Kill Request", "Kill Response"}
	case 48: // UE Radio Capability Match
		return [3]string{"UE Radio Capability Match Request", "UE Radio Capability Match Response"}
	case 50: // E-RAB Modification Indication
		return [3]string{"E-RAB Modification Indication", "E-RAB Modification Confirm"}
	case 53: // UE Context Modification Indication
		return [3]string{"UE Context Modification Indication", "UE Context Modification Confirm"}
	case 55: // UE Context Suspend
		return [3]string{"UE Context Suspend Request", "UE Context Suspend Response"}
	case 56: // UE Context Resume
		return [3]string{"UE Context Resume Request", "UE Context Resume Response", "UE Context Resume Failure"}
	case 63: // UE Radio Capability ID Mapping
		return [3]string{"UE Radio Capability ID Mapping Request", "UE Radio Capability ID Mapping Response"}
	case s1ap.ERABReleaseIndication:
		return [3]string{"E-RAB Release Indication"}
	}
	return [3]string{}
}

// s1apAnswered reports whether a procedure has an outcome: class 1 of TS 36.413 clause
// 8.1.
func s1apAnswered(p s1ap.Procedure) bool { return s1apNames(p)[1] != "" }

// A subject collects the identities of the UE while an S1AP or NGAP message is read.
type subject struct {
	core, radio       uint64 // identities of the UE at the MME or AMF, and at the eNodeB or gNodeB
	hasCore, hasRadio bool
	nas               []byte // the first NAS message
}

// s1ap reads a message.
func (r *reading) s1ap(o *origin, data []byte) {
	m := &r.decoders.s1ap
	if err := m.Parse(data); err != nil {
		r.counts.bad(S1AP, reason(err))
		return
	}
	s := r.slot(o, S1AP)
	s.m.Bytes = len(data)
	var about subject
	if err := r.s1apElements(s, o, m.Elements(), &about, 0); err != nil {
		r.counts.bad(S1AP, reason(err))
	}
	nas := nasName(0)
	if about.nas != nil {
		nas = r.nas(s, about.nas)
	}
	code := uint64(m.Procedure)<<32 | uint64(m.Kind)<<24 | uint64(nas)
	s.m.Name = r.words.number(S1AP, code, func() string {
		names := s1apNames(m.Procedure)
		if names[0] == "" {
			names[0] = capitals(m.Procedure.String())
		}
		return named(names, int(m.Kind), nas.String())
	})
	r.procedure(s, o, &about, uint64(m.Procedure), int(m.Kind), s1apAnswered(m.Procedure))
	r.commit(s)
}

// named returns the name of a message of a procedure, with the name of the NAS message in
// it.
func named(names [3]string, kind int, nas string) string {
	name := names[kind]
	if name == "" {
		name = names[0] + [...]string{"", " Response", " Failure"}[kind]
	}
	if nas != "" {
		name += ": " + nas
	}
	return name
}

// procedure sets the exchange of the message of an elementary procedure. It identifies the
// UE by the identity at the MME, or else by the identity at the eNodeB. The sender of an
// outcome may have just assigned the identity at the MME, so that the request lacks it:
// s.other then finds the request by the identity at the eNodeB.
func (r *reading) procedure(s *slot, o *origin, about *subject, procedure uint64, kind int, answered bool) {
	const initiating, unsuccessful = 0, 2
	base := join(o.link, procedure)
	core, radio := join(base, about.core<<1), join(base, about.radio<<1|1)
	switch {
	case kind == initiating && !answered:
		s.m.Kind = Notice
		if s.hash != 0 { // the same chunk again is a retransmission
			s.part, s.key = opens, join(base, s.hash)
		}
		return
	case kind == initiating:
		s.part = opens
	default:
		s.part, s.m.Kind, s.m.Failed = only, Answer, kind == unsuccessful
	}
	switch {
	case about.hasCore:
		s.key = core
	case about.hasRadio:
		s.key = radio
	default:
		s.key = base
	}
	if about.hasCore && about.hasRadio && kind != initiating {
		s.other = radio
	}
}

// s1apElements adds the identifiers in the elements.
func (r *reading) s1apElements(s *slot, o *origin, e s1ap.Elements, about *subject, depth int) error {
	for e.Next() {
		switch e.ID {
		case s1ap.MMEUEID, s1ap.SourceMMEUEID:
			if id, ok := s1ap.ParseMMEUEID(e.Value); ok {
				s.number(MMEUEID, o.link, uint64(id))
				if e.ID == s1ap.MMEUEID {
					about.core, about.hasCore = uint64(id), true
				}
			}
		case s1ap.ENBUEID:
			if id, ok := s1ap.ParseENBUEID(e.Value); ok {
				s.number(ENBUEID, o.link, uint64(id))
				about.radio, about.hasRadio = uint64(id), true
			}
		case s1ap.UEIDs:
			if mme, enb, pair, ok := s1ap.ParseUEIDs(e.Value); ok {
				s.number(MMEUEID, o.link, uint64(mme))
				about.core, about.hasCore = uint64(mme), true
				if pair {
					s.number(ENBUEID, o.link, uint64(enb))
					about.radio, about.hasRadio = uint64(enb), true
				}
			}
		case s1ap.NASPDU:
			if pdu, ok := s1ap.ParseNAS(e.Value); ok {
				about.nas = pdu
			}
		case s1ap.CauseID:
			if c, ok := s1ap.ParseCause(e.Value); ok {
				s.m.Cause = r.words.number(S1AP, 1<<55|uint64(c.Group)<<8|uint64(c.Value), func() string { return s1apCause(c) })
			}
		default:
			if err := r.s1apUser(s, o, &e, about, depth); err != nil {
				return err
			}
		}
	}
	return e.Err
}

// s1apUser adds the identifiers in less frequent elements.
func (r *reading) s1apUser(s *slot, o *origin, e *s1ap.Elements, about *subject, depth int) error {
	switch e.ID {
	case s1ap.STMSI:
		if t, ok := s1ap.ParseSTMSI(e.Value); ok {
			s.guti(t)
		}
	case s1ap.UEPagingID:
		if t, imsi, ok := s1ap.ParsePaged(e.Value); ok {
			if imsi == nil {
				s.guti(t)
			} else if d, ok := pagedIMSI(imsi); ok {
				s.digits(IMSI, d)
			}
		}
	case s1ap.ToBeSetupBearer, s1ap.ToBeSetupContext, s1ap.ToBeSetupHO, s1ap.SetupListBearer, s1ap.SetupListContext, s1ap.AdmittedList,
		s1ap.ToBeSwitchedDL, s1ap.ToBeSwitchedUL:
		if depth == 0 {
			return r.s1apElements(s, o, s1ap.List(e.Value), about, 1)
		}
	case s1ap.ToBeSetupItemBearer, s1ap.ToBeSetupItemContext, s1ap.ToBeSetupItemHO, s1ap.SetupItemBearer, s1ap.SetupItemContext,
		s1ap.AdmittedItem, s1ap.ToBeSwitchedItemDL, s1ap.ToBeSwitchedItemUL:
		if bearer, ok := s1ap.ParseERAB(e.ID, e.Value); ok {
			s.tunnel(bearer.Tunnel.V4, bearer.Tunnel.TEID, true)
			s.tunnel(bearer.Tunnel.V6, bearer.Tunnel.TEID, true)
			if about.nas == nil && bearer.NAS != nil {
				about.nas = bearer.NAS
			}
		}
	}
	return nil
}

// pagedIMSI reads the octets of an IMSI: two digits per octet, the low half first (TS
// 36.413 clause 9.2.3.13).
func pagedIMSI(octets []byte) (d identity.Digits, ok bool) {
	for _, o := range octets {
		for _, digit := range [...]byte{o & 0x0f, o >> 4} {
			if digit != 0x0f && !d.Add(digit) {
				return d, false
			}
		}
	}
	return d, d.Len() > 0
}

// s1apCause returns the text of a cause: its group and number.
func s1apCause(c s1ap.Cause) string {
	groups := [...]string{"radio-network", "transport", "nas", "protocol", "misc"}
	group := "group-" + string(appendHex(nil, uint64(c.Group)))
	if int(c.Group) < len(groups) {
		group = groups[c.Group]
	}
	return group + "/" + strconv.Itoa(int(c.Value))
}
