// Package ue is the UE's side of NAS (3GPP TS 24.301). It attaches, answers challenges,
// protects its messages, and requests service, updates and detaches. It has no timers
// and no transport: the caller carries the messages. Its only state is its subscriber's.
// The S1AP generator and the tests of the MME use it.
package ue

import (
	"errors"
	"net/netip"

	"vitrine/reference/epc/aka"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
)

// An Event is the meaning of a network message to the UE.
type Event uint8

// The events.
const (
	None        Event = iota // nothing that ends or advances a procedure
	Asked                    // the network asks for something, and the reply answers
	Accepted                 // the UE has attached
	Updated                  // the tracking area update is accepted
	Rejected                 // the network refuses; Cause says why
	Forbidden                // Authentication Reject: the keys are wrong
	Detached                 // Detach Accept
	Dismissed                // the network detaches the UE
	Untrusted                // the network failed its authentication
	Activated                // a dedicated bearer is activated: Dedicated
	Deactivated              // a dedicated bearer is deactivated: Dedicated
	Refused                  // bearer resources are refused: ESM says why
)

// ErrIntegrity is the error for a network message whose message authentication code is
// wrong or missing.
var ErrIntegrity = errors.New("ue: the network's message is not protected as required")

// A UE is the equipment of one subscriber. Only one goroutine may use it at a time.
type UE struct {
	IMSI   identity.Digits
	Secret aka.Secret
	Home   identity.PLMN

	// Values from the network.
	HasGUTI bool
	GUTI    identity.GUTI
	Address netip.Addr
	Bearer  uint8
	// Dedicated is the identity of the last dedicated bearer that the network activated
	// or deactivated; 0: none.
	Dedicated uint8
	Cause     nas.Cause    // of the last rejection
	ESM       nas.ESMCause // of the last rejection; 0: none
	BackOff   nas.Timer    // of the last rejection; 0: none

	protection *aka.Protection // nil: no keys
	kasme      [32]byte        // of the last challenge
	ksi        uint8
	up, down   uint32 // next NAS COUNT of each direction
	secured    bool   // secure exchange is established on this connection
	sqn        uint64 // highest sequence number of all challenges
	body       []byte
	esm        []byte
}

// noKey is the key set identifier that means "no key is available" (TS 24.301 clause
// 9.9.3.21).
const noKey = 7

// transaction is the procedure transaction identity of the only PDN connection.
const transaction = 1

// resources is the procedure transaction identity of a request for bearer resources.
const resources = 2

// bidirectional is the direction of a packet filter (TS 24.008 table 10.5.162).
const bidirectional = 3

// New returns the UE of a subscriber of the reference EPC.
func New(imsi identity.Digits, home identity.PLMN) UE {
	return UE{IMSI: imsi, Secret: aka.SecretOf(imsi.String()), Home: home, ksi: noKey}
}

// HasKeys reports whether the UE shares keys with a network.
func (u *UE) HasKeys() bool { return u.protection != nil }

// Forget removes the GUTI and the keys, as if the UE had lost them at power-off.
func (u *UE) Forget() { u.HasGUTI, u.protection, u.ksi = false, nil, noKey }

// Connect begins a connection. Messages are not ciphered until the network has
// established the secure exchange.
func (u *UE) Connect() { u.secured = false }

// The capability is EEA0, 128-EEA2 and 128-EIA2.
const (
	capabilityEEA = 0xa0
	capabilityEIA = 0x20
)

// AppendAttach appends an Attach Request. It names the GUTI, or the IMSI if the UE has
// no GUTI, and is protected if the UE has keys.
func (u *UE) AppendAttach(b []byte) []byte {
	u.Connect()
	request := nas.ConnectivityRequest{Header: nas.Bearer(0, transaction), Request: 1, PDN: nas.PDNv4}
	u.esm = request.Append(u.esm[:0])
	m := nas.AttachRequest{Attach: 1, KSI: u.ksi, Identity: u.identity(), Capability: capabilities(), ESM: u.esm}
	u.body = m.Append(u.body[:0])
	return u.AppendMessage(b, u.body)
}

// capabilities returns the UE network capability.
func capabilities() []byte { return []byte{capabilityEEA, capabilityEIA} }

// AppendUpdate appends a Tracking Area Update Request. active requests bearers.
func (u *UE) AppendUpdate(b []byte, active bool) []byte {
	m := nas.UpdateRequest{Active: active, KSI: u.ksi, GUTI: u.identity()}
	u.body = m.Append(u.body[:0])
	return u.AppendMessage(b, u.body)
}

