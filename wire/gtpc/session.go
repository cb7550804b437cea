package gtpc

import (
	"errors"

	"vitrine/wire/identity"
)

// RATEUTRAN is the radio access technology of an eNodeB (clause 8.17).
const RATEUTRAN uint8 = 6

// A CreateSession is a Create Session Request on S11 or S5/S8 (clause 7.2.1).
// Bearers have EBI, QoS, TFT, ENB, S5SGW and S5PGW.
type CreateSession struct {
	IMSI        identity.Digits
	MSISDN      identity.Digits
	MEI         identity.Digits
	Location    Location
	Serving     identity.PLMN // zero: not given
	RAT         uint8
	Flags       Flags
	Sender      Endpoint // for the control plane
	PGW         Endpoint // for the control plane of S5/S8; only on S11
	APN         []byte   // labels, as nas.AppendAPN appends them
	Selection   uint8    // clause 8.58
	PDN         uint8    // PDNv4, PDNv6 or PDNv4v6
	Address     Address
	AMBR        Rates
	Restriction uint8  // clause 8.57
	PCO         []byte // protocol configuration options
	Bearers     []Bearer
	Recovery    Restart
}

// Parse parses the elements of a message. It reuses Bearers. The other slices are
// views. The error is a Result.
func (m *CreateSession) Parse(from *Message) error {
	*m = CreateSession{Bearers: m.Bearers[:0]}
	r := newReader(from.Elements())
	for r.next() {
		if r.Instance != 0 {
			if r.second(FTEID) {
				m.PGW = r.endpoint(S5PGW)
			}
			continue
		}
		switch r.Type {
		case Recovery:
			m.Recovery = r.restart()
		case Indication:
			m.Flags = get(&r, ParseFlags)
		case PCO:
			m.PCO = r.octets(maxPCO)
		case BearerContext:
			m.Bearers = r.bearers(CreateSessionRequest, m.Bearers)
		default:
			m.subscriber(&r)
		}
	}
	for _, t := range [...]Element{RATType, FTEID, APN, BearerContext} {
		r.require(t)
	}
	return r.err
}

// subscriber reads an element about the subscriber and the connection.
func (m *CreateSession) subscriber(r *reader) {
	switch r.Type {
	case IMSI:
		m.IMSI = r.digits()
	case MSISDN:
		m.MSISDN = r.digits()
	case MEI:
		m.MEI = r.digits()
	case ULI:
		m.Location = get(r, ParseLocation)
	case ServingNetwork:
		m.Serving = r.plmn()
	case RATType:
		m.RAT = r.octet()
	case FTEID:
		m.Sender = r.endpoint()
	case APN:
		m.APN = r.octets(maxAPN)
	case SelectionMode:
		m.Selection = r.octet() & 0x03
	case PDNType:
		m.PDN = r.octet() & 0x07
	case PAA:
		m.Address = get(r, ParseAddress)
	case AMBR:
		m.AMBR = get(r, ParseRates)
	case APNRestriction:
		m.Restriction = r.octet()
	}
}

// Append appends the message.
func (m *CreateSession) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = AppendHeader(b, CreateSessionRequest, teid, sequence)
	b = appendDigits(b, IMSI, m.IMSI)
	b = appendDigits(b, MSISDN, m.MSISDN)
	b = appendDigits(b, MEI, m.MEI)
	b = appendPlace(b, m.Location, m.Serving)
	b = AppendElement(b, RATType, 0, m.RAT)
	if m.Flags != 0 {
		b = AppendFlags(b, m.Flags)
	}
	b = AppendFTEID(b, 0, m.Sender)
	if m.PGW.given() {
		b = AppendFTEID(b, 1, m.PGW)
	}
	b = AppendElement(b, APN, 0, m.APN...)
	b = AppendElement(b, SelectionMode, 0, m.Selection)
	if m.PDN != 0 {
		b = AppendElement(b, PDNType, 0, m.PDN)
	}
	b = appendAddress(b, m.Address)
	b = AppendElement(b, APNRestriction, 0, m.Restriction)
	b = appendRates(b, m.AMBR)
	b = appendPCO(b, m.PCO)
	b = appendBearers(b, CreateSessionRequest, m.Bearers)
	return End(appendRestart(b, m.Recovery), start)
}

