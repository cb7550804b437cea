package nas

// appendESM begins an ESM message.
func appendESM(b []byte, h Header, t Type) []byte {
	return append(b, h.EBI<<4|byte(ESM), h.PTI, byte(t))
}

// Bearer returns the header of an ESM message. Messages set the type themselves.
func Bearer(ebi, pti uint8) Header { return Header{Discriminator: ESM, EBI: ebi, PTI: pti} }

// A ConnectivityRequest is a PDN Connectivity Request (clause 8.3.20).
type ConnectivityRequest struct {
	Header
	Request  uint8  // 1 initial, 2 handover, 4 emergency (TS 24.008 clause 10.5.6.17)
	PDN      uint8  // PDNv4, PDNv6 or PDNv4v6
	Transfer bool   // APN and options follow in an ESM Information Response (clause 9.9.4.5)
	APN      []byte // labels: AppendAPN
	PCO      []byte // protocol configuration options (TS 24.008 clause 10.5.6.3)
}

// Parse parses the body of a PDU, or an ESM message container.
func (m *ConnectivityRequest) Parse(body []byte) error {
	r, h := openESM(body, ConnectivityRequestType)
	first := r.octet()
	*m = ConnectivityRequest{Header: h, Request: first & 0x07, PDN: first >> 4 & 0x07}
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0xd0:
			m.Transfer = v[0]&1 != 0
		case 0x28:
			m.APN = v
		case 0x27:
			m.PCO = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *ConnectivityRequest) Append(b []byte) []byte {
	b = append(appendESM(b, m.Header, ConnectivityRequestType), m.PDN<<4|m.Request)
	if m.Transfer {
		b = append(b, 0xd1)
	}
	return appendTLV(appendTLV(b, 0x28, m.APN), 0x27, m.PCO)
}

// An ESMInformationRequest asks for the APN and the options that a PDN
// Connectivity Request held back (clause 8.3.13).
type ESMInformationRequest struct {
	Header
}

// Parse parses the body of a PDU.
func (m *ESMInformationRequest) Parse(body []byte) error {
	r, h := openESM(body, ESMInformationRequestType)
	*m = ESMInformationRequest{Header: h}
	_ = r.options()
	return r.err
}

// Append appends the message.
func (m *ESMInformationRequest) Append(b []byte) []byte {
	return appendESM(b, m.Header, ESMInformationRequestType)
}

// An ESMInformationResponse answers an ESMInformationRequest (clause 8.3.14).
type ESMInformationResponse struct {
	Header
	APN []byte // labels: AppendAPN
	PCO []byte
}

// Parse parses the body of a PDU.
func (m *ESMInformationResponse) Parse(body []byte) error {
	r, h := openESM(body, ESMInformationResponseType)
	*m = ESMInformationResponse{Header: h}
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x28:
			m.APN = v
		case 0x27:
			m.PCO = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *ESMInformationResponse) Append(b []byte) []byte {
	b = appendESM(b, m.Header, ESMInformationResponseType)
	return appendTLV(appendTLV(b, 0x28, m.APN), 0x27, m.PCO)
}

// options reads to the end of a message and returns its protocol configuration
// options. It skips other optional elements.
func (r *reader) options() (pco []byte) {
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		if iei == 0x27 {
			pco = v
			continue
		}
		r.skip(iei)
	}
	return pco
}
