package nas

// An AuthenticationRequest is a challenge to a UE (clause 8.2.7).
type AuthenticationRequest struct {
	KSI  uint8  // identifier of the key set that the exchange creates
	RAND []byte // 16 octets
	AUTN []byte // 16 octets (TS 33.102 clause 6.3.2)
}

// Parse parses the body of a PDU.
func (m *AuthenticationRequest) Parse(body []byte) error {
	r, _ := openEMM(body, AuthenticationRequestType)
	*m = AuthenticationRequest{KSI: r.octet() & 0x0f}
	m.RAND = r.take(16)
	m.AUTN = r.lv(16, 16)
	return r.err
}

// Append appends the message.
func (m *AuthenticationRequest) Append(b []byte) []byte {
	b = append(appendEMM(b, AuthenticationRequestType), m.KSI&0x0f)
	return appendLV(append(b, m.RAND...), m.AUTN)
}

// An AuthenticationResponse answers a challenge (clause 8.2.8).
type AuthenticationResponse struct {
	RES []byte // 4 to 16 octets
}

// Parse parses the body of a PDU.
func (m *AuthenticationResponse) Parse(body []byte) error {
	r, _ := openEMM(body, AuthenticationResponseType)
	*m = AuthenticationResponse{RES: r.lv(4, 16)}
	return r.err
}

// Append appends the message.
func (m *AuthenticationResponse) Append(b []byte) []byte {
	return appendLV(appendEMM(b, AuthenticationResponseType), m.RES)
}

// A Failure is an error message: an Authentication Failure, a Security Mode
// Reject or an EMM Status (clauses 8.2.5, 8.2.22, 8.2.14).
type Failure struct {
	Type  Type // AuthenticationFailureType, SecurityModeRejectType or EMMStatusType
	Cause Cause
	AUTS  []byte // 14 octets; Authentication Failure with CauseSynch only
}

// Parse parses the body of a PDU.
func (m *Failure) Parse(body []byte) error {
	r, t := openEMM(body, AuthenticationFailureType, SecurityModeRejectType, EMMStatusType)
	*m = Failure{Type: t, Cause: Cause(r.octet())}
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		if iei != 0x30 {
			r.skip(iei)
		} else if len(v) == 14 {
			m.AUTS = v
		}
	}
	return r.err
}

// Append appends the message.
func (m *Failure) Append(b []byte) []byte {
	return appendTLV(append(appendEMM(b, m.Type), byte(m.Cause)), 0x30, m.AUTS)
}

// An IdentityRequest asks for an identity (clause 8.2.18).
type IdentityRequest struct {
	Kind Kind // KindIMSI, KindIMEI or KindIMEISV
}

// Parse parses the body of a PDU.
func (m *IdentityRequest) Parse(body []byte) error {
	r, _ := openEMM(body, IdentityRequestType)
	*m = IdentityRequest{Kind: Kind(r.octet() & 0x07)}
	return r.err
}

// Append appends the message.
func (m *IdentityRequest) Append(b []byte) []byte {
	return append(appendEMM(b, IdentityRequestType), byte(m.Kind))
}

// An IdentityResponse gives an identity (clause 8.2.19).
type IdentityResponse struct {
	Identity Identity
}

// Parse parses the body of a PDU.
func (m *IdentityResponse) Parse(body []byte) error {
	r, _ := openEMM(body, IdentityResponseType)
	*m = IdentityResponse{Identity: r.identity()}
	return r.err
}

// Append appends the message.
func (m *IdentityResponse) Append(b []byte) []byte {
	return m.Identity.appendLV(appendEMM(b, IdentityResponseType))
}

// A SecurityModeCommand takes a security context into use (clause 8.2.20).
type SecurityModeCommand struct {
	Cipher     uint8  // EEA: 0 null, 1 SNOW 3G, 2 AES (clause 9.9.3.23)
	Integrity  uint8  // EIA: as Cipher
	KSI        uint8  // key set identifier
	Capability []byte // replayed UE security capability: 2 to 5 octets (clause 9.9.3.36)
	IMEISV     bool   // the IMEISV is wanted
}

// Parse parses the body of a PDU.
func (m *SecurityModeCommand) Parse(body []byte) error {
	r, _ := openEMM(body, SecurityModeCommandType)
	algorithms := r.octet()
	*m = SecurityModeCommand{Cipher: algorithms >> 4 & 0x07, Integrity: algorithms & 0x07, KSI: r.octet() & 0x0f}
	m.Capability = r.lv(2, 5)
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		if iei == 0xc0 {
			m.IMEISV = v[0]&0x07 == 1
			continue
		}
		r.skip(iei)
	}
	return r.err
}

// Append appends the message.
func (m *SecurityModeCommand) Append(b []byte) []byte {
	b = append(appendEMM(b, SecurityModeCommandType), m.Cipher<<4|m.Integrity, m.KSI&0x0f)
	b = appendLV(b, m.Capability)
	if m.IMEISV {
		b = append(b, 0xc1)
	}
	return b
}

// A SecurityModeComplete is the UE's answer to a SecurityModeCommand (clause
// 8.2.21).
type SecurityModeComplete struct {
	HasIMEISV bool
	IMEISV    Identity
}

// Parse parses the body of a PDU.
func (m *SecurityModeComplete) Parse(body []byte) error {
	*m = SecurityModeComplete{}
	r, _ := openEMM(body, SecurityModeCompleteType)
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		if iei == 0x23 {
			m.IMEISV, m.HasIMEISV = ParseIdentity(v)
			continue
		}
		r.skip(iei)
	}
	return r.err
}

// Append appends the message.
func (m *SecurityModeComplete) Append(b []byte) []byte {
	b = appendEMM(b, SecurityModeCompleteType)
	if m.HasIMEISV {
		b = m.IMEISV.appendLV(append(b, 0x23))
	}
	return b
}
