package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"

	"vitrine/internal/capturetest"
)

// A signalling makes the packets of a steady load. SIP calls run over UDP between a user agent and
// a proxy. Each call has two Diameter exchanges over TCP between the proxy and a server. Once
// openCalls calls are open, one call ends for each that begins.
type signalling struct {
	frames capturetest.Frames
	conn   capturetest.Conn
	text   []byte
	hop    uint32
}

// A signalled says how many messages and calls a capture has.
type signalled struct{ messages, calls uint64 }

const (
	packetsPerCall = 11 // 7 of SIP, 4 of Diameter
	openCalls      = 1000
	callers        = 5000 // a caller's call ends before its next one begins; all have called within fewPackets
)

// The ends of the load: the user agent, the proxy with its two ends, and the Diameter server.
var (
	callerEnd = netip.MustParseAddrPort("192.0.2.1:5060")
	proxyEnd  = netip.MustParseAddrPort("192.0.2.2:5060")
	peerEnd   = netip.MustParseAddrPort("192.0.2.2:41000")
	serverEnd = netip.MustParseAddrPort("192.0.2.3:3868")
)

// writeSignalling writes a capture with at most the given number of packets of a steady load. rate
// is in packets per second of capture time.
func writeSignalling(out io.Writer, packets int, rate float64) (signalled, error) {
	f := capturetest.NewFile(out)
	var s signalling
	s.conn = capturetest.Conn{Client: peerEnd, Server: serverEnd, Frames: &s.frames}
	const first = 1_700_000_000_000_000_000
	step := int64(1e9 / rate)
	at, n := int64(first), 0
	add := func(frame []byte) {
		f.Add(at, frame)
		at += step
		n++
	}
	s.conn.Open(add)
	opening := n
	call := 0
	for ; n+packetsPerCall <= packets; call++ {
		s.begin(call, add)
		if call >= openCalls {
			s.end(call-openCalls, add)
		}
	}
	return signalled{uint64(n - opening), uint64(call)}, f.Close()
}

// begin adds the packets that set up a call.
func (s *signalling) begin(n int, add func([]byte)) {
	user := n % callers
	add(s.frames.UDP(callerEnd, proxyEnd, s.request("INVITE", n, user)))
	add(s.frames.UDP(proxyEnd, callerEnd, s.answer(100, "INVITE", n, user)))
	s.exchange(302, n, user, add) // Location-Info
	add(s.frames.UDP(proxyEnd, callerEnd, s.answer(180, "INVITE", n, user)))
	add(s.frames.UDP(proxyEnd, callerEnd, s.answer(200, "INVITE", n, user)))
	add(s.frames.UDP(callerEnd, proxyEnd, s.request("ACK", n, user)))
}

// end adds the packets that end a call.
func (s *signalling) end(n int, add func([]byte)) {
	user := n % callers
	add(s.frames.UDP(callerEnd, proxyEnd, s.request("BYE", n, user)))
	s.exchange(271, n, user, add) // Accounting
	add(s.frames.UDP(proxyEnd, callerEnd, s.answer(200, "BYE", n, user)))
}

const sdp = "v=0\r\no=- 3724394400 3724394405 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 49170 RTP/AVP 0 8 97\r\n" +
	"a=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:97 iLBC/8000\r\na=ptime:20\r\na=sendrecv\r\n"

func (s *signalling) request(method string, call, user int) []byte {
	body := ""
	if method == "INVITE" {
		body = sdp
	}
	s.text = fmt.Appendf(s.text[:0], "%s sip:callee%d@ims.example.test SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK%s%dx7f;rport\r\n"+
		"Max-Forwards: 70\r\nRoute: <sip:192.0.2.2:5060;lr>\r\nFrom: \"User %d\" <sip:user%d@ims.example.test>;tag=a%d\r\nTo: <sip:callee%d@ims.example.test>%s\r\n"+
		"Call-ID: %d-3848276298220188511@192.0.2.1\r\nCSeq: %d %s\r\nContact: <sip:user%d@192.0.2.1:5060>;+sip.instance=\"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>\"\r\n"+
		"P-Preferred-Identity: <sip:user%d@ims.example.test>\r\nP-Access-Network-Info: 3GPP-E-UTRAN-FDD;utran-cell-id-3gpp=0010100010000001\r\n"+
		"Supported: 100rel, path, timer\r\nAllow: INVITE, ACK, CANCEL, BYE, PRACK, UPDATE, OPTIONS\r\nUser-Agent: agent/1.0\r\nContent-Type: application/sdp\r\nContent-Length: %d\r\n\r\n%s",
		method, user, method, call, user, user, call, user, toTag(method, call), call, sequenceOf(method), method, user, user, len(body), body)
	return s.text
}

