package gtpc

import (
	"encoding/binary"
	"slices"

	"vitrine/wire/identity"
)

// A reader iterates over the elements of a message or group that a Parse method
// handles, and keeps the first error. It yields only the first element of each
// type and instance, except bearer contexts and the list of bearer identities
// (clause 7.7.10).
type reader struct {
	Elements
	seen [256]uint16 // a bit for each instance, by type
	err  error       // nil or a Result
}

func newReader(e Elements) reader { return reader{Elements: e} }

// next moves to the next element to handle.
func (r *reader) next() bool {
	for r.err == nil && r.Next() {
		bit := uint16(1) << r.Instance
		repeated := r.seen[r.Type]&bit != 0
		r.seen[r.Type] |= bit
		if !repeated || r.Type == BearerContext || r.second(EBI) {
			return true
		}
	}
	if r.err == nil && r.Err != nil {
		r.err = Result{Cause: InvalidLength}
	}
	return false
}

// second reports whether the element has the type and instance 1, which has
// another meaning in the message than instance 0.
func (r *reader) second(t Element) bool { return r.Type == t && r.Instance == 1 }

// fail keeps an error about the element.
func (r *reader) fail(cause CauseValue) {
	if r.err == nil {
		r.err = Result{Cause: cause, Offending: r.Type, Instance: r.Instance}
	}
}

// require keeps an error if a mandatory element, of instance 0, is missing (clause
// 7.7.6).
func (r *reader) require(t Element) {
	if r.err == nil && r.seen[t]&1 == 0 {
		r.err = Result{Cause: MandatoryMissing, Offending: t}
	}
}

func (r *reader) octet() uint8 {
	if len(r.Value) < 1 {
		r.fail(InvalidLength)
		return 0
	}
	return r.Value[0]
}

func (r *reader) four() uint32 {
	if len(r.Value) < 4 {
		r.fail(InvalidLength)
		return 0
	}
	return binary.BigEndian.Uint32(r.Value)
}

// get returns the result of a parser, and keeps an error if the parser rejects
// the value. A value is rejected if it is too short or has an undefined meaning
// (clauses 7.7.7 and 7.7.8).
func get[T any](r *reader, parse func([]byte) (T, bool)) T {
	v, ok := parse(r.Value)
	if !ok {
		r.fail(MandatoryIncorrect)
	}
	return v
}

func (r *reader) result() Result          { return get(r, ParseResult) }
func (r *reader) qos() QoS                { return get(r, ParseQoS) }
func (r *reader) digits() identity.Digits { return get(r, ParseDigits) }
func (r *reader) restart() Restart        { return Restart{Given: true, Counter: r.octet()} }

// endpoint returns an F-TEID. An F-TEID of another interface is incorrect.
func (r *reader) endpoint(of ...Interface) Endpoint {
	f := get(r, ParseFTEID)
	if len(of) > 0 && !slices.Contains(of, f.Interface) {
		r.fail(MandatoryIncorrect)
	}
	return f
}

// plmn returns a serving network.
func (r *reader) plmn() identity.PLMN {
	if len(r.Value) < len(identity.PLMN{}) {
		r.fail(InvalidLength)
		return identity.PLMN{}
	}
	return identity.PLMN(r.Value)
}

// bearers appends the bearer context to the list.
func (r *reader) bearers(t Type, to []Bearer) []Bearer {
	if len(to) == MaxBearers {
		r.fail(MandatoryIncorrect)
		return to
	}
	to = append(to, Bearer{})
	if err := to[len(to)-1].parse(t, r.Value); err != nil && r.err == nil {
		r.err = err
	}
	return to
}

// identities appends the EPS bearer identity to the list.
func (r *reader) identities(to []uint8) []uint8 {
	if len(to) == MaxBearers {
		r.fail(MandatoryIncorrect)
		return to
	}
	ebi := r.octet() & 0x0f
	if ebi == 0 {
		r.fail(MandatoryIncorrect)
	}
	return append(to, ebi)
}

// The maximum octets of elements that are views: an access point name (TS
// 23.003 clause 9.1), protocol configuration options (TS 24.008 clause
// 10.5.6.3) and a traffic flow template (clause 10.5.6.12). So they also bound
// a message that passes these elements on.
const (
	maxAPN = 100
	maxPCO = 250
	maxTFT = 255
)

// octets returns the value, of at most limit octets.
func (r *reader) octets(limit int) []byte {
	if len(r.Value) > limit {
		r.fail(InvalidLength)
		return nil
	}
	return r.Value
}
