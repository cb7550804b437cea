package sip

import (
	"net/netip"
	"strconv"
)

// AppendRequestLine appends the request line.
func AppendRequestLine(b []byte, method string, uri []byte) []byte {
	b = append(append(b, method...), ' ')
	return append(append(b, uri...), " SIP/2.0\r\n"...)
}

// AppendStatusLine appends the status line.
func AppendStatusLine(b []byte, status int, reason string) []byte {
	b = strconv.AppendInt(append(b, "SIP/2.0 "...), int64(status), 10)
	return append(append(append(b, ' '), reason...), "\r\n"...)
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

// AppendEnd appends the Content-Length line, the empty line and the body.
func AppendEnd(b, body []byte) []byte {
	return append(append(AppendLength(b, len(body)), "\r\n"...), body...)
}

// AppendLength appends the Content-Length line.
func AppendLength(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, "Content-Length: "...), int64(n), 10), "\r\n"...)
}

// AppendResponse appends the beginning of the response to a request: the status
// line and the headers copied from the request. RFC 3261 section 8.2.6.2 requires
// them, and section 12.1.1 requires Record-Route in a response that creates a
// dialog. toTag, if not empty, is added to a To that has no tag. source is the
// request's source address, for received and rport of the top Via (section
// 18.2.1, RFC 3581 section 4). The caller appends any other headers, and then
// AppendEnd.
func AppendResponse(b []byte, request *Message, status int, reason string, toTag []byte, source netip.AddrPort) []byte {
	b = AppendStatusLine(b, status, reason)
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

// appendTopVia appends the first Via line and fills in received and rport.
func appendTopVia(b, value []byte, source netip.AddrPort) []byte {
	first, rest := CutElement(value)
	hop, ok := ParseViaHop(first)
	b = append(b, "Via: "...)
	fill := hop.RPort != nil && len(hop.RPort) == 0
	if fill {
		i := cap(first) - cap(hop.RPort)
		b = append(b, first[:i]...)
		if name := trim(first[:i]); name[len(name)-1] != '=' {
			b = append(b, '=')
		}
		b = append(strconv.AppendUint(b, uint64(source.Port()), 10), first[i:]...)
	} else {
		b = append(b, first...)
	}
	addr, isIP := ParseHost(hop.Host)
	if ok && hop.Received == nil && source.IsValid() && (fill || !isIP || addr != source.Addr()) {
		b = source.Addr().AppendTo(append(b, ";received="...))
	}
	if len(rest) > 0 {
		b = append(append(b, ", "...), rest...)
	}
	return append(b, "\r\n"...)
}

// ReplyTo returns the address for the response to a request over UDP (RFC 3261
// section 18.2.2, RFC 3581 section 4): the source address of the request with the
// port of its Via, or the source port if the Via has rport.
func ReplyTo(request *Message, source netip.AddrPort) netip.AddrPort {
	hop, ok := ParseViaHop(request.Via)
	switch {
	case !ok || hop.RPort != nil:
		return source
	case hop.Port == 0:
		hop.Port = DefaultPort
	}
	return netip.AddrPortFrom(source.Addr(), hop.Port)
}
