package message

import (
	"bytes"
	"encoding/binary"
	"errors"

	"vitrine/affinity/capture"
	"vitrine/wire/diameter"
	"vitrine/wire/gtpc"
	"vitrine/wire/nas"
	"vitrine/wire/ngap"
	"vitrine/wire/pfcp"
	"vitrine/wire/s1ap"
	"vitrine/wire/sip"
)

// decoders are the messages of wire/ that a reading parses into.
type decoders struct {
	sip      sip.Message
	diameter diameter.Message
	gtp      gtpc.Message
	pfcp     pfcp.Message
	s1ap     s1ap.Message
	ngap     ngap.Message
	pdu      nas.PDU
	nas      nasMessages
}

// The payload protocol identifiers of SCTP that are read
// (iana.org/assignments/sctp-parameters).
const (
	ppidS1AP     = 18
	ppidDiameter = 46
	ppidNGAP     = 60
)

// datagram reads a UDP datagram. It may hold messages of several datagrams: if the receiver's socket
// has UDP_GRO, as those of the director, the kernel merges datagrams of one flow before the capture.
func (r *reading) datagram(o *origin, p *capture.Packet) {
	data := p.Payload
	switch data[0] >> 4 {
	case 4, 5:
		if looksGTP(data, p.Missing) {
			r.gtp(o, data, p.Missing)
			return
		}
	case 2:
		if looksPFCP(data, p.Missing) {
			r.pfcp(o, data, p.Missing)
			return
		}
	}
	if looksSIP(data) {
		r.sipDatagram(o, data, p.Missing)
		return
	}
	r.edges.datagram(r, o, p.Transport, len(data)+p.Missing)
}

// chunk reads an SCTP user message.
func (r *reading) chunk(o *origin, p *capture.Packet) {
	o.link = linkOf(o)
	data, protocol := p.Payload, sctpProtocol(p.PPID)
	switch {
	case protocol != Unknown && p.Missing > 0:
		r.counts.bad(protocol, cutReason)
	case protocol == S1AP:
		r.s1ap(o, data)
	case protocol == NGAP:
		r.ngap(o, data)
	case protocol == Diameter, p.Missing == 0 && looksDiameter(data) == yes:
		r.diameterMessages(o, data)
	default:
		r.edges.datagram(r, o, p.Transport, len(data)+p.Missing)
	}
}

// incomplete counts an SCTP user message whose fragments are not all in the capture.
func (r *reading) incomplete(ppid uint32) {
	if protocol := sctpProtocol(ppid); protocol != Unknown {
		r.counts.bad(protocol, fragmentReason)
	}
}

// sctpProtocol returns the protocol of a payload protocol identifier.
func sctpProtocol(ppid uint32) Protocol {
	switch ppid {
	case ppidS1AP:
		return S1AP
	case ppidNGAP:
		return NGAP
	case ppidDiameter:
		return Diameter
	}
	return Unknown
}

// The reasons reported for messages that are not whole in the capture.
const (
	cutReason      = "cut off by the capture"
	fragmentReason = "a fragment is missing"
)

// A verdict says whether bytes begin a message of a protocol.
type verdict uint8

const (
	no verdict = iota
	yes
	more // more bytes are needed
)

var (
	sipVersion  = []byte("SIP/2.0")
	httpVersion = []byte("HTTP/1.")
)

// maxLine is the longest start line of a text protocol, in bytes.
const maxLine = 8 << 10

// startLine returns the first line of a text message.
func startLine(data []byte) (line []byte, v verdict) {
	const shown = 256 // bytes of an incomplete line that are checked for binary data
	for _, c := range data[:min(len(data), 4)] {
		if c < ' ' || c > '~' {
			return nil, no
		}
	}
	i := bytes.IndexByte(data[:min(len(data), maxLine)], '\n')
	if i < 0 {
		for _, c := range data[:min(len(data), shown)] {
			if c < ' ' && c != '\r' || c > '~' {
				return nil, no
			}
		}
		if len(data) >= maxLine {
			return nil, no
		}
		return nil, more
	}
	return bytes.TrimSuffix(data[:i], []byte("\r")), yes
}