// AppendDetach appends a Detach Request. With switchOff, the network does not answer.
func (u *UE) AppendDetach(b []byte, switchOff bool) []byte {
	m := nas.DetachRequest{Detach: 1, SwitchOff: switchOff, KSI: u.ksi, Identity: u.identity()}
	u.body = m.Append(u.body[:0])
	return u.AppendMessage(b, u.body)
}

// AppendMessage appends a message with the header that it needs. Without keys it is plain.
// With keys it is protected, and ciphered only on a secured connection (TS 24.301 clause
// 4.4.5).
func (u *UE) AppendMessage(b, body []byte) []byte {
	switch {
	case u.protection == nil:
		return append(b, body...)
	case u.secured:
		return u.protect(b, nas.Ciphered, body)
	}
	return u.protect(b, nas.Protected, body)
}

// AppendAllocation appends a Bearer Resource Allocation Request for packets of an IP
// protocol to and from a port of an IPv4 address (TS 24.301 clause 6.5.3.2).
func (u *UE) AppendAllocation(b []byte, q nas.QoS, protocol uint8, remote [4]byte, port uint16) []byte {
	var aggregate, components, qos [32]byte
	flow := nas.Filter{Direction: bidirectional, Components: nas.AppendFlow(components[:0], protocol, remote, port)}
	m := nas.ResourceRequest{
		Header: nas.Bearer(0, resources), Bearer: u.Bearer, QoS: q.Append(qos[:0]),
		Aggregate: nas.AppendTFT(aggregate[:0], nas.CreateTFT, flow),
	}
	m.Type = nas.AllocationRequestType
	u.body = m.Append(u.body[:0])
	return u.protect(b, nas.Ciphered, u.body)
}

// AppendRelease appends a Bearer Resource Modification Request that releases a dedicated
// bearer, which has one packet filter (TS 24.301 clause 6.5.4.2).
func (u *UE) AppendRelease(b []byte, bearer uint8) []byte {
	var aggregate [2]byte
	m := nas.ResourceRequest{
		Header: nas.Bearer(0, resources), Bearer: bearer, Cause: nas.ESMCauseRegular,
		Aggregate: nas.AppendTFT(aggregate[:0], nas.DeleteFilters, nas.Filter{}),
	}
	m.Type = nas.ModificationRequestType
	u.body = m.Append(u.body[:0])
	return u.protect(b, nas.Ciphered, u.body)
}

// AppendService appends a Service Request (TS 24.301 clause 8.2.25). The UE must
// have keys.
func (u *UE) AppendService(b []byte) []byte {
	u.Connect()
	start := len(b)
	b = nas.AppendServiceRequest(b, u.ksi, uint8(u.up))
	mac, err := u.protection.MAC(u.up, aka.Uplink, b[start:start+2])
	if err != nil { // never happens, because the key has the right size
		return b[:start]
	}
	nas.SetShortMAC(b, start, mac)
	u.up++
	return b
}

// protect appends a message with a security header.
func (u *UE) protect(b []byte, s nas.Security, body []byte) []byte {
	start := len(b)
	b = append(nas.AppendFrame(b, s, uint8(u.up)), body...)
	if s.IsCiphered() {
		u.protection.Cipher(u.up, aka.Uplink, nas.FrameBody(b, start))
	}
	mac, err := u.protection.MAC(u.up, aka.Uplink, nas.FrameCovered(b, start))
	if err != nil { // never happens, because the key has the right size
		return b[:start]
	}
	nas.SetMAC(b, start, mac)
	u.up++
	return b
}

// Serve tells the UE that the network has set up the connection's bearers, and so uses
// the UE's keys (TS 24.301 clause 5.6.1.4).
func (u *UE) Serve() { u.secured = true }

// Receive handles a network message and appends the reply, if any, to b. It deciphers
// the message in place.
func (u *UE) Receive(b, message []byte) (reply []byte, e Event, err error) {
	var p nas.PDU
	if err := p.Parse(message); err != nil {
		return b, None, err
	}
	if p.Security == nas.ProtectedNewContext {
		return u.secure(b, &p)
	}
	if p.Security != nas.Plain && !u.open(&p) {
		return b, None, ErrIntegrity
	}
	h, err := nas.ParseHeader(p.Body)
	if err != nil {
		return b, None, err
	}
	if p.Security == nas.Plain {
		return u.plain(b, h.Type, p.Body)
	}
	u.secured = true
	return u.protected(b, h.Type, p.Body)
}

