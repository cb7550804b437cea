package testbed

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// ProbeTCP connects to the address. All probes dial from the calling thread, and so from its
// network namespace: see Instance.Inside.
func ProbeTCP(ctx context.Context, at netip.AddrPort) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// ProbeHTTP requests the path and expects a status of 200 to 399. It dials without net/http, which
// would dial from another thread.
func ProbeHTTP(ctx context.Context, at netip.AddrPort, path string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+path, nil)
	if err != nil {
		return err
	}
	request.Close = true
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return fmt.Errorf("GET %s: %s", request.URL, response.Status)
	}
	return nil
}

// A SIPProber sends OPTIONS (RFC 3261 section 11) from one socket. It accepts any answer, even a
// late answer to an earlier probe.
type SIPProber struct{ conn net.Conn }

// Close closes the socket.
func (p *SIPProber) Close() {
	if p.conn != nil {
		p.conn.Close()
	}
}

// Probe sends one request and reads for a millisecond. It must not wait longer: if nobody listens
// at the port, the host sends an ICMP error only about once a second, because ICMP is rate-limited
// (icmp(7)).
func (p *SIPProber) Probe(ctx context.Context, at netip.AddrPort) error {
	if p.conn == nil {
		var d net.Dialer
		var err error
		if p.conn, err = d.DialContext(ctx, "udp", at.String()); err != nil {
			return err
		}
	}
	self := p.conn.LocalAddr().String()
	tag := fmt.Sprintf("%x", time.Now().UnixNano())
	request := strings.Join([]string{
		"OPTIONS sip:" + at.String() + " SIP/2.0",
		"Via: SIP/2.0/UDP " + self + ";rport;branch=z9hG4bK" + tag,
		"Max-Forwards: 70",
		"From: <sip:vitrine@" + self + ">;tag=" + tag,
		"To: <sip:" + at.String() + ">",
		"Call-ID: ready-" + tag,
		"CSeq: 1 OPTIONS",
		"Contact: <sip:vitrine@" + self + ">",
		"Content-Length: 0", "", "",
	}, "\r\n")
	if _, err := p.conn.Write([]byte(request)); err != nil {
		return err
	}
	if err := p.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return err
	}
	answer := make([]byte, 2048)
	n, err := p.conn.Read(answer)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(answer[:n]), "SIP/2.0 ") {
		return fmt.Errorf("%s answered OPTIONS, but not with SIP", at)
	}
	return nil
}
