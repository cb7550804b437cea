package ims_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"

	"vitrine/reference/ims"
)

// A phone is a SIP user agent of one subscriber, registered through a Bono.
type phone struct {
	t        testing.TB
	user     string
	password string
	bono     netip.AddrPort
	conn     *net.UDPConn
	callID   string
	cseq     int
	nc       int
	auth     *digest.Challenge

	mu      sync.Mutex
	answers map[string]chan *sip.Response // by branch
	asked   chan *sip.Request             // requests received, without retransmissions
	seen    map[string]bool
}

func (s site) phone(host, subscriber int, bono string) *phone {
	s.t.Helper()
	local := netip.MustParseAddrPort(s.at(host, 0))
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
	if err != nil {
		s.t.Fatal(err)
	}
	user := ims.User(subscriber)
	p := &phone{
		t: s.t, user: user, password: ims.Password(user), bono: netip.MustParseAddrPort(bono), conn: conn,
		callID: sip.GenerateBranch(), answers: map[string]chan *sip.Response{}, asked: make(chan *sip.Request, 100), seen: map[string]bool{},
	}
	done := make(chan struct{})
	go func() { defer close(done); p.listen() }()
	s.t.Cleanup(func() { conn.Close(); <-done })
	return p
}

func (p *phone) listen() {
	buf := make([]byte, 65536)
	for {
		n, err := p.conn.Read(buf)
		if err != nil {
			return
		}
		msg, err := sip.ParseMessage(buf[:n])
		if err != nil {
			p.t.Errorf("the phone received a message that is not SIP: %v: %q", err, buf[:n])
			continue
		}
		branch, _ := msg.Via().Params.Get("branch")
		p.mu.Lock()
		switch m := msg.(type) {
		case *sip.Response:
			if answers := p.answers[branch]; answers != nil {
				answers <- m
			}
		case *sip.Request:
			if key := branch + string(m.Method); !p.seen[key] {
				p.seen[key] = true
				p.asked <- m
			}
		}
		p.mu.Unlock()
	}
}

func (p *phone) contact() string { return "sip:" + p.user + "@" + p.conn.LocalAddr().String() }

// message returns a request. headers are whole lines. From, To, Call-ID, CSeq,
// Contact and Max-Forwards get the phone's own values unless headers sets them. A name
// without a value, as in "Contact:", leaves the header out.
func (p *phone) message(method, uri, branch string, headers ...string) []byte {
	var b strings.Builder
	given := "\r\n" + strings.ToLower(strings.Join(headers, "\r\n"))
	add := func(name, value string) {
		if !strings.Contains(given, "\r\n"+strings.ToLower(name)+":") {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	fmt.Fprintf(&b, "%s %s SIP/2.0\r\n", method, uri)
	fmt.Fprintf(&b, "Via: SIP/2.0/UDP %s;rport;branch=%s\r\n", p.conn.LocalAddr(), branch)
	add("From", "<"+ims.PublicID(p.user)+">;tag=phone")
	add("To", "<"+ims.PublicID(p.user)+">")
	add("Call-ID", p.callID)
	add("CSeq", fmt.Sprintf("%d %s", p.cseq, method))
	add("Contact", "<"+p.contact()+">")
	add("Max-Forwards", "70")
	for _, h := range headers {
		if !strings.HasSuffix(h, ":") {
			b.WriteString(h + "\r\n")
		}
	}
	b.WriteString("Content-Length: 0\r\n\r\n")
	return []byte(b.String())
}

func (p *phone) send(data []byte) {
	p.t.Helper()
	if _, err := p.conn.WriteToUDPAddrPort(data, p.bono); err != nil {
		p.t.Fatal(err)
	}
}

// A pending is a request of a phone that waits for answers.
type pending struct {
	p       *phone
	branch  string
	data    []byte
	answers chan *sip.Response
}

// ask sends a request.
func (p *phone) ask(method, uri string, headers ...string) *pending {
	p.t.Helper()
	p.cseq++
	branch := sip.GenerateBranch()
	a := &pending{p: p, branch: branch, data: p.message(method, uri, branch, headers...), answers: make(chan *sip.Response, 100)}
	p.mu.Lock()
	p.answers[branch] = a.answers
	p.mu.Unlock()
	p.send(a.data)
	return a
}

// next returns the next answer. It repeats the request until one arrives.
func (a *pending) next() *sip.Response {
	a.p.t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case res := <-a.answers:
			return res
		case <-again.C:
			a.p.send(a.data)
		case <-deadline:
			a.p.t.Fatalf("got no answer to %q", a.data)
		}
	}
}