// A CreateSessionAnswer is a Create Session Response (clause 7.2.2). Bearers have
// EBI, Result, SGW, S5PGW, QoS and ChargingID. To refuse a request, use Answer.
type CreateSessionAnswer struct {
	Result      Result
	Sender      Endpoint // of the S-GW, only on S11
	PGW         Endpoint // of the P-GW, on S5/S8
	Address     Address
	Restriction uint8
	AMBR        Rates
	PCO         []byte
	Bearers     []Bearer
	Recovery    Restart
}

// Parse parses the elements of a message. It reuses Bearers. PCO is a view. The
// error is a Result.
func (m *CreateSessionAnswer) Parse(from *Message) error {
	*m = CreateSessionAnswer{Bearers: m.Bearers[:0]}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.second(FTEID):
			m.PGW = r.endpoint(S5PGW)
		case r.Instance != 0:
		case r.Type == Cause:
			m.Result = r.result()
		case r.Type == FTEID:
			m.Sender = r.endpoint(S11SGW)
		case r.Type == PAA:
			m.Address = get(&r, ParseAddress)
		case r.Type == APNRestriction:
			m.Restriction = r.octet()
		case r.Type == AMBR:
			m.AMBR = get(&r, ParseRates)
		case r.Type == PCO:
			m.PCO = r.octets(maxPCO)
		case r.Type == BearerContext:
			m.Bearers = r.bearers(CreateSessionResponse, m.Bearers)
		case r.Type == Recovery:
			m.Recovery = r.restart()
		}
	}
	r.require(Cause)
	return r.err
}

// Append appends the message.
func (m *CreateSessionAnswer) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = AppendResult(AppendHeader(b, CreateSessionResponse, teid, sequence), m.Result)
	if m.Sender.given() {
		b = AppendFTEID(b, 0, m.Sender)
	}
	if m.PGW.given() {
		b = AppendFTEID(b, 1, m.PGW)
	}
	b = appendAddress(b, m.Address)
	b = AppendElement(b, APNRestriction, 0, m.Restriction)
	b = appendRates(b, m.AMBR)
	b = appendPCO(b, m.PCO)
	b = appendBearers(b, CreateSessionResponse, m.Bearers)
	return End(appendRestart(b, m.Recovery), start)
}

// A DeleteSession is a Delete Session Request (clause 7.2.9.1).
type DeleteSession struct {
	Linked   uint8 // identity of the default bearer; 0: not given
	Location Location
	Flags    Flags    // Operation, on S11: the P-GW is asked too
	Sender   Endpoint // for the control plane
	PCO      []byte
}

// Parse parses the elements of a message. PCO is a view. The error is a Result.
func (m *DeleteSession) Parse(from *Message) error {
	*m = DeleteSession{}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.Instance != 0:
		case r.Type == EBI:
			m.Linked = r.octet() & 0x0f
		case r.Type == ULI:
			m.Location = get(&r, ParseLocation)
		case r.Type == Indication:
			m.Flags = get(&r, ParseFlags)
		case r.Type == FTEID:
			m.Sender = r.endpoint()
		case r.Type == PCO:
			m.PCO = r.octets(maxPCO)
		}
	}
	return r.err
}

// Append appends the message.
func (m *DeleteSession) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = appendIdentity(AppendHeader(b, DeleteSessionRequest, teid, sequence), 0, m.Linked)
	b = appendPlace(b, m.Location, identity.PLMN{})
	if m.Flags != 0 {
		b = AppendFlags(b, m.Flags)
	}
	if m.Sender.given() {
		b = AppendFTEID(b, 0, m.Sender)
	}
	return End(appendPCO(b, m.PCO), start)
}

