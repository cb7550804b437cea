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

// ErrMessage is wrapped by every error of Parse.
var ErrMessage = errors.New("not a usable SIP message")

// Parse parses a datagram. In addition to sipgo's own checks it requires the
// mandatory header fields of RFC 3261 section 8.1.1 and a Via with a branch of
// section 8.1.1.7. It returns nil, nil for an empty keep-alive (RFC 5626 section
// 4.4.1).
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

// Bytes returns the encoded message.
func Bytes(msg sip.Message) []byte {
	var b bytes.Buffer
	b.Grow(1024)
	msg.StringWrite(&b)
	return b.Bytes()
}

// NewToken returns a random text for a branch or a tag.
func NewToken() string { return strconv.FormatUint(rand.Uint64(), 36) }

// ReturnPath records the request's source in the top Via, and returns the address
// for its answers: the source port if the Via has rport, otherwise the port in
// the Via (RFC 3581 section 4, RFC 3261 section 18.2).
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

// Reply returns an answer to a request that has passed through ReturnPath.
func Reply(req *sip.Request, status int, reason string, headers ...sip.Header) *sip.Response {
	res := sip.NewResponseFromRequest(req, status, reason, nil)
	for _, h := range headers {
		res.AppendHeader(h)
	}
	return res
}

// pushVia adds this node's Via on top, with rport so that answers go to the
// source port.
func pushVia(req *sip.Request, local netip.AddrPort, branch string) {
	req.PrependHeader(&sip.ViaHeader{
		ProtocolName: "SIP", ProtocolVersion: "2.0", Transport: "UDP",
		Host: local.Addr().String(), Port: int(local.Port()),
		Params: sip.HeaderParams{{K: "rport"}, {K: "branch", V: branch}},
	})
}

// LooseURI returns the URI of a loose router (RFC 3261 section 19.1.1).
func LooseURI(of netip.AddrPort) sip.Uri {
	return sip.Uri{Scheme: "sip", Host: of.Addr().String(), Port: int(of.Port()), UriParams: sip.HeaderParams{{K: "lr"}}}
}

// RouteAddr returns the address in a Route, Record-Route or Path URI; without a
// port it is the default port. It returns false for a host name, which no node of
// this IMS writes.
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

// HopsLeft decrements Max-Forwards, and reports whether the request may be
// forwarded (RFC 3261 section 16.3, 16.6).
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

// Initial reports whether the request is outside a dialog and does not end a
// transaction. Only such requests may be shed.
func Initial(req *sip.Request) bool {
	return req.Method != sip.ACK && req.Method != sip.CANCEL && !req.To().Params.Has("tag")
}
