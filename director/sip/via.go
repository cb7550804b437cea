package sip

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"vitrine/director/table"
	"vitrine/wire/sip"
)

// A via is the first element of a Via header, parted. Its slices are views.
type via struct {
	text             []byte // all of it
	stream           bool   // the transport is TCP
	host             []byte
	port             uint16 // 0: none given
	branch           []byte
	rport, received  []byte // nil: not there; empty: without value
	maddr, flow      []byte
	begins           []byte
	oc, ocSeq        []byte
	ocAlgo, validity []byte
}

// parseVia reads a Via element (RFC 3261 section 20.42); ok is false when it has
// no sent-by.
func parseVia(text []byte) (v via, ok bool) {
	v.text = text
	at, ok := v.parseProtocol()
	if !ok {
		return v, false
	}
	at, ok = v.parseSentBy(at)
	if !ok {
		return v, false
	}
	for at < len(text) { // text[at] is a semicolon
		var name, value []byte
		name, value, at = cutParam(text, at+1)
		v.keep(name, value)
	}
	return v, true
}

// parseProtocol reads "SIP/2.0/UDP", with spaces around the slashes at will.
func (v *via) parseProtocol() (at int, ok bool) {
	text := v.text
	if len(text) > 12 && string(text[:8]) == "SIP/2.0/" && text[11] == ' ' {
		v.stream = text[8]|0x20 == 't' && text[9]|0x20 == 'c'
		return 12, true
	}
	for range 2 {
		for at < len(text) && text[at] != '/' {
			at++
		}
		at++
	}
	at = skipSpaces(text, at)
	start := at
	for at < len(text) && !isSpace(text[at]) {
		at++
	}
	if at >= len(text) {
		return at, false
	}
	v.stream = at-start == 3 && text[start]|0x20 == 't' && text[start+1]|0x20 == 'c'
	return at, true
}

// parseSentBy reads "host:port"; at is then the next semicolon, or the end.
func (v *via) parseSentBy(at int) (int, bool) {
	text := v.text
	at = skipSpaces(text, at)
	start, colon := at, -1
	if at < len(text) && text[at] == '[' {
		for at < len(text) && text[at] != ']' {
			at++
		}
	}
	for at < len(text) && text[at] != ';' {
		if text[at] == ':' {
			colon = at
		}
		at++
	}
	v.host = trim(text[start:at])
	if colon >= 0 {
		port, ok := parsePort(trim(text[colon+1 : at]))
		if !ok {
			return at, false
		}
		v.host, v.port = trim(text[start:colon]), port
	}
	return at, len(v.host) > 0
}

// keep stores the parameters that decide something here.
func (v *via) keep(name, value []byte) {
	switch len(name) {
	case 2:
		switch {
		case equalFold(name, "oc"):
			v.oc = value
		case equalFold(name, flowName):
			v.flow = value
		case equalFold(name, beginsName):
			v.begins = value
		}
	case 5:
		switch {
		case equalFold(name, "rport"):
			v.rport = value
		case equalFold(name, "maddr"):
			v.maddr = value
		}
	case 6:
		switch {
		case equalFold(name, "branch"):
			v.branch = value
		case equalFold(name, "oc-seq"):
			v.ocSeq = value
		}
	case 7:
		if equalFold(name, "oc-algo") {
			v.ocAlgo = value
		}
	case 8:
		if equalFold(name, "received") {
			v.received = value
		}
	case 11:
		if equalFold(name, "oc-validity") {
			v.validity = value
		}
	}
}

// cutParam reads the parameter that begins at at; next is that of the semicolon
// after it, or the end. value is never nil: without one it is empty and stands
// at the end of the name.
func cutParam(text []byte, at int) (name, value []byte, next int) {
	at = skipSpaces(text, at)
	start := at
	for at < len(text) && text[at] != ';' && text[at] != '=' && !isSpace(text[at]) {
		at++
	}
	name, value = text[start:at], text[at:at]
	at = skipSpaces(text, at)
	if at < len(text) && text[at] == '=' {
		at = skipSpaces(text, at+1)
		start = at
		if at < len(text) && text[at] == '"' {
			at++
			for at < len(text) && text[at] != '"' {
				if text[at] == '\\' {
					at++
				}
				at++
			}
			at = min(at+1, len(text))
		}
		for at < len(text) && text[at] != ';' && !isSpace(text[at]) {
			at++
		}
		value = text[start:at]
	}
	for at < len(text) && text[at] != ';' {
		at++
	}
	return name, value, at
}

// A stamp is what the director writes into the branch of its own Via: what it
// needs to know about a response, and what makes the branch that of the
// transaction. Nothing of it depends on when or where the request was handled.
type stamp struct {
	listener    uint8      // that the request came to
	outward     bool       // it went from an instance to a client
	ty          table.Type // of the aggregate; noType: not known
	id          uint16     // of the instance in its type
	transaction uint64
	loop        uint64
}