// until waits for the provisional answer status. Other provisional answers may
// precede it, because on a slow host the phone repeats its request.
func (a *pending) until(status int) {
	a.p.t.Helper()
	for {
		res := a.next()
		if res.StatusCode == status {
			return
		}
		if res.StatusCode >= 200 {
			a.p.t.Fatalf("got answer %d, want %d first", res.StatusCode, status)
		}
	}
}

// final returns the next final answer.
func (a *pending) final() *sip.Response {
	a.p.t.Helper()
	for {
		if res := a.next(); res.StatusCode >= 200 {
			return res
		}
	}
}

// register sends one REGISTER, with credentials if there was a challenge.
func (p *phone) register(expires int, headers ...string) *sip.Response {
	p.t.Helper()
	headers = append(headers, fmt.Sprintf("Expires: %d", expires))
	if p.auth != nil {
		p.nc++
		headers = append(headers, "Authorization: "+p.credentials(p.nc))
	}
	res := p.ask("REGISTER", "sip:"+ims.Domain, headers...).final()
	if h := res.GetHeader("WWW-Authenticate"); h != nil {
		challenge, err := digest.ParseChallenge(h.Value())
		if err != nil {
			p.t.Fatal(err)
		}
		p.auth, p.nc = challenge, 0
	}
	return res
}

func (p *phone) credentials(count int) string {
	c, err := digest.Digest(p.auth, digest.Options{
		Method: "REGISTER", URI: "sip:" + ims.Domain, Count: count, Username: p.user + "@" + ims.Domain, Password: p.password,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return c.String()
}

// signIn registers and answers the challenge.
func (p *phone) signIn(expires int) *sip.Response {
	p.t.Helper()
	p.auth = nil
	p.want(p.register(expires), 401)
	return p.want(p.register(expires), 200)
}

// subscribe subscribes to the state of the phone's registration. The Call-ID names the dialog.
func (p *phone) subscribe(callID string, headers ...string) *sip.Response {
	p.t.Helper()
	headers = append(headers, "Event: reg", "Expires: 300", "Call-ID: "+callID)
	return p.ask("SUBSCRIBE", ims.PublicID(p.user), headers...).final()
}

func (p *phone) want(res *sip.Response, status int) *sip.Response {
	p.t.Helper()
	if res.StatusCode != status {
		p.t.Fatalf("%s %s: got %d %s, want %d", p.user, res.CSeq().Value(), res.StatusCode, res.Reason, status)
	}
	return res
}

// expect returns the next request that the phone receives. Its method must be
// method.
func (p *phone) expect(method string) *sip.Request {
	p.t.Helper()
	select {
	case req := <-p.asked:
		if string(req.Method) != method {
			p.t.Fatalf("%s received %s, want %s", p.user, req.Method, method)
		}
		return req
	case <-time.After(patience):
		p.t.Fatalf("%s received no %s", p.user, method)
	}
	return nil
}

// reply answers a request with this phone's tag and contact.
func (p *phone) reply(req *sip.Request, status int, reason string) {
	p.t.Helper()
	res := sip.NewResponseFromRequest(req, status, reason, nil)
	if status > 100 {
		res.To().Params.Add("tag", "callee")
		res.AppendHeader(sip.NewHeader("Contact", "<"+p.contact()+">"))
	}
	via := req.Via()
	to := netip.AddrPortFrom(netip.MustParseAddr(via.Host), uint16(via.Port))
	if _, err := p.conn.WriteToUDPAddrPort([]byte(res.String()), to); err != nil {
		p.t.Fatal(err)
	}
}

// routeLines converts Record-Route headers to Route lines.
func routeLines(headers []sip.Header, reverse bool) []string {
	var lines []string
	for _, h := range headers {
		if reverse {
			lines = append([]string{"Route: " + h.Value()}, lines...)
		} else {
			lines = append(lines, "Route: "+h.Value())
		}
	}
	return lines
}
