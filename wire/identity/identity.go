// Package identity holds the identities that the messages of an EPC share
// (3GPP TS 23.003): PLMN, tracking area, cell, and temporary identities of
// subscribers. The octets of each are the same in NAS, S1AP and GTPv2-C unless
// its comment states a difference. Nothing here allocates, except String.
package identity

import (
	"encoding/binary"
	"fmt"
)

// A PLMN identifies a network: three digits of country code and two or three of
// network code, as the three octets of TS 24.008 clause 10.5.1.3. A PLMN is
// comparable.
type PLMN [3]byte

// MakePLMN encodes a country code of three digits and a network code of two or
// three. It returns false for anything else.
func MakePLMN(mcc, mnc string) (PLMN, bool) {
	if len(mcc) != 3 || len(mnc) < 2 || len(mnc) > 3 {
		return PLMN{}, false
	}
	for _, s := range [...]string{mcc, mnc} {
		for i := range len(s) {
			if s[i] < '0' || s[i] > '9' {
				return PLMN{}, false
			}
		}
	}
	third := byte(0x0f)
	if len(mnc) == 3 {
		third = mnc[2] - '0'
	}
	return PLMN{
		(mcc[1]-'0')<<4 | (mcc[0] - '0'),
		third<<4 | (mcc[2] - '0'),
		(mnc[1]-'0')<<4 | (mnc[0] - '0'),
	}, true
}

// ParsePLMN encodes the digits of a country code and a network code together, such as 00101.
func ParsePLMN(digits string) (PLMN, bool) {
	if len(digits) < 5 {
		return PLMN{}, false
	}
	return MakePLMN(digits[:3], digits[3:])
}

// Valid reports whether all halves of octets are digits, and only the third digit
// of the network code is absent.
func (p PLMN) Valid() bool {
	third := p[1] >> 4
	return p[0]&0x0f <= 9 && p[0]>>4 <= 9 && p[1]&0x0f <= 9 && (third <= 9 || third == 0x0f) && p[2]&0x0f <= 9 && p[2]>>4 <= 9
}

// String returns country code and network code with a hyphen between them, such
// as 001-01.
func (p PLMN) String() string {
	const hex = "0123456789abcdef"
	b := []byte{hex[p[0]&0x0f], hex[p[0]>>4], hex[p[1]&0x0f], '-', hex[p[2]&0x0f], hex[p[2]>>4]}
	if p[1]>>4 != 0x0f {
		b = append(b, hex[p[1]>>4])
	}
	return string(b)
}

// A TAI is a tracking area identity (TS 23.003 clause 19.4.2.3).
type TAI struct {
	PLMN PLMN
	TAC  uint16
}

// TAISize is the number of octets of a TAI.
const TAISize = 5

// Append appends the octets of NAS and GTPv2-C (TS 24.301 clause 9.9.3.32,
// TS 29.274 clause 8.21.4).
func (t TAI) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint16(append(b, t.PLMN[:]...), t.TAC)
}

// ParseTAI parses a TAI. It returns false unless v has exactly TAISize octets.
func ParseTAI(v []byte) (TAI, bool) {
	if len(v) != TAISize {
		return TAI{}, false
	}
	return TAI{PLMN(v), binary.BigEndian.Uint16(v[3:])}, true
}

func (t TAI) String() string { return fmt.Sprintf("%v-%d", t.PLMN, t.TAC) }

// An ECGI is a global cell identity (TS 23.003 clause 19.6).
type ECGI struct {
	PLMN PLMN
	Cell uint32 // 28 bits: for a macro eNodeB, 20 bits of eNodeB and 8 bits of cell
}

// ECGISize is the number of octets of an ECGI.
const ECGISize = 7

// Append appends the octets of GTPv2-C (TS 29.274 clause 8.21.5). S1AP encodes
// the cell otherwise.
func (e ECGI) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(b, e.PLMN[:]...), e.Cell&0x0fffffff)
}

// ParseECGI parses the octets of GTPv2-C. It returns false unless v has exactly
// ECGISize octets. It ignores the four spare bits.
func ParseECGI(v []byte) (ECGI, bool) {
	if len(v) != ECGISize {
		return ECGI{}, false
	}
	return ECGI{PLMN(v), binary.BigEndian.Uint32(v[3:]) & 0x0fffffff}, true
}

func (e ECGI) String() string { return fmt.Sprintf("%v-%#07x", e.PLMN, e.Cell) }

// A GUMMEI identifies an MME (TS 23.003 clause 2.8.1).
type GUMMEI struct {
	PLMN  PLMN
	Group uint16
	Code  uint8
}

// An STMSI identifies a subscriber within a group of MMEs (TS 23.003 clause 2.9).
type STMSI struct {
	Code uint8  // of the MME
	TMSI uint32 // M-TMSI
}

// A GUTI identifies a subscriber without revealing the IMSI (TS 23.003 clause
// 2.8).
type GUTI struct {
	GUMMEI
	TMSI uint32 // M-TMSI
}

// GUTISize is the number of octets of a GUTI without a type octet.
const GUTISize = 10

// Append appends PLMN, MME group, MME code and M-TMSI, as after the first octet
// of an EPS mobile identity (TS 24.301 clause 9.9.3.12) and in GTPv2-C.
func (g GUTI) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(append(b, g.PLMN[:]...), g.Group)
	return binary.BigEndian.AppendUint32(append(b, g.Code), g.TMSI)
}

// ParseGUTI parses what Append appends. It returns false unless v has exactly
// GUTISize octets.
func ParseGUTI(v []byte) (GUTI, bool) {
	if len(v) != GUTISize {
		return GUTI{}, false
	}
	return GUTI{GUMMEI{PLMN(v), binary.BigEndian.Uint16(v[3:]), v[5]}, binary.BigEndian.Uint32(v[6:])}, true
}

// STMSI returns the short form of the GUTI.
func (g GUTI) STMSI() STMSI { return STMSI{g.Code, g.TMSI} }

func (g GUTI) String() string {
	return fmt.Sprintf("%v-%#04x-%#02x-%#08x", g.PLMN, g.Group, g.Code, g.TMSI)
}
