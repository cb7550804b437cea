// Package gtpctest generates GTPv2-C messages in bulk, for tests and benchmarks.
package gtpctest

import (
	"encoding/binary"
	"net/netip"

	"vitrine/wire/gtpc"
	"vitrine/wire/nas"
)

// A Mix generates the requests that an MME sends to an S-GW. For each session it
// generates a Create Session Request, a Modify Bearer, a Release Access Bearers,
// a Modify Bearer, a Bearer Resource Command and a Delete Session Request. The
// mean size is about 100 octets. Sequence numbers count up, with the command bit
// in commands. TEIDs and IMSIs change from session to session. Nothing is random:
// the n-th message is the same in every Mix of the same Config.
type Mix struct {
	config   Config
	messages [len(kinds)][]byte
	fields   [len(kinds)]places
	next     uint64
}

// A Config sets the content of a Mix's messages.
type Config struct {
	Sessions uint32     // IMSIs and TEIDs repeat after this many sessions; 0 means 50,000
	Sender   netip.Addr // address of the MME, in its F-TEID
	// TEID returns the TEID that the S-GW gave a session. Nil means the session's
	// number plus one, as for functions that use no prefix.
	TEID func(session uint32) uint32
}

// places holds the offsets of a message's changing fields; 0 if the message lacks
// the field.
type places struct{ teid, sequence, imsi, sender int }

var kinds = [...]gtpc.Type{
	gtpc.CreateSessionRequest, gtpc.ModifyBearerRequest, gtpc.ReleaseAccessBearersRequest,
	gtpc.ModifyBearerRequest, gtpc.BearerResourceCommand, gtpc.DeleteSessionRequest,
}

// Kinds is the number of messages of a Mix per session.
const Kinds = len(kinds)

// NewMix returns a Mix.
func NewMix(config Config) *Mix {
	if config.Sessions == 0 {
		config.Sessions = 50_000
	}
	if !config.Sender.IsValid() {
		config.Sender = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if config.TEID == nil {
		config.TEID = func(session uint32) uint32 { return session + 1 }
	}
	m := &Mix{config: config}
	for i, kind := range kinds {
		m.messages[i], m.fields[i] = build(kind, config.Sender)
	}
	return m
}

// IMSI returns the IMSI of a session.
func IMSI(session uint32) string {
	b := []byte("001010000000000")
	for i := len(b) - 1; session > 0; i-- {
		b[i] = '0' + byte(session%10)
		session /= 10
	}
	return string(b)
}

// Append appends the next message. Sessions run in blocks of 64, so the messages
// of one session are 64 messages apart, as from a real peer.
func (m *Mix) Append(b []byte) []byte {
	n := m.next
	m.next++
	const block = 64
	group, within := n/(block*uint64(Kinds)), n%(block*uint64(Kinds))
	kind := int(within / block)
	session := uint32((group*block + within%block) % uint64(m.config.Sessions))

	start := len(b)
	b = append(b, m.messages[kind]...)
	out, at := b[start:], m.fields[kind]
	sequence := uint32(n) & (gtpc.CommandSequence - 1)
	if kinds[kind].IsCommand() {
		sequence |= gtpc.CommandSequence
	}
	binary.BigEndian.PutUint32(out[at.sequence:], sequence<<8)
	if at.imsi > 0 { // the last nine digits, as TBCD
		for i, rest := at.imsi+7, session; i >= at.imsi+3; i-- {
			if i == at.imsi+7 { // the 15th digit has an octet of its own
				out[i] = 0xf0 | byte(rest%10)
				rest /= 10
				continue
			}
			low := rest / 10 % 10
			out[i] = byte(rest%10)<<4 | byte(low)
			rest /= 100
		}
		binary.BigEndian.PutUint32(out[at.sender:], session+1)
		return b
	}
	binary.BigEndian.PutUint32(out[at.teid:], m.config.TEID(session))
	return b
}

// build returns a message with zeros in its changing fields.
func build(kind gtpc.Type, sender netip.Addr) ([]byte, places) {
	b := gtpc.AppendHeader(nil, kind, 0, 0)
	at := places{teid: 4, sequence: 8}
	switch kind {
	case gtpc.CreateSessionRequest:
		b, at = appendCreateSession(b, sender)
	case gtpc.ModifyBearerRequest:
		b = gtpc.AppendElement(b, gtpc.ULI, 0, 0x18, 0, 0xf1, 0x10, 0x12, 0x34, 0, 0xf1, 0x10, 0, 0x56, 0x78, 0x90)
		b = gtpc.AppendElement(b, gtpc.RATType, 0, 6)
		b = gtpc.AppendElement(b, gtpc.Indication, 0, 0, 0, 0, 0, 0, 0, 0)
		b = gtpc.AppendElement(b, gtpc.UETimeZone, 0, 0x40, 0)
		b = gtpc.AppendElement(b, gtpc.ServingNetwork, 0, 0, 0xf1, 0x10)
		group := len(b)
		b = gtpc.BeginGroup(b, gtpc.BearerContext, 0)
		b = gtpc.AppendElement(b, gtpc.EBI, 0, 5)
		b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S1UeNodeB, TEID: 7, V4: v4(sender)})
		b = gtpc.EndGroup(b, group)
	case gtpc.ReleaseAccessBearersRequest:
		b = gtpc.AppendElement(b, gtpc.Indication, 0, 0, 0, 0, 0, 0, 0, 0)
	case gtpc.BearerResourceCommand:
		b = gtpc.AppendElement(b, gtpc.EBI, 0, 5)
		b = gtpc.AppendElement(b, 100, 0, 1) // procedure transaction
		b = gtpc.AppendElement(b, gtpc.TAD, 0, make([]byte, 40)...)
		b = gtpc.AppendElement(b, gtpc.FlowQoS, 0, make([]byte, 21)...)
		b = gtpc.AppendElement(b, gtpc.PCO, 0, make([]byte, 40)...)  // protocol configuration
		b = gtpc.AppendElement(b, gtpc.Indication, 0, 0, 0, 0, 0, 0) //
	case gtpc.DeleteSessionRequest:
		b = gtpc.AppendElement(b, gtpc.EBI, 0, 5)
		b = gtpc.AppendElement(b, gtpc.ULI, 0, 0x18, 0, 0xf1, 0x10, 0x12, 0x34, 0, 0xf1, 0x10, 0, 0x56, 0x78, 0x90)
		b = gtpc.AppendElement(b, gtpc.PCO, 0, make([]byte, 30)...)
		b = gtpc.AppendElement(b, gtpc.UETimeZone, 0, 0x40, 0)
	}
	return gtpc.End(b, 0), at
}

