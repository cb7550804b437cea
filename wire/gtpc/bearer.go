package gtpc

import "encoding/binary"

// A QoS is the quality of service of a bearer (clause 8.15). Rates are in kbit/s,
// and zero without a guaranteed rate.
type QoS struct {
	QCI                          uint8 // 0 if the QoS is not given
	Priority                     uint8 // 1 (highest) to 15
	MayPreempt, Preemptable      bool
	MaxUp, MaxDown               uint64 // 40 bits
	GuaranteedUp, GuaranteedDown uint64 // 40 bits
}

// qosSize is the number of octets of a QoS.
const qosSize = 22

// The first octet of a QoS. Both bits are set if pre-emption is disabled (TS
// 29.212 clauses 5.3.46 and 5.3.47).
const (
	qosMayNotPreempt  = 0x40
	qosNotPreemptable = 0x01
)

// ParseQoS parses the value of a Bearer QoS.
func ParseQoS(v []byte) (q QoS, ok bool) {
	if len(v) < qosSize {
		return q, false
	}
	q = QoS{
		QCI: v[1], Priority: v[0] >> 2 & 0x0f,
		MayPreempt: v[0]&qosMayNotPreempt == 0, Preemptable: v[0]&qosNotPreemptable == 0,
	}
	q.parseRates(v[2:])
	return q, true
}

// parseRates parses the rates, of five octets each.
func (q *QoS) parseRates(v []byte) {
	for i, rate := range q.rates() {
		at := v[5*i:]
		*rate = uint64(at[0])<<32 | uint64(binary.BigEndian.Uint32(at[1:]))
	}
}

// appendRates appends the rates.
func (q *QoS) appendRates(b []byte) []byte {
	for _, rate := range q.rates() {
		b = append(b, byte(*rate>>32))
		b = binary.BigEndian.AppendUint32(b, uint32(*rate))
	}
	return b
}

// ParseFlowQoS parses the value of a Flow QoS (clause 8.16): a QoS without priority
// and pre-emption.
func ParseFlowQoS(v []byte) (q QoS, ok bool) {
	if len(v) < qosSize-1 {
		return q, false
	}
	q.QCI = v[0]
	q.parseRates(v[1:])
	return q, true
}

// AppendFlowQoS appends a Flow QoS.
func AppendFlowQoS(b []byte, q QoS) []byte {
	start := len(b)
	b = append(BeginGroup(b, FlowQoS, 0), q.QCI)
	return EndGroup(q.appendRates(b), start)
}

// rates returns the rates in the order of octets.
func (q *QoS) rates() [4]*uint64 {
	return [4]*uint64{&q.MaxUp, &q.MaxDown, &q.GuaranteedUp, &q.GuaranteedDown}
}

// AppendQoS appends a Bearer QoS.
func AppendQoS(b []byte, q QoS) []byte {
	first := q.Priority & 0x0f << 2
	if !q.MayPreempt {
		first |= qosMayNotPreempt
	}
	if !q.Preemptable {
		first |= qosNotPreemptable
	}
	start := len(b)
	b = append(BeginGroup(b, BearerQoS, 0), first, q.QCI)
	return EndGroup(q.appendRates(b), start)
}

// Rates are an aggregate maximum bit rate of an APN, in kbit/s (clause 8.7). Both
// are zero if it is not given.
type Rates struct {
	Up, Down uint32
}

// ParseRates parses the value of an AMBR.
func ParseRates(v []byte) (r Rates, ok bool) {
	if len(v) < 8 {
		return r, false
	}
	return Rates{Up: binary.BigEndian.Uint32(v), Down: binary.BigEndian.Uint32(v[4:])}, true
}

// AppendRates appends an AMBR.
func AppendRates(b []byte, r Rates) []byte {
	b = append(b, byte(AMBR), 0, 8, 0)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, r.Up), r.Down)
}