// An Answer is a response with a cause, and with little else. It is a Modify
// Bearer, Delete Session, Release Access Bearers, Create Bearer or Delete Bearer
// Response, or a Downlink Data Notification Acknowledge (clauses 7.2.8, 7.2.10,
// 7.2.22, 7.2.4, 7.2.10.2, 7.2.11.2). It also refuses any request.
//
// Bearers have EBI and Result. Bearers of a Modify Bearer Response also have
// SGW and ChargingID. Bearers of a Create Bearer Response also have ENB, SGW,
// S5SGW and S5PGW.
type Answer struct {
	Type     Type
	Result   Result
	Linked   uint8 // identity of the default bearer; 0: not given
	Bearers  []Bearer
	Recovery Restart
}

// Refuse returns the answer that refuses a request of the type. err is the
// error of a Parse method, or another Result. Other errors mean that the
// function failed (table 8.4-1: System failure).
func Refuse(request Type, err error) *Answer {
	a := &Answer{Result: Result{Cause: SystemFailure}}
	a.Type, _ = request.Response()
	_ = errors.As(err, &a.Result) // otherwise it stays a system failure
	return a
}

// Parse parses the elements of a message. It reuses Bearers. The error is a
// Result.
func (m *Answer) Parse(from *Message) error {
	*m = Answer{Type: from.Type, Bearers: m.Bearers[:0]}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.Instance != 0:
		case r.Type == Cause:
			m.Result = r.result()
		case r.Type == EBI:
			m.Linked = r.octet() & 0x0f
		case r.Type == BearerContext:
			m.Bearers = r.bearers(from.Type, m.Bearers)
		case r.Type == Recovery:
			m.Recovery = r.restart()
		}
	}
	r.require(Cause)
	return r.err
}

// Append appends the message.
func (m *Answer) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = AppendResult(AppendHeader(b, m.Type, teid, sequence), m.Result)
	b = appendIdentity(b, 0, m.Linked)
	b = appendBearers(b, m.Type, m.Bearers)
	return End(appendRestart(b, m.Recovery), start)
}

// appendDigits appends digits, if there are any.
func appendDigits(b []byte, t Element, d identity.Digits) []byte {
	if d.Len() == 0 {
		return b
	}
	return AppendDigits(b, t, d.Bytes())
}

// appendPlace appends location and serving network, if they are given.
func appendPlace(b []byte, l Location, serving identity.PLMN) []byte {
	if l.HasTAI || l.HasECGI {
		b = AppendLocation(b, l)
	}
	if serving != (identity.PLMN{}) {
		b = AppendElement(b, ServingNetwork, 0, serving[:]...)
	}
	return b
}

// appendAddress appends an address, if it is given.
func appendAddress(b []byte, a Address) []byte {
	if a.Type == 0 {
		return b
	}
	return AppendAddress(b, a)
}

// appendRates appends an AMBR, if it is given.
func appendRates(b []byte, r Rates) []byte {
	if r == (Rates{}) {
		return b
	}
	return AppendRates(b, r)
}

// appendPCO appends protocol configuration options, unless they are nil.
func appendPCO(b, v []byte) []byte {
	if v == nil {
		return b
	}
	return AppendElement(b, PCO, 0, v...)
}

// appendIdentity appends an EPS bearer identity, if it is given.
func appendIdentity(b []byte, instance, ebi uint8) []byte {
	if ebi == 0 {
		return b
	}
	return AppendElement(b, EBI, instance, ebi&0x0f)
}

// appendBearers appends the bearer contexts of a message.
func appendBearers(b []byte, t Type, bearers []Bearer) []byte {
	for i := range bearers {
		b = AppendBearer(b, t, 0, &bearers[i])
	}
	return b
}

// appendRestart appends a restart counter, if it is given.
func appendRestart(b []byte, r Restart) []byte {
	if !r.Given {
		return b
	}
	return AppendRecovery(b, r.Counter)
}
