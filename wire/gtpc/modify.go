package gtpc

import "vitrine/wire/identity"

// A ModifyBearer is a Modify Bearer Request (clause 7.2.7). Bearers have EBI, ENB
// and S5SGW. Its response is an Answer.
type ModifyBearer struct {
	MEI      identity.Digits
	Location Location
	Serving  identity.PLMN // zero: not given
	RAT      uint8         // 0: not given
	Flags    Flags
	Sender   Endpoint // for the control plane, if it changed
	AMBR     Rates
	Bearers  []Bearer // to be modified
	Removed  []Bearer // to be removed
	Recovery Restart
}

// Parse parses the elements of a message. It reuses Bearers and Removed. The error
// is a Result.
func (m *ModifyBearer) Parse(from *Message) error {
	*m = ModifyBearer{Bearers: m.Bearers[:0], Removed: m.Removed[:0]}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.second(BearerContext):
			m.Removed = r.bearers(ModifyBearerRequest, m.Removed)
		case r.Instance != 0:
		case r.Type == MEI:
			m.MEI = r.digits()
		case r.Type == ULI:
			m.Location = get(&r, ParseLocation)
		case r.Type == ServingNetwork:
			m.Serving = r.plmn()
		case r.Type == RATType:
			m.RAT = r.octet()
		case r.Type == Indication:
			m.Flags = get(&r, ParseFlags)
		case r.Type == FTEID:
			m.Sender = r.endpoint()
		case r.Type == AMBR:
			m.AMBR = get(&r, ParseRates)
		case r.Type == BearerContext:
			m.Bearers = r.bearers(ModifyBearerRequest, m.Bearers)
		case r.Type == Recovery:
			m.Recovery = r.restart()
		}
	}
	return r.err
}

// Append appends the message.
func (m *ModifyBearer) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = appendDigits(AppendHeader(b, ModifyBearerRequest, teid, sequence), MEI, m.MEI)
	b = appendPlace(b, m.Location, m.Serving)
	if m.RAT != 0 {
		b = AppendElement(b, RATType, 0, m.RAT)
	}
	if m.Flags != 0 {
		b = AppendFlags(b, m.Flags)
	}
	if m.Sender.given() {
		b = AppendFTEID(b, 0, m.Sender)
	}
	b = appendRates(b, m.AMBR)
	b = appendBearers(b, ModifyBearerRequest, m.Bearers)
	for i := range m.Removed {
		b = AppendBearer(b, ModifyBearerRequest, 1, &m.Removed[i])
	}
	return End(appendRestart(b, m.Recovery), start)
}

// A ReleaseAccessBearers is a Release Access Bearers Request for all bearers of a
// UE (clause 7.2.21). Its response is an Answer.
type ReleaseAccessBearers struct{}

// Parse accepts any elements: none is mandatory. The error is a Result.
func (m *ReleaseAccessBearers) Parse(from *Message) error {
	r := newReader(from.Elements())
	for r.next() {
	}
	return r.err
}

// Append appends the message.
func (m *ReleaseAccessBearers) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	return End(AppendHeader(b, ReleaseAccessBearersRequest, teid, sequence), start)
}

// A CreateBearer is a Create Bearer Request (clause 7.2.3). Bearers have EBI, TFT,
// SGW, S5PGW, QoS and ChargingID. Its response is an Answer.
type CreateBearer struct {
	PTI     uint8 // procedure transaction identity, if the UE asked; 0: not given
	Linked  uint8 // identity of the default bearer
	PCO     []byte
	Bearers []Bearer
}

// pti is the element of a procedure transaction identity (clause 8.35).
const pti Element = 100