// looksText reports whether data begins with a request line or a status line of a
// version.
func looksText(data, version []byte, digits int) verdict {
	line, v := startLine(data)
	if v != yes {
		return v
	}
	if bytes.HasPrefix(line, version) {
		return yes
	}
	if n := len(line) - len(version) - digits; n > 4 && bytes.HasPrefix(line[n:], version) && line[n-1] == ' ' && line[0] >= 'A' && line[0] <= 'z' {
		if i := bytes.IndexByte(line, ' '); i > 0 && i < n-1 {
			return yes
		}
	}
	return no
}

// looksSIP reports whether a datagram begins like a SIP message.
func looksSIP(data []byte) bool { return looksText(data, sipVersion, 0) == yes }

// looksDiameter reports whether data begins with a Diameter header, and with a header of
// an AVP if it has more (RFC 6733 sections 3 and 4.1).
func looksDiameter(data []byte) verdict {
	const header, longest = 20, 1 << 20
	if data[0] != 1 {
		return no
	}
	if len(data) < header+8 {
		if len(data) >= 4 {
			if n := binary.BigEndian.Uint32(data) & 0xffffff; n < header || n%4 != 0 || n > longest {
				return no
			} else if n == header && len(data) >= header {
				return yes
			}
		}
		return more
	}
	length := int(binary.BigEndian.Uint32(data) & 0xffffff)
	command := binary.BigEndian.Uint32(data[4:]) & 0xffffff
	if length < header || length%4 != 0 || length > longest || data[4]&0x0f != 0 || command == 0 {
		return no
	}
	if length == header {
		return yes
	}
	avp := binary.BigEndian.Uint32(data[header:])
	size := int(binary.BigEndian.Uint32(data[header+4:]) & 0xffffff)
	if avp == 0 || data[header+4]&0x1f != 0 || size < 8 || size > length-header {
		return no
	}
	return yes
}

// looksGTP reports whether a datagram has only GTPv2-C messages, by the first of them and the
// beginning of the second.
func looksGTP(data []byte, missing int) bool {
	n := gtpLength(data, missing)
	return n > 0 && (data[0]&0x10 != 0 || n == len(data)+missing || n < len(data) && gtpLength(data[n:], missing) > 0)
}

// gtpLength returns the length of the GTPv2-C message that data begins with, or 0 if data begins
// with none that fits (TS 29.274 clause 5.1).
func gtpLength(data []byte, missing int) int {
	if len(data) < 8 || data[0]>>5 != 2 || data[0]&0x03 != 0 || gtpNames[data[1]] == "" {
		return 0
	}
	return fitting(data, missing)
}

// looksPFCP reports whether a datagram has only PFCP messages, by the first of them and the
// beginning of the second.
func looksPFCP(data []byte, missing int) bool {
	n := pfcpLength(data, missing)
	return n > 0 && (data[0]&0x04 != 0 || n == len(data)+missing || n < len(data) && pfcpLength(data[n:], missing) > 0)
}

// pfcpLength returns the length of the PFCP message that data begins with, or 0 if data begins
// with none that fits (TS 29.244 clause 7.2.2).
func pfcpLength(data []byte, missing int) int {
	if len(data) < 8 || data[0]>>5 != 1 || data[0]&0x18 != 0 {
		return 0
	}
	t := pfcp.Type(data[1])
	if t >= pfcp.HeartbeatRequest && t <= pfcp.SessionSetModificationResponse || t >= pfcp.SessionEstablishmentRequest && t <= pfcp.SessionReportResponse {
		return fitting(data, missing)
	}
	return 0
}

// fitting returns the length of a GTPv2-C or PFCP message, or 0 if the datagram is shorter.
func fitting(data []byte, missing int) int {
	if n := int(binary.BigEndian.Uint16(data[2:])) + 4; n <= len(data)+missing {
		return n
	}
	return 0
}

// reason returns the text of the innermost error, which has no details.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
