// Package ngap reads NGAP messages (3GPP TS 38.413) in place, to find which UE
// they are about: the procedure, the identities of the UE, and the NAS message
// (TS 24.501) that they carry. The package reads no other elements, and it
// writes no messages. Clauses without a document are clauses of TS 38.413.
//
// NGAP messages have the same container of elements as S1AP messages, so the
// package reads them with wire/s1ap: as views, without allocation, except that
// fragments are joined in a copy. The values read here begin at octet
// boundaries, so the package needs no bit reader.
package ngap

import "vitrine/wire/s1ap"

// The named elements (clause 9.4.7). The iterator yields all others too, by number.
const (
	AMFUEID       s1ap.ID = 10
	NASPDU        s1ap.ID = 38
	RANUEID       s1ap.ID = 85
	SourceAMFUEID s1ap.ID = 100 // in a path switch request
	UEIDs         s1ap.ID = 114 // in a release command
)

// A Message is one message. Its kind, its elements and the errors of Parse and Check
// are those of S1AP.
type Message struct {
	s1ap.Message
	Procedure Procedure // hides the embedded one, whose names are those of S1AP
}

// Parse parses the header of a message. data must be exactly one message,
// because SCTP preserves message boundaries. Parse does not check the
// information elements; Check does.
func (m *Message) Parse(data []byte) error {
	err := m.Message.Parse(data)
	m.Procedure = Procedure(m.Message.Procedure)
	return err
}

// A UE has the identities of a UE on the interface, and the NAS message about it.
type UE struct {
	HasAMF, HasRAN bool
	AMF            uint64 // AMF-UE-NGAP-ID: 40 bits (clause 9.3.3.1)
	RAN            uint32 // RAN-UE-NGAP-ID (clause 9.3.3.2)
	NAS            []byte // the NAS PDU: a view, or a copy of fragments; nil for none
}

// UE returns the identities and the NAS message in the message. For a path
// switch request, AMF is the identity at the source. UE does not read elements
// inside others, such as a NAS PDU in a list of sessions. It leaves out
// malformed elements, and all elements after an error of the container.
func (m *Message) UE() (u UE) {
	for e := m.Elements(); e.Next(); {
		switch e.ID {
		case AMFUEID, SourceAMFUEID:
			u.amf(e.Value, 0)
		case RANUEID:
			u.ran(e.Value)
		case UEIDs:
			u.both(e.Value)
		case NASPDU:
			if nas, ok := s1ap.ParseNAS(e.Value); ok {
				u.NAS = nas
			}
		}
	}
	return u
}

// amf reads an AMF-UE-NGAP-ID, and returns the octets after it. The length of
// the identity has three bits, after the given number of other bits (X.691
// clause 11.5.7.4).
func (u *UE) amf(v []byte, before int) (rest []byte) {
	const bits, most = 3, 5
	id, rest, ok := integer(v, before, bits, most)
	if ok {
		u.AMF, u.HasAMF = id, true
	}
	return rest
}

// ran reads a RAN-UE-NGAP-ID, whose length has two bits.
func (u *UE) ran(v []byte) {
	const bits, most = 2, 4
	if id, _, ok := integer(v, 0, bits, most); ok {
		u.RAN, u.HasRAN = uint32(id), true
	}
}

// both reads UE-NGAP-IDs: a pair, or only the identity of the AMF (clause 9.4.5).
func (u *UE) both(v []byte) {
	if len(v) == 0 {
		return
	}
	const choice = 2 // bits
	switch v[0] >> 6 {
	case 0:
		const preamble = 2 // bits: extensions follow
		u.ran(u.amf(v, choice+preamble))
	case 1:
		u.amf(v, choice)
	}
}

// integer reads a whole number whose range exceeds 65,536. Its first octet has
// the length minus one, in the given number of bits after the bits before.
func integer(v []byte, before, bits, most int) (n uint64, rest []byte, ok bool) {
	if len(v) == 0 {
		return 0, nil, false
	}
	size := int(v[0]<<before>>(8-bits)) + 1
	if size > most || size > len(v)-1 {
		return 0, nil, false
	}
	for _, b := range v[1 : 1+size] {
		n = n<<8 | uint64(b)
	}
	return n, v[1+size:], true
}
