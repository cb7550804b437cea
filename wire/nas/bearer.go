package nas

// A DefaultBearerRequest is an Activate Default EPS Bearer Context Request
// (clause 8.3.6).
type DefaultBearerRequest struct {
	Header
	QoS     []byte   // EPS quality of service: ParseQoS
	APN     []byte   // labels: AppendAPN
	Address []byte   // PDN address: ParseAddress
	AMBR    []byte   // APN-AMBR: ParseAMBR
	Cause   ESMCause // 0 for none
	PCO     []byte
}

// Parse parses the body of a PDU, or an ESM message container.
func (m *DefaultBearerRequest) Parse(body []byte) error {
	r, h := openESM(body, DefaultBearerRequestType)
	*m = DefaultBearerRequest{Header: h}
	m.QoS = r.lv(1, 13)
	m.APN = r.lv(1, 100)
	m.Address = r.lv(5, 13)
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x5e:
			m.AMBR = v
		case 0x58:
			m.Cause = ESMCause(v[0])
		case 0x27:
			m.PCO = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *DefaultBearerRequest) Append(b []byte) []byte {
	b = appendLV(appendESM(b, m.Header, DefaultBearerRequestType), m.QoS)
	b = appendLV(appendLV(b, m.APN), m.Address)
	b = appendTLV(b, 0x5e, m.AMBR)
	if m.Cause != 0 {
		b = append(b, 0x58, byte(m.Cause))
	}
	return appendTLV(b, 0x27, m.PCO)
}

// A DedicatedBearerRequest is an Activate Dedicated EPS Bearer Context Request
// (clause 8.3.3).
type DedicatedBearerRequest struct {
	Header
	Linked uint8  // identity of the default bearer
	QoS    []byte // EPS quality of service: ParseQoS
	TFT    []byte // traffic flow template (TS 24.008 clause 10.5.6.12)
	PCO    []byte
}

// Parse parses the body of a PDU.
func (m *DedicatedBearerRequest) Parse(body []byte) error {
	r, h := openESM(body, DedicatedBearerRequestType)
	*m = DedicatedBearerRequest{Header: h, Linked: r.octet() & 0x0f}
	m.QoS = r.lv(1, 13)
	m.TFT = r.lv(1, 255)
	m.PCO = r.options()
	return r.err
}

// Append appends the message.
func (m *DedicatedBearerRequest) Append(b []byte) []byte {
	b = append(appendESM(b, m.Header, DedicatedBearerRequestType), m.Linked&0x0f)
	return appendTLV(appendLV(appendLV(b, m.QoS), m.TFT), 0x27, m.PCO)
}

// A BearerAccept accepts a request about a bearer: the types that end in Accept
// (clauses 8.3.1, 8.3.4, 8.3.11, 8.3.16). Its Header has the type.
type BearerAccept struct {
	Header
	PCO []byte
}

// Parse parses the body of a PDU, or an ESM message container.
func (m *BearerAccept) Parse(body []byte) error {
	r, h := openESM(body, DefaultBearerAcceptType, DedicatedBearerAcceptType, ModifyBearerAcceptType, DeactivateAcceptType)
	*m = BearerAccept{Header: h, PCO: r.options()}
	return r.err
}

// Append appends the message.
func (m *BearerAccept) Append(b []byte) []byte {
	return appendTLV(appendESM(b, m.Header, m.Type), 0x27, m.PCO)
}

// A Release is an ESM message with a cause: the types that end in Reject, which
// refuse a request, Deactivate EPS Bearer Context Request, and ESM Status (clauses
// 8.3.2, 8.3.5, 8.3.7, 8.3.9, 8.3.12, 8.3.15, 8.3.17, 8.3.19, 8.3.21). Its Header has
// the type.
type Release struct {
	Header
	Cause ESMCause
	PCO   []byte
}

// Parse parses the body of a PDU, or an ESM message container.
func (m *Release) Parse(body []byte) error {
	r, h := openESM(body, DefaultBearerRejectType, DedicatedBearerRejectType, ModifyBearerRejectType,
		ConnectivityRejectType, DisconnectRejectType, AllocationRejectType, ModificationRejectType, DeactivateRequestType, ESMStatusType)
	*m = Release{Header: h, Cause: ESMCause(r.octet())}
	m.PCO = r.options()
	return r.err
}

// Append appends the message.
func (m *Release) Append(b []byte) []byte {
	return appendTLV(append(appendESM(b, m.Header, m.Type), byte(m.Cause)), 0x27, m.PCO)
}

// A ResourceRequest is a Bearer Resource Allocation Request or a Bearer Resource
// Modification Request (clauses 8.3.8 and 8.3.10). Its Header has the type.
type ResourceRequest struct {
	Header
	Bearer    uint8    // identity of the default bearer, or of the bearer to modify
	Aggregate []byte   // traffic flow aggregate: ParseTFT
	QoS       []byte   // of the flow: ParseQoS; nil for none, in a modification
	Cause     ESMCause // 0 for none; in a modification
	PCO       []byte
}

// Parse parses the body of a PDU.
func (m *ResourceRequest) Parse(body []byte) error {
	r, h := openESM(body, AllocationRequestType, ModificationRequestType)
	*m = ResourceRequest{Header: h, Bearer: r.octet() & 0x0f}
	m.Aggregate = r.lv(1, 255)
	if h.Type == AllocationRequestType {
		m.QoS = r.lv(1, 13)
		m.PCO = r.options()
		return r.err
	}
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x5b:
			m.QoS = v
		case 0x58:
			m.Cause = ESMCause(v[0])
		case 0x27:
			m.PCO = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *ResourceRequest) Append(b []byte) []byte {
	b = appendLV(append(appendESM(b, m.Header, m.Type), m.Bearer&0x0f), m.Aggregate)
	if m.Type == AllocationRequestType {
		return appendTLV(appendLV(b, m.QoS), 0x27, m.PCO)
	}
	b = appendTLV(b, 0x5b, m.QoS)
	if m.Cause != 0 {
		b = append(b, 0x58, byte(m.Cause))
	}
	return appendTLV(b, 0x27, m.PCO)
}
