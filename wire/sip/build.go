package sip

import (
	"bytes"
	"net/netip"
	"strconv"
)

// AppendRequestLine begins a request.
func AppendRequestLine(b []byte, method string, uri []byte) []byte {
	b = append(append(b, method...), ' ')
	return append(append(b, uri...), " SIP/2.0\r\n"...)
}

// AppendField appends one header line.
func AppendField(b []byte, name string, value []byte) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

// AppendCSeq appends the CSeq line.
func AppendCSeq(b []byte, sequence uint32, method string) []byte {
	b = strconv.AppendUint(append(b, "CSeq: "...), uint64(sequence), 10)
	return append(append(append(b, ' '), method...), "\r\n"...)
}

// AppendEnd ends the header and appends the body.
func AppendEnd(b, body []byte) []byte {
	return append(append(AppendLength(b, len(body)), "\r\n"...), body...)
}

// AppendLength appends the Content-Length line.
func AppendLength(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, "Content-Length: "...), int64(n), 10), "\r\n"...)
}

// AppendResponse begins the response to a request: status line and the headers
// that are copied from the request (RFC 3261 section 8.2.6.2; Record-Route as
// section 12.1.1 asks of one that makes a dialog). toTag is added to a To that
// has none; empty: none is added. source is where the request came from, for
// Via's received and rport (section 18.2.1, RFC 3581 section 4). The caller
// appends what else it needs, and AppendEnd.
func AppendResponse(b []byte, request *Message, status int, reason string, toTag []byte, source netip.AddrPort) []byte {
	b = strconv.AppendInt(append(b, "SIP/2.0 "...), int64(status), 10)
	b = append(append(append(b, ' '), reason...), "\r\n"...)
	top := true
	for f := request.Fields(); f.Next(); {
		switch f.Kind {
		case Via:
			if top {
				b = appendTopVia(b, f.Value, source)
				top = false
				continue
			}
			b = AppendField(b, "Via", f.Value)
		case From:
			b = AppendField(b, "From", f.Value)
		case To:
			b = append(append(b, "To: "...), f.Value...)
			if _, has := Param(f.Value, "tag"); !has && len(toTag) > 0 {
				b = append(append(b, ";tag="...), toTag...)
			}
			b = append(b, "\r\n"...)
		case CallID:
			b = AppendField(b, "Call-ID", f.Value)
		case CSeq:
			b = AppendField(b, "CSeq", f.Value)
		case RecordRoute:
			if status > 100 && status < 300 {
				b = AppendField(b, "Record-Route", f.Value)
			}
		}
	}
	return b
}

// appendTopVia appends the first Via line with received and rport filled in.
func appendTopVia(b, value []byte, source netip.AddrPort) []byte {
	first, rest := CutElement(value)
	b = append(b, "Via: "...)
	rport, hasRport := Param(first, "rport")
	fill := hasRport && len(rport) == 0
	if i := indexParam(first, "rport"); fill && i >= 0 {
		b = append(b, first[:i]...)
		b = strconv.AppendUint(append(b, "rport="...), uint64(source.Port()), 10)
		b = append(b, first[i+len("rport"):]...)
	} else {
		b = append(b, first...)
	}
	host, _, ok := SentBy(first)
	if _, has := Param(first, "received"); ok && !has && source.IsValid() && (fill || !sameHost(host, source.Addr())) {
		b = source.Addr().AppendTo(append(b, ";received="...))
	}
	if len(rest) > 0 {
		b = append(append(b, ", "...), rest...)
	}
	return append(b, "\r\n"...)
}

// sameHost says whether a sent-by host is written as the address is.
func sameHost(host []byte, addr netip.Addr) bool {
	var buffer [64]byte
	return bytes.Equal(bytes.Trim(host, "[]"), addr.AppendTo(buffer[:0]))
}

// indexParam is where a parameter's name stands in a value; -1: nowhere.
func indexParam(value []byte, name string) int {
	for i := bytes.IndexByte(value, ';'); i >= 0 && i < len(value); {
		j := i + 1
		for j < len(value) && isSpace(value[j]) {
			j++
		}
		if end := j + len(name); end <= len(value) && equalFold(value[j:end], name) && (end == len(value) || value[end] == ';' || isSpace(value[end]) || value[end] == '=') {
			return j
		}
		next := bytes.IndexByte(value[i+1:], ';')
		if next < 0 {
			return -1
		}
		i += 1 + next
	}
	return -1
}

// ReplyTo is where the response to a request goes over UDP (RFC 3261 section
// 18.2.2, RFC 3581 section 4): to the address it came from, and to the port of
// its Via unless that asks for the one it came from.
func ReplyTo(request *Message, source netip.AddrPort) netip.AddrPort {
	if _, ok := Param(request.Via, "rport"); ok {
		return source
	}
	_, port, ok := SentBy(request.Via)
	switch {
	case !ok:
		return source
	case port == 0:
		port = 5060
	}
	return netip.AddrPortFrom(source.Addr(), port)
}
