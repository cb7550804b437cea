package s1ap

import (
	"encoding/binary"

	"vitrine/wire/identity"
)

// ParseMMEUEID parses an MME UE S1AP ID (clause 9.2.3.3).
func ParseMMEUEID(v []byte) (uint32, bool) {
	r := reader{b: v}
	id := r.long(4)
	return uint32(id), !r.bad
}

// AppendMMEUEID appends an element that holds an MME UE S1AP ID: MMEUEID or
// SourceMMEUEID.
func AppendMMEUEID(b []byte, id ID, c Criticality, ue uint32) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, id, c)}
	w.long(uint64(ue), 4)
	return EndElement(w.b, start)
}

// ParseENBUEID parses an eNB UE S1AP ID of 24 bits (clause 9.2.3.4).
func ParseENBUEID(v []byte) (uint32, bool) {
	r := reader{b: v}
	id := r.long(3)
	return uint32(id), !r.bad
}

// AppendENBUEID appends the element ENBUEID.
func AppendENBUEID(b []byte, c Criticality, ue uint32) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, ENBUEID, c)}
	w.long(uint64(ue&0xffffff), 3)
	return EndElement(w.b, start)
}

// ParseUEIDs parses UE S1AP IDs: a pair, or only the ID of the MME (clause
// 9.2.3.18).
func ParseUEIDs(v []byte) (mme, enb uint32, pair, ok bool) {
	r := reader{b: v}
	if r.bit() { // an alternative of the extension, which no version defines
		return 0, 0, false, false
	}
	if r.bit() {
		mme = uint32(r.long(4))
		return mme, 0, false, !r.bad
	}
	p := r.sequence(1)
	mme, enb = uint32(r.long(4)), uint32(r.long(3))
	r.end(p)
	return mme, enb, true, !r.bad
}

// AppendUEIDs appends the element UEIDs with a pair.
func AppendUEIDs(b []byte, c Criticality, mme, enb uint32) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, UEIDs, c)}
	w.bits(0, 4) // alternative 0, no extension, no iE-Extensions
	w.long(uint64(mme), 4)
	w.long(uint64(enb&0xffffff), 3)
	return EndElement(w.b, start)
}

// ParseNAS returns the NAS message of a NASPDU, or the octets of any other element
// that is an octet string: RadioCapability, SourceToTarget, TargetToSource (clause
// 9.2.3.5).
func ParseNAS(v []byte) ([]byte, bool) {
	r := reader{b: v}
	return r.open(), !r.bad
}

// AppendNAS appends an element that is an octet string, such as NASPDU.
func AppendNAS(b []byte, id ID, c Criticality, octets []byte) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, id, c)}
	w.open(octets)
	return EndElement(w.b, start)
}

func (r *reader) plmn() (p identity.PLMN) {
	copy(p[:], r.octets(len(p)))
	return p
}

func (r *reader) tai() (t identity.TAI) {
	p := r.sequence(1)
	t.PLMN = r.plmn()
	t.TAC = uint16(r.bits(16))
	r.end(p)
	return t
}

func (w *writer) tai(t identity.TAI) {
	w.bits(0, 2)
	w.octets(t.PLMN[:]...)
	w.bits(uint32(t.TAC), 16)
}

// ParseTAI parses a tracking area identity (clause 9.2.3.16).
func ParseTAI(v []byte) (identity.TAI, bool) {
	r := reader{b: v}
	t := r.tai()
	return t, !r.bad
}

// AppendTAI appends the element TAI.
func AppendTAI(b []byte, c Criticality, t identity.TAI) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, TAI, c)}
	w.tai(t)
	return EndElement(w.b, start)
}

// AppendTAIItem appends an item of a TAIList (clause 9.1.6).
func AppendTAIItem(b []byte, c Criticality, t identity.TAI) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, TAIItem, c)}
	w.bits(0, 2)
	w.tai(t)
	return EndElement(w.b, start)
}