const (
	// cookie begins every branch (RFC 3261 section 8.1.1.7); mark and stampMark say
	// that it is a director's.
	cookie    = "z9hG4bK"
	mark      = "-vd"
	stampSize = 2 + 2 + 4 + 16 + 16 // hexadecimal digits
	loopAt    = 2 + 2 + 4 + 16
	noType    = 0xff
	// mostListeners is how many there may be: as many as six bits tell apart.
	mostListeners = 64
	// flowName is the Via parameter that names the connection a request came by.
	flowName = "vf"
	// beginsName is that of what begins a dialog that is counted. It is not in the
	// branch, which CANCEL and the ACK of a failure share.
	beginsName = "vb"
)

// append writes the stamp after cookie and mark.
func (s *stamp) append(b []byte) []byte {
	head := uint64(s.listener)<<24 | uint64(s.ty)<<16 | uint64(s.id)
	if s.outward {
		head |= 1 << 31
	}
	return appendHex(appendHex(appendHex(b, head, 8), s.transaction, 16), s.loop, 16)
}

// parseStamp reads the stamp of a branch; ok is false when it is not a
// director's.
func parseStamp(branch []byte) (s stamp, ok bool) {
	const before = len(cookie) + len(mark)
	if len(branch) != before+stampSize || string(branch[len(cookie):before]) != mark {
		return s, false
	}
	head, ok1 := parseHex(branch[before : before+8])
	transaction, ok2 := parseHex(branch[before+8 : before+loopAt])
	loop, ok3 := parseHex(branch[before+loopAt:])
	return stamp{
		listener: uint8(head>>24) % mostListeners, outward: head&(1<<31) != 0,
		ty: table.Type(head >> 16), id: uint16(head), transaction: transaction, loop: loop,
	}, ok1 && ok2 && ok3
}

// appendHex appends the lowest n digits of v; n is 4, or a multiple of 8.
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

// hex8 are the eight lower-case digits of v, all at once: each nibble is moved
// into a byte of its own, and those above 9 are moved on from '9'+1 to 'a'.
func hex8(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (x + 0x0606060606060606) >> 4 & 0x0101010101010101
	return x + 0x3030303030303030 + letters*('a'-'9'-1)
}

// parseHex8 undoes hex8; ok is false for what hex8 does not write.
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

// transactionOf is the part of the branch that is the same for a request, its
// retransmissions, its CANCEL and the ACK of a failure (RFC 3261 section 16.11):
// the method and the To tag are not in it.
func transactionOf(m *sip.Message, v *via, callID uint64) uint64 {
	h := fold(callID, uint64(m.Sequence))
	if len(v.branch) > len(cookie) && string(v.branch[:len(cookie)]) == cookie {
		h = fold(h, xxhash.Sum64(v.branch))
		return fold(fold(h, xxhash.Sum64(v.host)), uint64(v.port))
	}
	tag, _ := sip.Param(m.From, "tag")
	h = fold(h, xxhash.Sum64(v.text))
	return fold(fold(h, xxhash.Sum64(tag)), xxhash.Sum64(m.URI))
}

// loopOf is the part of the branch by which a request that comes again is
// known: it covers what a request is routed by (RFC 5393 section 4.2.2), where it
// comes from included, for an instance may send it back out as it is.
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

// appendFlow writes an address as the name of a flow: hexadecimal digits of the
// IP address and the port.
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

// parseHost reads an IP address as it stands in a Via or a URI, an IPv6 one in
// brackets or bare; ok is false for a name.
func parseHost(host []byte) (a netip.Addr, ok bool) {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	} else if len(host) > 0 && isDigit(host[0]) {
		if a, ok = parseIPv4(host); ok {
			return a, true
		}
	}
	for _, c := range host {
		if c == ':' {
			a, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(host), len(host)))
			return a, err == nil && a.Zone() == "" && !a.Is4In6()
		}
	}
	return a, false
}

func parseIPv4(text []byte) (netip.Addr, bool) {
	var ip [4]byte
	part, n, size := 0, 0, 0
	for _, c := range text {
		switch {
		case isDigit(c):
			n, size = n*10+int(c-'0'), size+1
			if n > 255 || size > 3 {
				return netip.Addr{}, false
			}
		case c == '.' && size > 0 && part < 3:
			ip[part] = byte(n)
			part, n, size = part+1, 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	ip[3] = byte(n)
	return netip.AddrFrom4(ip), part == 3 && size > 0
}

func parsePort(text []byte) (uint16, bool) {
	n := 0
	for _, c := range text {
		if !isDigit(c) || n > 65535 {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return uint16(n), n > 0 && n <= 65535
}

func skipSpaces(text []byte, at int) int {
	for at < len(text) && isSpace(text[at]) {
		at++
	}
	return at
}

func trim(text []byte) []byte {
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// equalFold compares ASCII without case; lower must be lower case.
func equalFold(text []byte, lower string) bool {
	if string(text) == lower { // as it mostly is
		return true
	}
	if len(text) != len(lower) {
		return false
	}
	for i, c := range text {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
