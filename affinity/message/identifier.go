package message

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"vitrine/wire/identity"
)

// The bounds on the identifiers of a message.
const (
	maxIdentifiers = 32
	maxText        = 256 // bytes of an identifier's text; its hash is over all of it
)

// lasting has the kinds that name a user, or a session that outlives one exchange.
var lasting = [identifierKinds]bool{IMPU: true, IMPI: true, IMSI: true, MSISDN: true, GUTI: true, TEID: true, SEID: true,
	UserKey: true, Key: true, AddressUE: true}

// mix spreads the bits of a number over all bits: the finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// join returns a hash of two hashes, in their order.
func join(a, b uint64) uint64 { return mix(a*0x9e3779b97f4a7c15 + b) }

// hashOf returns a hash of the bytes of a transmission, which is not zero.
func hashOf(data []byte) uint64 { return xxhash.Sum64(data) | 1 }

// hashAddr returns a hash of an address. An IPv4 address in IPv6 form is the same.
func hashAddr(a netip.Addr) uint64 {
	b := a.As16()
	return join(binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:]))
}

// hashEnd returns a hash of an address and a port.
func hashEnd(a netip.AddrPort) uint64 { return join(hashAddr(a.Addr()), uint64(a.Port())) }

// hashPair returns a hash of two hashes in any order.
func hashPair(a, b uint64) uint64 { return join(min(a, b), max(a, b)) }

// identify adds an identifier. Its value is the text appended since from.
func (s *slot) identify(kind IdentifierKind, scope uint64, from int) *Identifier {
	value := s.text[from:]
	if len(value) == 0 {
		return nil
	}
	hash := join(xxhash.Sum64(value), scope+uint64(kind))
	s.text = s.text[:min(len(s.text), from+maxText)]
	if cap(s.text) > slotSize+2*len(s.text) { // a message may wait for long, and counts with slotSize
		s.text = bytes.Clone(s.text)
	}
	for i := range s.m.Identifiers {
		if known := &s.m.Identifiers[i]; known.Hash == hash {
			s.text = s.text[:from]
			return known
		}
	}
	if len(s.m.Identifiers) == maxIdentifiers {
		s.text = s.text[:from]
		return nil
	}
	end := len(s.text)
	s.m.Identifiers = append(s.m.Identifiers, Identifier{Kind: kind, Hash: hash, Text: s.text[from:end:end], Lasting: lasting[kind]})
	return &s.m.Identifiers[len(s.m.Identifiers)-1]
}

// add adds an identifier with an unchanged value.
func (s *slot) add(kind IdentifierKind, scope uint64, value []byte) *Identifier {
	from := len(s.text)
	s.text = append(s.text, value...)
	return s.identify(kind, scope, from)
}

// number adds an identifier that is a number.
func (s *slot) number(kind IdentifierKind, scope, n uint64) {
	from := len(s.text)
	s.text = append(s.text, "0x"...)
	s.text = appendHex(s.text, n)
	s.identify(kind, scope, from)
}

// digits adds an IMSI or MSISDN.
func (s *slot) digits(kind IdentifierKind, d identity.Digits) {
	if d.Len() > 0 {
		s.add(kind, 0, d.Bytes())
	}
}

// guti adds a GUTI or S-TMSI, identified by the S-TMSI, which a GUTI contains.
func (s *slot) guti(t identity.STMSI) {
	from := len(s.text)
	s.text = append(appendHex(s.text, uint64(t.Code)), '-')
	s.text = appendHex(s.text, uint64(t.TMSI))
	s.identify(GUTI, 0, from)
}

// address adds the IP address of a UE. A UE has a whole /64 of IPv6 (TS 23.401 clause
// 5.3.1.2.2), and only some protocols have an interface identifier, so it is left out.
func (s *slot) address(a netip.Addr) {
	const network = 64 // bits
	a = a.Unmap()
	if a.Is6() {
		prefix, _ := a.Prefix(network) // without an error, because an IPv6 address has more bits
		a = prefix.Addr()
	}
	if !a.IsValid() || a.IsUnspecified() {
		return
	}
	from := len(s.text)
	s.text = a.AppendTo(s.text)
	s.identify(AddressUE, 0, from)
}

// tunnel adds a tunnel endpoint identifier, of the address that owns it. The user plane and
// the control plane number TEIDs separately.
func (s *slot) tunnel(owner netip.Addr, teid uint32, user bool) {
	if teid == 0 || !owner.IsValid() {
		return
	}
	scope := hashAddr(owner)
	if user {
		scope++
	}
	s.number(TEID, scope, uint64(teid))
}

func isDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) > 0
}

func appendHex(b []byte, n uint64) []byte {
	const figures = "0123456789abcdef"
	var out [16]byte
	i := len(out)
	for {
		i--
		out[i] = figures[n&15]
		if n >>= 4; n == 0 {
			return append(b, out[i:]...)
		}
	}
}