// Parse parses the elements of a message. It reuses Bearers. PCO is a view. The
// error is a Result.
func (m *CreateBearer) Parse(from *Message) error {
	*m = CreateBearer{Bearers: m.Bearers[:0]}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.Instance != 0:
		case r.Type == pti:
			m.PTI = r.octet()
		case r.Type == EBI:
			m.Linked = r.octet() & 0x0f
		case r.Type == PCO:
			m.PCO = r.octets(maxPCO)
		case r.Type == BearerContext:
			m.Bearers = r.bearers(CreateBearerRequest, m.Bearers)
		}
	}
	r.require(EBI)
	r.require(BearerContext)
	return r.err
}

// Append appends the message.
func (m *CreateBearer) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = AppendHeader(b, CreateBearerRequest, teid, sequence)
	if m.PTI != 0 {
		b = AppendElement(b, pti, 0, m.PTI)
	}
	b = AppendElement(b, EBI, 0, m.Linked&0x0f)
	b = appendPCO(b, m.PCO)
	return End(appendBearers(b, CreateBearerRequest, m.Bearers), start)
}

// A DeleteBearer is a Delete Bearer Request (clause 7.2.9.2): for a connection by
// the identity of its default bearer, or for some dedicated bearers. Its response
// is an Answer.
type DeleteBearer struct {
	Linked  uint8   // identity of the default bearer; 0: not given
	Bearers []uint8 // identities of dedicated bearers
	PTI     uint8   // if the UE asked; 0: not given
	Result  Result  // why; Cause 0: not given
}

// Parse parses the elements of a message. It reuses Bearers. The error is a
// Result.
func (m *DeleteBearer) Parse(from *Message) error {
	*m = DeleteBearer{Bearers: m.Bearers[:0]}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.second(EBI):
			m.Bearers = r.identities(m.Bearers)
		case r.Instance != 0:
		case r.Type == EBI:
			m.Linked = r.octet() & 0x0f
		case r.Type == pti:
			m.PTI = r.octet()
		case r.Type == Cause:
			m.Result = r.result()
		}
	}
	if m.Linked == 0 && len(m.Bearers) == 0 && r.err == nil {
		r.err = Result{Cause: ConditionalMissing, Offending: EBI}
	}
	return r.err
}

// Append appends the message.
func (m *DeleteBearer) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = appendIdentity(AppendHeader(b, DeleteBearerRequest, teid, sequence), 0, m.Linked)
	for _, ebi := range m.Bearers {
		b = appendIdentity(b, 1, ebi)
	}
	if m.PTI != 0 {
		b = AppendElement(b, pti, 0, m.PTI)
	}
	if m.Result.Cause != 0 {
		b = AppendResult(b, m.Result)
	}
	return End(b, start)
}

// A DownlinkDataNotification asks the MME to page a UE (clause 7.2.11.1). Its
// response is an Answer.
type DownlinkDataNotification struct {
	Result   Result // Cause 0: not given
	EBI      uint8  // 0: not given
	Priority uint8  // priority of the bearer's allocation and retention, as in QoS; 0: not given
	IMSI     identity.Digits
}

// arp is the element of an allocation and retention priority (clause 8.86).
const arp Element = 155

// Parse parses the elements of a message. The error is a Result.
func (m *DownlinkDataNotification) Parse(from *Message) error {
	*m = DownlinkDataNotification{}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.Instance != 0:
		case r.Type == Cause:
			m.Result = r.result()
		case r.Type == EBI:
			m.EBI = r.octet() & 0x0f
		case r.Type == arp:
			m.Priority = r.octet() >> 2 & 0x0f
		case r.Type == IMSI:
			m.IMSI = r.digits()
		}
	}
	return r.err
}

// Append appends the message.
func (m *DownlinkDataNotification) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = AppendHeader(b, DownlinkData, teid, sequence)
	if m.Result.Cause != 0 {
		b = AppendResult(b, m.Result)
	}
	b = appendIdentity(b, 0, m.EBI)
	if m.Priority != 0 {
		b = AppendElement(b, arp, 0, m.Priority&0x0f<<2|qosMayNotPreempt|qosNotPreemptable)
	}
	return End(appendDigits(b, IMSI, m.IMSI), start)
}
