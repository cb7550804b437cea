package message

import (
	"vitrine/wire/ngap"
	"vitrine/wire/s1ap"
)

// ngapAnswered reports whether a procedure has an outcome: class 1 of TS 38.413 clause
// 8.1.
func ngapAnswered(p ngap.Procedure) bool {
	switch p {
	case 0, 10, 12, 13, 14, 20, 21, 25, 26, 27, 28, 29, 32, 35, 40, 41, 43, 51, 58, 59, 60, 66, 67, 68, 69, 70, 71, 72, 73:
		return true
	}
	return false
}

// ngapNames returns the names of a procedure's messages, without spaces as in TS
// 38.413 clause 9.2.
func ngapNames(p ngap.Procedure) [3]string {
	name := p.String()
	switch p {
	case 0, 35, ngap.PathSwitchRequest: // AMF and RAN Configuration Update
		return [3]string{name, name + "Acknowledge", name + "Failure"}
	case 10, ngap.NGReset: // Handover Cancel
		return [3]string{name, name + "Acknowledge"}
	case ngap.HandoverNotification:
		return [3]string{"HandoverNotify"}
	case ngap.HandoverPreparation:
		return [3]string{"HandoverRequired", "HandoverCommand", name + "Failure"}
	case ngap.HandoverResourceAllocation:
		return [3]string{"HandoverRequest", "HandoverRequestAcknowledge", "HandoverFailure"}
	case 27: // PDU Session Resource Modify Indication
		return [3]string{name, "PDUSessionResourceModifyConfirm"}
	case ngap.PDUSessionResourceRelease:
		return [3]string{name + "Command", name + "Response"}
	case ngap.UEContextRelease: // UEContextReleaseRequest is a procedure of its own
		return [3]string{name + "Command", name + "Complete"}
	case 45: // UE TNLA Binding Release
		return [3]string{name + "Request"}
	}
	if !ngapAnswered(p) {
		return [3]string{name}
	}
	return [3]string{name + "Request", name + "Response", name + "Failure"}
}

// ngap reads a message.
func (r *reading) ngap(o *origin, data []byte) {
	m := &r.decoders.ngap
	if err := m.Parse(data); err != nil {
		r.counts.bad(NGAP, reason(err))
		return
	}
	s := r.slot(o, NGAP)
	s.m.Bytes = len(data)
	if err := m.Check(); err != nil {
		r.counts.bad(NGAP, reason(err))
	}
	ue := m.UE()
	about := subject{core: ue.AMF, radio: uint64(ue.RAN), hasCore: ue.HasAMF, hasRadio: ue.HasRAN}
	if ue.HasAMF {
		s.number(AMFUEID, o.link, ue.AMF)
	}
	if ue.HasRAN {
		s.number(RANUEID, o.link, uint64(ue.RAN))
	}
	var kind uint64
	text := ""
	if ue.NAS != nil {
		nas, err := ngap.ParseNAS(ue.NAS)
		switch {
		case err != nil:
			r.counts.bad(NGAP, reason(err))
		case nas.Type != 0:
			kind, text = uint64(nas.Type), nas.Type.String()
			switch nas.Type {
			case ngap.RegistrationReject, ngap.ServiceReject, ngap.AuthenticationReject:
				s.m.Failed = true
			}
		case nas.Security.IsCiphered():
			kind, text = uint64(ciphered), ciphered.String()
		}
	}
	if m.Procedure == ngap.PathSwitchRequest && m.Kind == s1ap.Initiating {
		about.hasCore = false // it is the identity at the source
	}
	s.m.Name = r.words.number(NGAP, uint64(m.Procedure)<<32|uint64(m.Kind)<<24|kind, func() string {
		return named(ngapNames(m.Procedure), int(m.Kind), text)
	})
	r.procedure(s, o, &about, uint64(m.Procedure), int(m.Kind), ngapAnswered(m.Procedure))
	r.commit(s)
}
