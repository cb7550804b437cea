package sip

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"vitrine/director/table"
	"vitrine/wire/sip"
)

// A stamp is what the director writes into the branch of its own Via: the state that it
// needs when the response arrives, and hashes that identify the transaction. It does not
// depend on when or by which director the request was handled.
type stamp struct {
	listener    uint8      // that received the request
	outward     bool       // the request went from an instance to a client
	ty          table.Type // of the aggregate; noType: not known
	id          uint16     // of the instance in its type
	transaction uint64
	loop        uint64
}

const (
	// mark follows the magic cookie in the director's branches.
	mark      = "-vd"
	stampSize = 2 + 2 + 4 + 16 + 16 // hexadecimal digits
	loopAt    = 2 + 2 + 4 + 16
	noType    = 0xff
	// maxListeners is the maximum number of listeners: the stamp has six bits for them.
	maxListeners = 64
	// flowName is the Via parameter that names the connection of a request.
	flowName = "vf"
	// countsName is the Via parameter that marks a request that begins or ends a counted dialog.
	// It is not in the branch, because CANCEL and the ACK of a failure share the branch.
	countsName = "vb"
)

// append writes the stamp after cookie and mark.
func (s *stamp) append(b []byte) []byte {
	return appendHex(appendHex(appendHex(b, uint64(s.head()), 8), s.transaction, 16), s.loop, 16)
}

// head returns the stamp without its hashes.
func (s *stamp) head() uint32 {
	head := uint32(s.listener)<<24 | uint32(s.ty)<<16 | uint32(s.id)
	if s.outward {
		head |= 1 << 31
	}
	return head
}

// parseStamp reads the stamp of a branch; ok is false if no director wrote the branch.
func parseStamp(branch []byte) (s stamp, ok bool) {
	const before = len(sip.BranchCookie) + len(mark)
	if len(branch) != before+stampSize || string(branch[len(sip.BranchCookie):before]) != mark {
		return s, false
	}
	head, ok1 := parseHex(branch[before : before+8])
	transaction, ok2 := parseHex(branch[before+8 : before+loopAt])
	loop, ok3 := parseHex(branch[before+loopAt:])
	return stamp{
		listener: uint8(head>>24) % maxListeners, outward: head&(1<<31) != 0,
		ty: table.Type(head >> 16), id: uint16(head), transaction: transaction, loop: loop,
	}, ok1 && ok2 && ok3
}

// appendHex appends the lowest n hexadecimal digits of v; n is 4, 8 or 16.
func appendHex(b []byte, v uint64, n int) []byte {
	switch n {
	case 4:
		return binary.BigEndian.AppendUint32(b, uint32(hex8(uint32(v))))
	case 8:
		return binary.BigEndian.AppendUint64(b, hex8(uint32(v)))
	}
	b = binary.BigEndian.AppendUint64(b, hex8(uint32(v>>32)))
	return binary.BigEndian.AppendUint64(b, hex8(uint32(v)))
}

// hex8 returns the eight lower-case digits of v, computed all at once: each nibble is
// moved into its own byte, and digits above 9 are shifted from '9'+1 to 'a'.
func hex8(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (x + 0x0606060606060606) >> 4 & 0x0101010101010101
	return x + 0x3030303030303030 + letters*('a'-'9'-1)
}

// parseHex8 is the inverse of hex8; ok is false for text that hex8 does not produce.
func parseHex8(text uint64) (v uint32, ok bool) {
	x := text&0x0f0f0f0f0f0f0f0f + text>>6&0x0101010101010101*9
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	v = uint32(x | x>>16)
	return v, hex8(v) == text
}

// parseHex reads 4, 8 or 16 lower-case digits.
func parseHex(text []byte) (v uint64, ok bool) {
	switch len(text) {
	case 4:
		low, ok := parseHex8(0x3030303000000000 | uint64(binary.BigEndian.Uint32(text)))
		return uint64(low), ok
	case 8:
		low, ok := parseHex8(binary.BigEndian.Uint64(text))
		return uint64(low), ok
	case 16:
		high, ok1 := parseHex8(binary.BigEndian.Uint64(text))
		low, ok2 := parseHex8(binary.BigEndian.Uint64(text[8:]))
		return uint64(high)<<32 | uint64(low), ok1 && ok2
	}
	return 0, false
}

// transactionOf returns the part of the branch that is the same for a request, its
// retransmissions, its CANCEL and the ACK of a failure (RFC 3261 section 16.11). It
// therefore excludes the method and the To tag.
func transactionOf(m *sip.Message, v *sip.ViaHop, callID uint64) uint64 {
	h := fold(callID, uint64(m.Sequence))
	if len(v.Branch) > len(sip.BranchCookie) && string(v.Branch[:len(sip.BranchCookie)]) == sip.BranchCookie {
		h = fold(h, xxhash.Sum64(v.Branch))
		return fold(fold(h, xxhash.Sum64(v.Host)), uint64(v.Port))
	}
	tag, _ := sip.Param(m.From, "tag")
	h = fold(h, xxhash.Sum64(v.Text))
	return fold(fold(h, xxhash.Sum64(tag)), xxhash.Sum64(m.URI))
}

// loopOf returns the part of the branch that detects loops. It is a hash of what routes
// the request (RFC 5393 section 4.2.2). That includes the direction, because an instance
// may send a request back out unchanged.
func loopOf(m *sip.Message, route []byte, callID uint64, outward bool) uint64 {
	h := fold(fold(callID, uint64(m.Sequence)), xxhash.Sum64(m.URI))
	if len(route) > 0 {
		h = fold(h, xxhash.Sum64(route))
	}
	if outward {
		h = fold(h, 1)
	}
	return h
}

// fold mixes a value into a hash.
func fold(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, v^0xd6e8feb86659fd93)
	return hi ^ lo
}

// appendFlow appends the name of a flow: the IP address and the port in hexadecimal.
func appendFlow(b []byte, a netip.AddrPort) []byte {
	if a.Addr().Is4() {
		ip := a.Addr().As4()
		b = appendHex(b, uint64(binary.BigEndian.Uint32(ip[:])), 8)
	} else {
		ip := a.Addr().As16()
		b = appendHex(appendHex(b, binary.BigEndian.Uint64(ip[:8]), 16), binary.BigEndian.Uint64(ip[8:]), 16)
	}
	return appendHex(b, uint64(a.Port()), 4)
}

func parseFlow(text []byte) (a netip.AddrPort, ok bool) {
	switch len(text) {
	case 12:
		ip, ok1 := parseHex(text[:8])
		port, ok2 := parseHex(text[8:])
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(ip))
		return netip.AddrPortFrom(netip.AddrFrom4(b), uint16(port)), ok1 && ok2
	case 36:
		high, ok1 := parseHex(text[:16])
		low, ok2 := parseHex(text[16:32])
		port, ok3 := parseHex(text[32:])
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], high)
		binary.BigEndian.PutUint64(b[8:], low)
		return netip.AddrPortFrom(netip.AddrFrom16(b), uint16(port)), ok1 && ok2 && ok3
	}
	return a, false
}
