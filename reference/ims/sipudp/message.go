package sipudp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"

	"github.com/emiago/sipgo/sip"

	wiresip "vitrine/wire/sip"
)

// ErrMessage is what every error of Parse wraps.
var ErrMessage = errors.New("not a usable SIP message")

// Parse reads a datagram. Beyond sipgo's own checks it wants the header fields
// that RFC 3261 section 8.1.1 makes mandatory and a Via with a branch of
// section 8.1.1.7. An empty keep-alive (RFC 5626 section 4.4.1) gives nil, nil.
func Parse(parser *sip.Parser, data []byte) (sip.Message, error) {
	if len(bytes.Trim(data, "\r\n\x00")) == 0 {
		return nil, nil
	}
	msg, err := parser.ParseSIP(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if msg.Via() == nil || msg.From() == nil || msg.To() == nil || msg.CallID() == nil || msg.CSeq() == nil {
		return nil, fmt.Errorf("%w: Via, From, To, Call-ID or CSeq is missing", ErrMessage)
	}
	if branch, _ := msg.Via().Params.Get("branch"); !strings.HasPrefix(branch, sip.RFC3261BranchMagicCookie) {
		return nil, fmt.Errorf("%w: the branch %q of the top Via does not begin with %s", ErrMessage, branch, sip.RFC3261BranchMagicCookie)
	}
	if req, ok := msg.(*sip.Request); ok && req.Method != req.CSeq().MethodName {
		return nil, fmt.Errorf("%w: method %s with CSeq %s", ErrMessage, req.Method, req.CSeq().MethodName)
	}
	return msg, nil
}

// Bytes is the message as sent.
func Bytes(msg sip.Message) []byte {
	var b bytes.Buffer
	b.Grow(1024)
	msg.StringWrite(&b)
	return b.Bytes()
}

// NewToken is a random text fit for branches and tags.
func NewToken() string { return strconv.FormatUint(rand.Uint64(), 36) }

// ReturnPath notes on the top Via where the request came from, and says where
// its answers go: to the source port when the sender asked for that with rport,
// else to the port in the Via (RFC 3581 section 4, RFC 3261 section 18.2).
func ReturnPath(req *sip.Request, from netip.AddrPort) netip.AddrPort {
	via := req.Via()
	host := from.Addr().String()
	if _, asked := via.Params.Get("rport"); asked {
		via.Params.Add("rport", strconv.Itoa(int(from.Port())))
		via.Params.Add("received", host)
		return from
	}
	if via.Host != host {
		via.Params.Add("received", host)
	}
	port := via.Port
	if port == 0 {
		port = wiresip.DefaultPort
	}
	return netip.AddrPortFrom(from.Addr(), uint16(port))
}

// Reply makes an answer to a request whose ReturnPath is known.
func Reply(req *sip.Request, status int, reason string, headers ...sip.Header) *sip.Response {
	res := sip.NewResponseFromRequest(req, status, reason, nil)
	for _, h := range headers {
		res.AppendHeader(h)
	}
	return res
}

// pushVia puts this node on top of the Vias, asking for answers to the port
// that the request is sent from.
func pushVia(req *sip.Request, local netip.AddrPort, branch string) {
	req.PrependHeader(&sip.ViaHeader{
		ProtocolName: "SIP", ProtocolVersion: "2.0", Transport: "UDP",
		Host: local.Addr().String(), Port: int(local.Port()),
		Params: sip.HeaderParams{{K: "rport"}, {K: "branch", V: branch}},
	})
}

// RouteAddr is the address in a Route, Record-Route or Path URI; false when it
// holds a name or no port, which nothing in this IMS writes.
func RouteAddr(uri *sip.Uri) (netip.AddrPort, bool) {
	addr, ok := wiresip.ParseHost([]byte(uri.Host))
	port := uri.Port
	if port == 0 {
		port = wiresip.DefaultPort
	}
	if !ok || port < 0 || port > 65535 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr, uint16(port)), true
}

// HopsLeft takes one from Max-Forwards, and says whether the request may go on
// (RFC 3261 section 16.3, 16.6).
func HopsLeft(req *sip.Request) bool {
	left := req.MaxForwards()
	if left == nil {
		initial := sip.MaxForwardsHeader(70)
		req.AppendHeader(&initial)
		return true
	}
	if *left == 0 {
		return false
	}
	left.Dec()
	return true
}

// Initial says whether the request begins something, rather than belonging to
// a dialog or ending a transaction. Only such requests may be shed.
func Initial(req *sip.Request) bool {
	return req.Method != sip.ACK && req.Method != sip.CANCEL && !req.To().Params.Has("tag")
}