func (s *signalling) answer(status int, method string, call, user int) []byte {
	body := ""
	if status == 200 && method == "INVITE" {
		body = sdp
	}
	s.text = fmt.Appendf(s.text[:0], "SIP/2.0 %d Fine\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK%s%dx7f;rport=5060;received=192.0.2.1\r\n"+
		"From: \"User %d\" <sip:user%d@ims.example.test>;tag=a%d\r\nTo: <sip:callee%d@ims.example.test>;tag=b%d\r\nCall-ID: %d-3848276298220188511@192.0.2.1\r\n"+
		"CSeq: %d %s\r\nContact: <sip:callee%d@192.0.2.2:5060>\r\nServer: proxy/1.0\r\nContent-Type: application/sdp\r\nContent-Length: %d\r\n\r\n%s",
		status, method, call, user, user, call, user, call, call, sequenceOf(method), method, user, len(body), body)
	return s.text
}

func toTag(method string, call int) string {
	if method == "INVITE" {
		return ""
	}
	return fmt.Sprintf(";tag=b%d", call)
}

func sequenceOf(method string) int {
	if method == "BYE" {
		return 2
	}
	return 1
}

// exchange adds a Diameter request and its answer.
func (s *signalling) exchange(command uint32, call, user int, add func([]byte)) {
	s.hop++
	add(s.conn.Send(false, s.diameter(command, 0xc0, call, user)))
	add(s.conn.Send(true, s.diameter(command, 0x40, call, user)))
}

func (s *signalling) diameter(command, flags uint32, call, user int) []byte {
	application := uint32(16777216)
	if command == 271 {
		application = 3
	}
	b := append(s.text[:0], 1, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, flags<<24|command)
	b = binary.BigEndian.AppendUint32(b, application)
	b = binary.BigEndian.AppendUint32(b, s.hop)
	b = binary.BigEndian.AppendUint32(b, s.hop+1)
	b = appendAVP(b, 263, 0, "scscf.ims.example.test;1876543210;%d", call)
	b = appendAVP(b, 264, 0, "scscf.ims.example.test")
	b = appendAVP(b, 296, 0, "ims.example.test")
	if flags == 0xc0 {
		b = appendAVP(b, 283, 0, "ims.example.test")
		b = appendAVP(b, 1, 0, "user%d@ims.example.test", user)
		b = appendAVP(b, 601, 10415, "sip:user%d@ims.example.test", user)
	} else {
		b = appendAVP(b, 268, 0, "\x00\x00\x07\xd1") // DIAMETER_SUCCESS
		b = appendAVP(b, 602, 10415, "sip:scscf.ims.example.test:5054")
	}
	b[1], b[2], b[3] = byte(len(b)>>16), byte(len(b)>>8), byte(len(b))
	s.text = b
	return b
}

// appendAVP appends an AVP with formatted text, padded to a multiple of 4 octets (RFC 6733 section
// 4.1). Vendor 0 leaves the Vendor-ID out.
func appendAVP(b []byte, code, vendor uint32, format string, values ...any) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, code)
	b = append(b, 0x40, 0, 0, 0)
	if vendor != 0 {
		b[start+4] = 0xc0
		b = binary.BigEndian.AppendUint32(b, vendor)
	}
	b = fmt.Appendf(b, format, values...)
	n := len(b) - start
	b[start+5], b[start+6], b[start+7] = byte(n>>16), byte(n>>8), byte(n)
	return append(b, make([]byte, -n&3)...)
}
