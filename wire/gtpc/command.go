package gtpc

// A BearerResource is a Bearer Resource Command (clause 7.2.5): a UE asks for
// dedicated bearer resources, or releases them. Its answer is a Create or a Delete
// Bearer Request with the same sequence number, or a BearerFailure.
type BearerResource struct {
	Linked uint8  // identity of the default bearer
	PTI    uint8  // procedure transaction identity
	QoS    QoS    // of the flow, without priority; QCI 0: not given
	TAD    []byte // traffic aggregate description (TS 24.008 clause 10.5.6.12)
	Bearer uint8  // identity of the bearer to change; 0: a new one
	Sender Endpoint
}

// senderInstance is the instance of the sender's F-TEID for the control plane (table
// 7.2.5-1). Instances 0 and 1 are for the user plane: of an SGSN and of an RNC.
const senderInstance = 2

// Parse parses the elements of a message. TAD is a view. The error is a Result.
func (m *BearerResource) Parse(from *Message) error {
	*m = BearerResource{}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.second(EBI):
			m.Bearer = r.octet() & 0x0f
		case r.Type == FTEID && r.Instance == senderInstance:
			m.Sender = r.endpoint()
		case r.Instance != 0:
		case r.Type == EBI:
			m.Linked = r.octet() & 0x0f
		case r.Type == pti:
			m.PTI = r.octet()
		case r.Type == FlowQoS:
			m.QoS = get(&r, ParseFlowQoS)
		case r.Type == TAD:
			m.TAD = r.octets(maxTFT)
		}
	}
	r.require(EBI)
	r.require(pti)
	return r.err
}

// Append appends the message.
func (m *BearerResource) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = AppendElement(AppendHeader(b, BearerResourceCommand, teid, sequence), EBI, 0, m.Linked&0x0f)
	b = AppendElement(b, pti, 0, m.PTI)
	if m.QoS.QCI != 0 {
		b = AppendFlowQoS(b, m.QoS)
	}
	if m.TAD != nil {
		b = AppendElement(b, TAD, 0, m.TAD...)
	}
	b = appendIdentity(b, 1, m.Bearer)
	if m.Sender.given() {
		b = AppendFTEID(b, senderInstance, m.Sender)
	}
	return End(b, start)
}

// A BearerFailure is a Bearer Resource Failure Indication (clause 7.2.6).
type BearerFailure struct {
	Result Result
	Linked uint8 // identity of the default bearer
	PTI    uint8
}

// Parse parses the elements of a message. The error is a Result.
func (m *BearerFailure) Parse(from *Message) error {
	*m = BearerFailure{}
	r := newReader(from.Elements())
	for r.next() {
		switch {
		case r.Instance != 0:
		case r.Type == Cause:
			m.Result = r.result()
		case r.Type == EBI:
			m.Linked = r.octet() & 0x0f
		case r.Type == pti:
			m.PTI = r.octet()
		}
	}
	for _, t := range [...]Element{Cause, EBI, pti} {
		r.require(t)
	}
	return r.err
}

// Append appends the message.
func (m *BearerFailure) Append(b []byte, teid, sequence uint32) []byte {
	start := len(b)
	b = AppendResult(AppendHeader(b, BearerResourceFailure, teid, sequence), m.Result)
	b = AppendElement(b, EBI, 0, m.Linked&0x0f)
	return End(AppendElement(b, pti, 0, m.PTI), start)
}