// open checks and deciphers a protected message.
func (u *UE) open(p *nas.PDU) bool {
	if u.protection == nil {
		return false
	}
	count := u.down&^0xff | uint32(p.Sequence)
	if count < u.down {
		count += 0x100
	}
	mac, err := u.protection.MAC(count, aka.Downlink, p.Covered())
	if err != nil || mac != p.MAC {
		return false
	}
	u.down = count + 1
	if p.Security.IsCiphered() {
		u.protection.Cipher(count, aka.Downlink, p.Body)
	}
	return true
}

// plain handles a message without protection (TS 24.301 clause 4.4.4.2).
func (u *UE) plain(b []byte, t nas.Type, body []byte) ([]byte, Event, error) {
	switch t {
	case nas.AuthenticationRequestType:
		return u.answer(b, body)
	case nas.IdentityRequestType:
		m, err := u.identify(body)
		if err == nil && m.Identity.Kind != nas.KindIMSI {
			err = ErrIntegrity
		}
		if err != nil {
			return b, None, err
		}
		return m.Append(b), Asked, nil
	case nas.AuthenticationRejectType:
		u.Forget()
		return b, Forbidden, nil
	case nas.AttachRejectType, nas.UpdateRejectType, nas.ServiceRejectType:
		return b, Rejected, u.rejected(body)
	case nas.DetachAcceptType:
		return b, Detached, nil
	}
	return b, None, ErrIntegrity
}

// rejected stores the cause of a rejection. If the network does not know the UE, it also
// removes the GUTI and the keys (TS 24.301 clauses 5.5.3.2.5 and 5.6.1.5).
func (u *UE) rejected(body []byte) error {
	var m nas.Reject
	if err := m.Parse(body); err != nil {
		return err
	}
	u.Cause, u.BackOff, u.ESM = m.Cause, 0, 0
	var session nas.Release
	if m.ESM != nil && session.Parse(m.ESM) == nil {
		u.ESM = session.Cause
	}
	if len(m.T3346) == 1 {
		u.BackOff = nas.Timer(m.T3346[0])
	}
	switch m.Cause {
	case nas.CauseIdentityUnderived, nas.CauseImplicitlyDetached, nas.CauseServicesNotAllowed, nas.CauseIllegalUE:
		u.Forget()
	}
	return nil
}

// answer answers a challenge.
func (u *UE) answer(b, body []byte) ([]byte, Event, error) {
	var m nas.AuthenticationRequest
	if err := m.Parse(body); err != nil {
		return b, None, err
	}
	random := [16]byte(m.RAND)
	a, err := u.Secret.Answer(random, [16]byte(m.AUTN), u.Home)
	switch {
	case errors.Is(err, aka.ErrMAC), errors.Is(err, aka.ErrBit):
		failure := nas.Failure{Type: nas.AuthenticationFailureType, Cause: nas.CauseMAC}
		return failure.Append(b), Untrusted, nil
	case err != nil:
		return b, None, err
	}
	if a.SQN <= u.sqn && (m.KSI != u.ksi || a.KASME != u.kasme) { // an old challenge, and not a repetition of the last one
		auts, err := u.Secret.AUTS(random, u.sqn)
		if err != nil {
			return b, None, err
		}
		failure := nas.Failure{Type: nas.AuthenticationFailureType, Cause: nas.CauseSynch, AUTS: auts[:]}
		return failure.Append(b), Asked, nil
	}
	u.sqn, u.kasme, u.ksi = a.SQN, a.KASME, m.KSI
	response := nas.AuthenticationResponse{RES: a.RES[:]}
	return response.Append(b), Asked, nil
}

