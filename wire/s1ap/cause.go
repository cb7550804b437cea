package s1ap

// A Group is the group of a cause (clause 9.2.1.3).
type Group uint8

// The groups of causes.
const (
	RadioNetwork Group = iota
	Transport
	NAS
	Protocol
	Misc
)

// A Cause is the reason of a message. Value counts within its group, in the order
// of clause 9.2.1.3: TS 36.413's enumerations begin at zero.
type Cause struct {
	Group Group
	Value uint8
}

// root returns the bits and the number of the root values of the group's
// enumeration.
func (g Group) root() (bits int, values uint8) {
	switch g {
	case RadioNetwork:
		return 6, 36
	case Transport:
		return 1, 2
	case NAS:
		return 2, 4
	case Protocol:
		return 3, 7
	}
	return 3, 6
}

// The causes used here.
var (
	CauseSuccessfulHandover = Cause{RadioNetwork, 2}
	CauseHandoverCancelled  = Cause{RadioNetwork, 4}
	CauseUnknownTarget      = Cause{RadioNetwork, 11}
	CauseUnknownMMEUEID     = Cause{RadioNetwork, 13}
	CauseUnknownENBUEID     = Cause{RadioNetwork, 14}
	CauseUnknownPair        = Cause{RadioNetwork, 15}
	CauseHandoverDesirable  = Cause{RadioNetwork, 16}
	CauseUserInactivity     = Cause{RadioNetwork, 20}
	CauseConnectionLost     = Cause{RadioNetwork, 21}
	CauseNoRadioResources   = Cause{RadioNetwork, 25}
	CauseInteraction        = Cause{RadioNetwork, 29} // interaction with other procedure
	CauseUnknownERAB        = Cause{RadioNetwork, 30}
	CauseNormalRelease      = Cause{NAS, 0}
	CauseAuthentication     = Cause{NAS, 1}
	CauseDetach             = Cause{NAS, 2}
	CauseUnspecifiedNAS     = Cause{NAS, 3}
	CauseTransferSyntax     = Cause{Protocol, 0}
	CauseAbstractSyntax     = Cause{Protocol, 1} // reject
	CauseIncompatible       = Cause{Protocol, 3} // message not compatible with receiver state
	CauseSemantic           = Cause{Protocol, 4}
	CauseOverload           = Cause{Misc, 0}
	CauseIntervention       = Cause{Misc, 3} // operation and maintenance
	CauseUnknownPLMN        = Cause{Misc, 5}
)

func (r *reader) cause() (c Cause) {
	if r.bit() { // a group of the extension, which no version defines
		r.bad = true
	}
	c.Group = Group(r.bits(3))
	if c.Group > Misc {
		r.bad = true
	}
	c.Value = r.enumerated(c.Group.root())
	return c
}

func (w *writer) cause(c Cause) {
	w.bits(uint32(c.Group), 4)
	bits, root := c.Group.root()
	w.enumerated(c.Value, bits, root)
}

// ParseCause parses a cause.
func ParseCause(v []byte) (Cause, bool) {
	r := reader{b: v}
	c := r.cause()
	return c, !r.bad
}

// AppendCause appends the element CauseID.
func AppendCause(b []byte, c Criticality, cause Cause) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, CauseID, c)}
	w.cause(cause)
	return EndElement(w.b, start)
}
