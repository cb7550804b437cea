package message

import (
	"encoding/binary"
	"net/netip"

	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// gtpRequests maps the type of an answer to the type of its request. Failure indications
// answer commands, and both have type zero here (TS 29.274 clause 7.6).
var gtpRequests = func() (all [256]gtpc.Type) {
	for t := range 256 {
		if answer, ok := gtpc.Type(t).Response(); ok {
			all[answer] = gtpc.Type(t)
		}
	}
	return all
}()

// gtpNames has the names of messages from TS 29.274 table 6.1-1. Unknown types have an
// empty name.
var gtpNames = func() (all [256]string) {
	types := gtpc.Types()
	types["echo"] = gtpc.EchoRequest
	for name, t := range types {
		all[t] = capitals(name)
		answer, ok := t.Response()
		if !ok {
			continue
		}
		switch name := all[t]; t {
		case gtpc.DownlinkData, gtpc.AlertMME, gtpc.UEActivity, gtpc.PGWRestart:
			all[answer] = name + " Acknowledge"
		case gtpc.DetachNotification, gtpc.SuspendNotification, gtpc.ResumeNotification, gtpc.RemoteUEReport, gtpc.DownlinkTriggering,
			gtpc.ForwardRelocationComplete, gtpc.ForwardAccessContext:
			all[t], all[answer] = name+" Notification", name+" Acknowledge"
		default:
			all[t], all[answer] = name+" Request", name+" Response"
		}
	}
	all[gtpc.VersionNotSupported] = "Version Not Supported Indication"
	all[gtpc.ModifyBearerFailure] = "Modify Bearer Failure Indication"
	all[gtpc.DeleteBearerFailure] = "Delete Bearer Failure Indication"
	all[gtpc.BearerResourceFailure] = "Bearer Resource Failure Indication"
	all[gtpc.ContextAcknowledge] = "Context Acknowledge"
	return all
}()

// gtp reads the messages of a datagram.
func (r *reading) gtp(o *origin, data []byte, missing int) {
	m := &r.decoders.gtp
	for len(data) > 0 {
		n, err := m.Parse(data)
		if err != nil {
			r.counts.unread(GTPv2, err, missing)
			return
		}
		o.hash = hashOf(m.Octets)
		r.gtpMessage(o, m)
		data = data[n:]
		if !m.Piggyback && gtpLength(data, missing) == 0 {
			return
		}
	}
}

func (r *reading) gtpMessage(o *origin, m *gtpc.Message) {
	s := r.slot(o, GTPv2)
	s.m.Bytes = len(m.Octets)
	s.m.Name = gtpNames[m.Type]
	if s.m.Name == "" { // piggybacked, so not checked by gtpLength
		s.m.Name = r.words.number(GTPv2, uint64(m.Type), func() string { return capitals(m.Type.String()) })
	}
	request := gtpRequests[m.Type]
	// Without the server's port, because some servers answer from another one. NextEPC's S-GW does.
	client, server := hashEnd(o.src), hashAddr(o.dst.Addr())
	_, answered := m.Type.Response()
	switch {
	case m.Type == gtpc.ContextAcknowledge: // the third message of an exchange
		s.m.Kind = Notice
	case m.Type.IsTriggered():
		client, server = hashEnd(o.dst), hashAddr(o.src.Addr())
		s.part, s.m.Kind = closes, Answer
	case answered:
		s.part, request = opens, m.Type
	case m.Type.IsCommand():
		s.part = opens
	default:
		s.part, s.m.Kind, request = opens, Notice, m.Type
	}
	exchange := join(join(client, server), uint64(m.Sequence))
	s.key = join(exchange, uint64(request))
	s.number(Sequence, join(client, server), uint64(m.Sequence))
	if m.HasTEID {
		s.tunnel(o.dst.Addr(), m.TEID, false)
	}
	if err := r.gtpElements(s, m.Elements(), 0); err != nil {
		r.counts.bad(GTPv2, reason(err))
	}
	r.commit(s)
}

// gtpElements adds the identifiers in the elements.
func (r *reading) gtpElements(s *slot, e gtpc.Elements, depth int) error {
	for e.Next() {
		switch e.Type {
		case gtpc.IMSI:
			s.tbcd(IMSI, e.Value)
		case gtpc.MSISDN:
			s.tbcd(MSISDN, e.Value)
		case gtpc.GUTI: // PLMN, MME group, MME code, M-TMSI (TS 29.274 clause 8.47)
			if v := e.Value; len(v) >= 10 {
				s.guti(identity.STMSI{Code: v[5], TMSI: binary.BigEndian.Uint32(v[6:])})
			}
		case gtpc.FTEID:
			if f, ok := gtpc.ParseFTEID(e.Value); ok {
				s.tunnel(f.V4, f.TEID, userPlane(f.Interface))
				s.tunnel(f.V6, f.TEID, userPlane(f.Interface))
			}
		case gtpc.PAA:
			if a, ok := gtpc.ParseAddress(e.Value); ok {
				s.address(a.V4)
				s.address(a.V6)
			}
		case gtpc.EBI:
			if len(e.Value) > 0 {
				s.number(EBI, ebiScope(s.m.Dst.Addr(), s.m.Src.Addr()), uint64(e.Value[0]&0x0f))
			}
		case gtpc.Cause:
			if depth == 0 {
				r.gtpCause(s, e.Value)
			}
		case gtpc.PDNConnection, gtpc.BearerContext:
			if depth < 2 { // a PDN connection has bearer contexts
				if err := r.gtpElements(s, gtpc.Group(e.Value), depth+1); err != nil {
					return err
				}
			}
		}
	}
	return e.Err
}

// tbcd adds an IMSI or MSISDN in telephony binary coded decimal.
func (s *slot) tbcd(kind IdentifierKind, value []byte) {
	if d, ok := gtpc.ParseDigits(value); ok {
		s.digits(kind, d)
	}
}

// gtpCause sets the failure and cause of an answer.
func (r *reading) gtpCause(s *slot, value []byte) {
	if c, ok := gtpc.ParseCause(value); ok && s.m.Kind == Answer && !c.Accepted() {
		s.m.Failed, s.m.Cause = true, r.code(GTPv2, int(c))
	}
}

// ebiScope is the scope of bearer identities between two functions. An EBI does not
// distinguish UEs, so it is useful only together with another identifier.
func ebiScope(a, b netip.Addr) uint64 { return hashPair(hashAddr(a), hashAddr(b)) }

// userPlane reports whether an F-TEID is of the user plane (TS 29.274 clause 8.22).
func userPlane(i gtpc.Interface) bool {
	switch i {
	case 0, 1, 2, 3, 4, 5, 15, 16, 19, 20, 21, 22, 23, 28, 29, 31, 33, 34, 37, 38, 39, 41:
		return true
	}
	return false
}
