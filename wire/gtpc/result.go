package gtpc

import "fmt"

// A Result is the value of a Cause (clause 8.4). Parse methods return a Result
// as error: the cause with which TS 29.274 clause 7.7 rejects the message, and
// the offending element.
type Result struct {
	Cause     CauseValue
	Offending Element // 0 if there is none
	Instance  uint8   // of the offending element
}

func (r Result) Error() string {
	if r.Offending == 0 {
		return fmt.Sprintf("gtpc: cause %d", r.Cause)
	}
	return fmt.Sprintf("gtpc: cause %d, element %d of instance %d", r.Cause, r.Offending, r.Instance)
}

// The sizes of a Cause, without and with an offending element.
const (
	causeShort = 2
	causeLong  = 6
)

// ParseResult parses the value of a Cause.
func ParseResult(v []byte) (r Result, ok bool) {
	if len(v) < causeShort {
		return r, false
	}
	r.Cause = CauseValue(v[0])
	if len(v) >= causeLong {
		r.Offending, r.Instance = Element(v[2]), v[5]&0x0f
	}
	return r, true
}

// AppendResult appends a Cause.
func AppendResult(b []byte, r Result) []byte {
	if r.Offending == 0 {
		return AppendCause(b, r.Cause)
	}
	return AppendElement(b, Cause, 0, byte(r.Cause), 0, byte(r.Offending), 0, 0, r.Instance&0x0f)
}