func appendCreateSession(b []byte, sender netip.Addr) ([]byte, places) {
	at := places{teid: 4, sequence: 8, imsi: len(b) + 4}
	b = gtpc.AppendDigits(b, gtpc.IMSI, IMSI(0))
	b = gtpc.AppendDigits(b, gtpc.MSISDN, "8190000000000")
	b = gtpc.AppendDigits(b, gtpc.MEI, "3548020912345678")
	b = gtpc.AppendElement(b, gtpc.ULI, 0, 0x18, 0, 0xf1, 0x10, 0x12, 0x34, 0, 0xf1, 0x10, 0, 0x56, 0x78, 0x90)
	b = gtpc.AppendElement(b, gtpc.ServingNetwork, 0, 0, 0xf1, 0x10)
	b = gtpc.AppendElement(b, gtpc.RATType, 0, 6)
	b = gtpc.AppendElement(b, gtpc.Indication, 0, 0, 0, 0, 0, 0, 0, 0)
	at.sender = len(b) + 5
	b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, V4: v4(sender), V6: v6(sender)})
	b = gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, V4: netip.AddrFrom4([4]byte{127, 0, 0, 3})})
	b = gtpc.AppendElement(b, gtpc.APN, 0, nas.AppendAPN(nil, "internet.example")...)
	b = gtpc.AppendElement(b, gtpc.SelectionMode, 0, 0)
	b = gtpc.AppendElement(b, gtpc.PDNType, 0, 1)
	b = gtpc.AppendElement(b, gtpc.PAA, 0, 1, 0, 0, 0, 0)
	b = gtpc.AppendElement(b, gtpc.APNRestriction, 0, 0)
	b = gtpc.AppendElement(b, gtpc.AMBR, 0, 0, 0, 0xc3, 0x50, 0, 0, 0xc3, 0x50)
	group := len(b)
	b = gtpc.BeginGroup(b, gtpc.BearerContext, 0)
	b = gtpc.AppendElement(b, gtpc.EBI, 0, 5)
	b = gtpc.AppendElement(b, gtpc.BearerQoS, 0, append([]byte{0x48, 9}, make([]byte, 20)...)...)
	return gtpc.EndGroup(b, group), at
}

func v4(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	return netip.Addr{}
}

func v6(a netip.Addr) netip.Addr {
	if a.Is6() {
		return a
	}
	return netip.Addr{}
}