// A Bearer is a bearer context (clause 8.28). A field that is not given is
// zero, and an Endpoint that is not given has no address. The comment of each
// message lists the fields that it has. AppendBearer sets the interface types.
type Bearer struct {
	EBI        uint8 // EPS bearer identity: 5 to 15, or 0 in a Create Bearer Request
	Result     Result
	TFT        []byte // traffic flow template (TS 24.008 clause 10.5.6.12): a view
	QoS        QoS
	ChargingID uint32
	ENB        Endpoint // S1-U, of the eNodeB
	SGW        Endpoint // S1-U, of the S-GW
	S5SGW      Endpoint // S5/S8-U, of the S-GW
	S5PGW      Endpoint // S5/S8-U, of the P-GW
}

// MaxBearers is how many bearers a UE can have: the identities 5 to 15.
const MaxBearers = 11

// absent marks an endpoint that a message never has.
const absent = 0xff

// instances returns the instances of the F-TEIDs in the bearer contexts of a
// message: of the eNodeB, of the S-GW on S1-U, of the S-GW on S5/S8-U, and of the
// P-GW (tables 7.2.1-2, 7.2.2-2, 7.2.3-2, 7.2.4-2, 7.2.7-2 and 7.2.8-2).
func (t Type) instances() [4]uint8 {
	switch t {
	case CreateSessionRequest:
		return [4]uint8{0, absent, 2, 3}
	case CreateSessionResponse:
		return [4]uint8{absent, 0, absent, 2}
	case ModifyBearerRequest:
		return [4]uint8{0, absent, 1, absent}
	case ModifyBearerResponse:
		return [4]uint8{absent, 0, absent, absent}
	case CreateBearerRequest:
		return [4]uint8{absent, 0, absent, 1}
	case CreateBearerResponse:
		return [4]uint8{0, 1, 2, 3}
	}
	return [4]uint8{absent, absent, absent, absent}
}

// endpoints returns the endpoints in the order of instances.
func (c *Bearer) endpoints() [4]*Endpoint { return [4]*Endpoint{&c.ENB, &c.SGW, &c.S5SGW, &c.S5PGW} }

// interfaces holds the interface types in the same order.
var interfaces = [4]Interface{S1UeNodeB, S1USGW, S5USGW, S5UPGW}

// given reports whether the endpoint has an address.
func (f Endpoint) given() bool { return f.V4.IsValid() || f.V6.IsValid() }

// parse parses the value of a bearer context of a message of the type.
func (c *Bearer) parse(t Type, v []byte) error {
	*c = Bearer{}
	r := newReader(Group(v))
	instances := t.instances()
	for r.next() {
		if r.Instance != 0 && r.Type != FTEID {
			continue // not an element of any message read here (clause 7.7.9)
		}
		switch r.Type {
		case EBI:
			c.EBI = r.octet() & 0x0f
		case Cause:
			c.Result = r.result()
		case BearerTFT:
			c.TFT = r.octets(maxTFT)
		case BearerQoS:
			c.QoS = r.qos()
		case ChargingID:
			c.ChargingID = r.four()
		case FTEID:
			for i, instance := range instances {
				if instance == r.Instance {
					*c.endpoints()[i] = r.endpoint(interfaces[i])
				}
			}
		}
	}
	r.require(EBI)
	return r.err
}

// AppendBearer appends a bearer context of a message of the type. It leaves out
// endpoints that messages of the type never have.
func AppendBearer(b []byte, t Type, instance uint8, c *Bearer) []byte {
	start := len(b)
	b = AppendElement(BeginGroup(b, BearerContext, instance), EBI, 0, c.EBI&0x0f)
	if c.Result.Cause != 0 {
		b = AppendResult(b, c.Result)
	}
	if c.TFT != nil {
		b = AppendElement(b, BearerTFT, 0, c.TFT...)
	}
	instances := t.instances()
	for i, f := range c.endpoints() {
		if instances[i] != absent && f.given() {
			own := *f
			own.Interface = interfaces[i]
			b = AppendFTEID(b, instances[i], own)
		}
	}
	if c.QoS.QCI != 0 {
		b = AppendQoS(b, c.QoS)
	}
	if c.ChargingID != 0 {
		b = append(b, byte(ChargingID), 0, 4, 0)
		b = binary.BigEndian.AppendUint32(b, c.ChargingID)
	}
	return EndGroup(b, start)
}