// ParseECGI parses a cell identity (clause 9.2.1.38).
func ParseECGI(v []byte) (e identity.ECGI, ok bool) {
	r := reader{b: v}
	p := r.sequence(1)
	e.PLMN = r.plmn()
	e.Cell = r.four() >> 4
	r.at -= 4 // 28 bits
	r.end(p)
	return e, !r.bad
}

// AppendECGI appends the element ECGI.
func AppendECGI(b []byte, c Criticality, e identity.ECGI) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, ECGI, c)}
	w.bits(0, 2)
	w.octets(e.PLMN[:]...)
	w.bits(e.Cell, 28)
	return EndElement(w.b, start)
}

// four returns the number in four octets from an octet boundary, or 0 on an error.
func (r *reader) four() uint32 {
	if v := r.octets(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

// ParseSTMSI parses an S-TMSI (clause 9.2.3.6).
func ParseSTMSI(v []byte) (identity.STMSI, bool) {
	r := reader{b: v}
	s := r.stmsi()
	return s, !r.bad
}

func (r *reader) stmsi() (s identity.STMSI) {
	p := r.sequence(1)
	s.Code = uint8(r.bits(8))
	s.TMSI = r.four()
	r.end(p)
	return s
}

func (w *writer) stmsi(s identity.STMSI) {
	w.bits(0, 2)
	w.bits(uint32(s.Code), 8)
	w.octets(byte(s.TMSI>>24), byte(s.TMSI>>16), byte(s.TMSI>>8), byte(s.TMSI))
}

// AppendSTMSI appends the element STMSI.
func AppendSTMSI(b []byte, c Criticality, s identity.STMSI) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, STMSI, c)}
	w.stmsi(s)
	return EndElement(w.b, start)
}

// An ENBKind is the kind of an eNodeB, which determines the size of its identity.
type ENBKind uint8

// The kinds of eNodeB, in the order of the alternatives of clause 9.2.1.37.
const (
	MacroENB      ENBKind = iota // 20 bits
	HomeENB                      // 28 bits
	ShortMacroENB                // 18 bits; this and the next are in the extension
	LongMacroENB                 // 21 bits
)

// bits returns the size of an identity.
func (k ENBKind) bits() int { return [...]int{20, 28, 18, 21}[k] }

// An ENB is a global eNB identity (clause 9.2.1.37).
type ENB struct {
	PLMN identity.PLMN
	ID   uint32
	Kind ENBKind
}

func (r *reader) enb() (e ENB) {
	p := r.sequence(1)
	e.PLMN = r.plmn()
	if !r.bit() {
		e.Kind = ENBKind(r.bits(1))
		r.octets(0)
		e.ID = r.bits(e.Kind.bits())
		r.end(p)
		return e
	}
	alternative := r.small()
	v := reader{b: r.open()}
	if alternative > uint32(LongMacroENB-ShortMacroENB) {
		r.bad = true
		return ENB{}
	}
	e.Kind = ShortMacroENB + ENBKind(alternative)
	e.ID = v.bits(e.Kind.bits())
	r.bad = r.bad || v.bad
	r.end(p)
	return e
}

func (w *writer) enb(e ENB) {
	w.bits(0, 2)
	w.octets(e.PLMN[:]...)
	if e.Kind <= HomeENB {
		w.bits(uint32(e.Kind), 2)
		w.octets()
		w.bits(e.ID, e.Kind.bits())
		return
	}
	w.bits(1, 1)
	w.bits(uint32(e.Kind-ShortMacroENB), 7)
	w.octets(3) // length: 18 or 21 bits take three octets
	w.bits(e.ID, e.Kind.bits())
	w.octets()
}

// ParseENB parses a global eNB identity.
func ParseENB(v []byte) (ENB, bool) {
	r := reader{b: v}
	e := r.enb()
	return e, !r.bad
}

// AppendENB appends the element GlobalENBID.
func AppendENB(b []byte, c Criticality, e ENB) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, GlobalENBID, c)}
	w.enb(e)
	return EndElement(w.b, start)
}