// secure handles a Security Mode Command (TS 24.301 clause 5.4.3.3).
func (u *UE) secure(b []byte, p *nas.PDU) ([]byte, Event, error) {
	var m nas.SecurityModeCommand
	if err := m.Parse(p.Body); err != nil {
		return b, None, err
	}
	protection, err := aka.NewProtection(u.kasme, aka.Algorithm(m.Cipher), aka.Algorithm(m.Integrity))
	if err != nil { // the UE does not have these algorithms
		return b, None, err
	}
	old, down := u.protection, u.down
	u.protection, u.down = protection, 0
	if !u.open(p) {
		u.protection, u.down = old, down
		return b, None, ErrIntegrity
	}
	if len(m.Capability) < 2 || m.Capability[0] != capabilityEEA || m.Capability[1] != capabilityEIA {
		failure := nas.Failure{Type: nas.SecurityModeRejectType, Cause: nas.CauseCapabilityMismatch}
		return failure.Append(b), Untrusted, nil
	}
	u.up, u.secured = 0, true
	complete := nas.SecurityModeComplete{HasIMEISV: m.IMEISV}
	if m.IMEISV {
		complete.IMEISV = u.equipment(nas.KindIMEISV)
	}
	u.body = complete.Append(u.body[:0])
	return u.protect(b, nas.CipheredNewContext, u.body), Asked, nil
}

// protected handles a message whose integrity was verified.
func (u *UE) protected(b []byte, t nas.Type, body []byte) ([]byte, Event, error) {
	switch t {
	case nas.AttachAcceptType:
		return u.accepted(b, body)
	case nas.UpdateAcceptType:
		return u.updated(b, body)
	case nas.ReallocationCommandType:
		return u.reallocated(b, body)
	case nas.IdentityRequestType:
		m, err := u.identify(body)
		if err != nil {
			return b, None, err
		}
		u.body = m.Append(u.body[:0])
		return u.protect(b, nas.Ciphered, u.body), Asked, nil
	case nas.DetachAcceptType:
		return b, Detached, nil
	case nas.DetachRequestType:
		u.body = (&nas.Empty{Type: nas.DetachAcceptType}).Append(u.body[:0])
		return u.protect(b, nas.Ciphered, u.body), Dismissed, nil
	case nas.ESMInformationRequestType:
		m := nas.ESMInformationResponse{Header: nas.Bearer(0, transaction)}
		u.body = m.Append(u.body[:0])
		return u.protect(b, nas.Ciphered, u.body), Asked, nil
	case nas.AttachRejectType, nas.UpdateRejectType, nas.ServiceRejectType:
		return b, Rejected, u.rejected(body)
	case nas.AuthenticationRequestType:
		return u.answer(b, body)
	}
	return u.session(b, t, body)
}

// session handles a message about a dedicated bearer.
func (u *UE) session(b []byte, t nas.Type, body []byte) ([]byte, Event, error) {
	var accept nas.BearerAccept
	var event Event
	switch t {
	case nas.DedicatedBearerRequestType:
		var m nas.DedicatedBearerRequest
		if err := m.Parse(body); err != nil {
			return b, None, err
		}
		event, accept.Header = Activated, nas.Bearer(m.EBI, 0)
		accept.Type = nas.DedicatedBearerAcceptType
	case nas.DeactivateRequestType:
		var m nas.Release
		if err := m.Parse(body); err != nil {
			return b, None, err
		}
		event, accept.Header = Deactivated, nas.Bearer(m.EBI, 0)
		accept.Type = nas.DeactivateAcceptType
	case nas.AllocationRejectType, nas.ModificationRejectType:
		var m nas.Release
		if err := m.Parse(body); err != nil {
			return b, None, err
		}
		u.ESM = m.Cause
		return b, Refused, nil
	default:
		return b, None, nil
	}
	u.Dedicated = accept.EBI
	u.body = accept.Append(u.body[:0])
	return u.protect(b, nas.Ciphered, u.body), event, nil
}

// accepted handles an Attach Accept and completes the attach.
func (u *UE) accepted(b, body []byte) ([]byte, Event, error) {
	var m nas.AttachAccept
	if err := m.Parse(body); err != nil {
		return b, None, err
	}
	var bearer nas.DefaultBearerRequest
	if err := bearer.Parse(m.ESM); err != nil {
		return b, None, err
	}
	address, ok := nas.ParseAddress(bearer.Address)
	if !ok {
		return b, None, nas.ErrValue
	}
	u.Address, u.Bearer = address.V4, bearer.EBI
	if m.HasGUTI {
		u.GUTI, u.HasGUTI = m.GUTI, true
	}
	accept := nas.BearerAccept{Header: nas.Bearer(bearer.EBI, 0)}
	accept.Type = nas.DefaultBearerAcceptType
	u.esm = accept.Append(u.esm[:0])
	u.body = (&nas.AttachComplete{ESM: u.esm}).Append(u.body[:0])
	return u.protect(b, nas.Ciphered, u.body), Accepted, nil
}
