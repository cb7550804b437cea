package loadtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"vitrine/wire/sip"
)

// A Behaviour tells a Responder which calls not to answer normally. The shares are exact: they
// apply to the first calls of every hundred.
type Behaviour struct {
	Refuse int           // percent answered 503
	Ignore int           // percent not answered
	Delay  time.Duration // delay of the 200 to a REGISTER with credentials, or of an HTTP answer
	Shut   bool          // close the socket, so that nothing listens
	Lose   bool          // SIP: lose the first copy of each request, as a bad network does
}

// Seen holds the counts of a Responder.
type Seen struct {
	Requests  map[string]int // by method; ACK too
	Responses int            // responses from callees
	Sent      int            // messages to the generator
	Calls     int            // calls begun: a GET, or a REGISTER without credentials and with a new Call-ID
	Refused   int            // of Calls: refused
	Ignored   int            // of Calls: not answered
	Finished  int            // calls that ended well: with deregistration, BYE or the answer to a GET
	Arrivals  []time.Time    // time at which each of Calls arrived
	BadDigest int            // wrong credentials
	Unparsed  int
}

// Received returns the number of messages from the generator.
func (s Seen) Received() int {
	n := s.Responses
	for _, v := range s.Requests {
		n += v
	}
	return n
}

// A tally holds the counts of a function with a Behaviour.
type tally struct {
	behaviour Behaviour

	mu   sync.Mutex
	seen Seen
}

func newTally(b Behaviour) tally {
	return tally{behaviour: b, seen: Seen{Requests: map[string]int{}}}
}

// Seen returns the counts so far.
func (t *tally) Seen() Seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.seen
	seen.Requests = maps.Clone(t.seen.Requests)
	seen.Arrivals = slices.Clone(t.seen.Arrivals)
	return seen
}

// begin counts a call that begins now, and returns its fate: 'a'nswered, 'r'efused or
// 'i'gnored. The caller holds mu.
func (t *tally) begin() byte {
	place := t.seen.Calls % 100
	t.seen.Calls++
	t.seen.Arrivals = append(t.seen.Arrivals, time.Now())
	switch {
	case place < t.behaviour.Refuse:
		t.seen.Refused++
		return 'r'
	case place < t.behaviour.Refuse+t.behaviour.Ignore:
		t.seen.Ignored++
		return 'i'
	}
	return 'a'
}

// A Responder is a small SIP function on loopback. It is a registrar that challenges and sends
// notifications, and a stateless proxy that adds Record-Route to INVITE. It has the generators'
// default subscribers.
type Responder struct {
	tally
	conn *net.UDPConn
	addr netip.AddrPort

	// Under mu.
	fate     map[string]byte           // by Call-ID; see begin
	copies   map[string]bool           // requests that have arrived, by their content
	contacts map[string]netip.AddrPort // by address of record
	uris     map[string]string
	timers   []*time.Timer
}

const (
	domain = "ims.test"
	nonce  = "f84f1cec41e6cbe5aea9c8e88d359f7c"
)

// NewResponder returns a Responder that listens on a free port of address and
// answers until ctx ends.
func NewResponder(ctx context.Context, address string, b Behaviour) (*Responder, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address)})
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(8 << 20) // best effort
	r := &Responder{
		tally: newTally(b), conn: conn, addr: conn.LocalAddr().(*net.UDPAddr).AddrPort(),
		fate: map[string]byte{}, copies: map[string]bool{},
		contacts: map[string]netip.AddrPort{}, uris: map[string]string{},
	}
	if b.Shut {
		return r, conn.Close()
	}
	done := make(chan struct{})
	go func() { defer close(done); r.serve() }()
	context.AfterFunc(ctx, func() {
		conn.Close()
		<-done
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, t := range r.timers {
			t.Stop()
		}
	})
	return r, nil
}

// Addr returns the listen address.
func (r *Responder) Addr() string { return r.addr.String() }

func (r *Responder) serve() {
	buffer := make([]byte, 65536)
	for {
		n, source, err := r.conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			r.handle(buffer[:n], source)
		}
	}
}

func (r *Responder) handle(data []byte, source netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var m sip.Message
	if _, err := m.Parse(data); err != nil {
		r.seen.Unparsed++
		return
	}
	if !m.IsRequest() {
		r.seen.Responses++
		r.forwardResponse(&m)
		return
	}
	if r.behaviour.Lose && r.isFirst(&m) {
		return
	}
	r.seen.Requests[string(m.Method)]++
	switch string(m.Method) {
	case "REGISTER":
		r.register(&m, source)
	case "SUBSCRIBE":
		r.subscribe(&m, source)
	case "INVITE":
		r.answer(&m, source, 100, "Trying", "")
		r.forward(&m, r.contacts[string(sip.Address(m.To))], r.uris[string(sip.Address(m.To))])
	case "OPTIONS": // a health check
		r.answer(&m, source, 200, "OK", "")
	case "ACK", "BYE":
		if m.Method[0] == 'B' {
			r.seen.Finished++
		}
		r.forward(&m, contactOf(m.URI), string(m.URI))
	}
}

// isFirst reports whether no copy of the request has arrived before.
func (r *Responder) isFirst(m *sip.Message) bool {
	key := fmt.Sprintf("%s %d %s", m.CallID, m.Sequence, m.Method)
	first := !r.copies[key]
	r.copies[key] = true
	return first
}

// register challenges a REGISTER, checks its credentials and stores its contact.
func (r *Responder) register(m *sip.Message, source netip.AddrPort) {
	if m.Authorization == nil {
		switch r.chooseFate(string(m.CallID)) {
		case 'r':
			r.answer(m, source, 503, "Service Unavailable", "")
		case 'a':
			r.answer(m, source, 401, "Unauthorized", `WWW-Authenticate: Digest realm="`+domain+`",nonce="`+nonce+`",algorithm=MD5,qop="auth"`+"\r\n")
		}
		return
	}
	user := string(sip.AuthParam(m.Authorization, "username"))
	scratch := make([]byte, 0, 512)
	c := sip.Credentials{
		Nonce: []byte(nonce), QOP: true, CNonce: sip.AuthParam(m.Authorization, "cnonce"),
		HA1: sip.HA1(scratch, []byte(user), []byte(domain), []byte("pw-"+strings.TrimSuffix(user, "@"+domain))),
		HA2: sip.HA2(scratch, "REGISTER", sip.AuthParam(m.Authorization, "uri")),
	}
	c.Count = 1
	if string(sip.AuthParam(m.Authorization, "nc")) == "00000002" {
		c.Count = 2
	}
	if want := c.Response(scratch); string(want[:]) != string(sip.AuthParam(m.Authorization, "response")) {
		r.seen.BadDigest++
		r.answer(m, source, 403, "Forbidden", "")
		return
	}
	identity := string(sip.Address(m.To))
	if string(m.Expires) == "0" {
		r.seen.Finished++
	} else {
		r.uris[identity] = string(sip.Address(m.Contact))
		r.contacts[identity] = contactOf(sip.Address(m.Contact))
	}
	r.answer(m, source, 200, "OK", "Contact: "+string(m.Contact)+"\r\nService-Route: <sip:"+r.Addr()+";lr>\r\n")
}

// chooseFate returns the fate of the call that begins with this Call-ID.
func (r *Responder) chooseFate(callID string) byte {
	if f, known := r.fate[callID]; known {
		return f
	}
	f := r.begin()
	r.fate[callID] = f
	return f
}

// subscribe answers a SUBSCRIBE. For every other one it sends the NOTIFY before
// the answer.
func (r *Responder) subscribe(m *sip.Message, source netip.AddrPort) {
	contact := sip.Address(m.Contact)
	b := sip.AppendRequestLine(nil, "NOTIFY", contact)
	b = append(b, "Via: SIP/2.0/UDP "+r.Addr()+";branch=z9hG4bKn"+string(m.CallID)+"\r\nMax-Forwards: 70\r\n"...)
	b = sip.AppendField(b, "From", append(append([]byte{}, m.To...), ";tag=r"...))
	b = sip.AppendField(b, "To", m.From)
	b = sip.AppendField(b, "Call-ID", m.CallID)
	b = append(b, "CSeq: 1 NOTIFY\r\nEvent: reg\r\nSubscription-State: active;expires=60\r\nContact: <sip:"+r.Addr()+">\r\n"...)
	b = sip.AppendEnd(b, nil)
	early := r.seen.Requests["SUBSCRIBE"]%2 == 0
	if early {
		r.send(b, contactOf(contact))
	}
	r.answer(m, source, 200, "OK", "Expires: 60\r\nContact: <sip:"+r.Addr()+">\r\n")
	if !early {
		r.send(b, contactOf(contact))
	}
}

// answer answers the request. It delays the 200 to a REGISTER by Behaviour.Delay.
func (r *Responder) answer(m *sip.Message, source netip.AddrPort, status int, reason, more string) {
	b := sip.AppendResponse(nil, m, status, reason, []byte("r"), source)
	b = sip.AppendEnd(append(b, more...), nil)
	to := sip.ReplyTo(m, source)
	if r.behaviour.Delay > 0 && status == 200 && string(m.Method) == "REGISTER" {
		r.timers = append(r.timers, time.AfterFunc(r.behaviour.Delay, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.send(b, to)
		}))
		return
	}
	r.send(b, to)
}

// forward forwards a request as a stateless proxy with Record-Route.
func (r *Responder) forward(m *sip.Message, to netip.AddrPort, uri string) {
	if !to.IsValid() {
		return
	}
	b := sip.AppendRequestLine(nil, string(m.Method), []byte(uri))
	b = append(b, "Via: SIP/2.0/UDP "+r.Addr()+";branch=z9hG4bKp"+string(m.CallID)+string(m.SequenceMethod)+"\r\n"...)
	if string(m.Method) == "INVITE" {
		b = append(b, "Record-Route: <sip:"+r.Addr()+";lr>\r\n"...)
	}
	for f := m.Fields(); f.Next(); {
		if f.Kind == sip.Route && contactOf(sip.Address(f.Value)) == r.addr {
			continue
		}
		if f.Kind != sip.ContentLength {
			b = sip.AppendField(b, string(f.Name), f.Value)
		}
	}
	r.send(sip.AppendEnd(b, m.Body), to)
}

// forwardResponse forwards a callee's response to the caller. Responses to NOTIFY end here.
func (r *Responder) forwardResponse(m *sip.Message) {
	if string(m.SequenceMethod) == "NOTIFY" {
		return
	}
	b := sip.AppendStatusLine(nil, m.Status, string(m.Reason))
	var to netip.AddrPort
	vias := 0
	for f := m.Fields(); f.Next(); {
		switch f.Kind {
		case sip.Via:
			for rest := f.Value; len(rest) > 0; {
				var via []byte
				via, rest = sip.CutElement(rest)
				if vias++; vias == 1 {
					continue
				}
				if vias == 2 {
					hop, _ := sip.ParseViaHop(via)
					var ok bool
					if to, ok = hop.Target(); !ok {
						return
					}
				}
				b = sip.AppendField(b, "Via", via)
			}
		case sip.ContentLength:
		default:
			b = sip.AppendField(b, string(f.Name), f.Value)
		}
	}
	r.send(sip.AppendEnd(b, m.Body), to)
}

func (r *Responder) send(b []byte, to netip.AddrPort) {
	if !to.IsValid() {
		return
	}
	if _, err := r.conn.WriteToUDPAddrPort(b, to); err == nil {
		r.seen.Sent++
	}
}

// contactOf returns the address in a URI. It is not valid if the URI has a host
// name.
func contactOf(uri []byte) netip.AddrPort {
	u, _ := sip.ParseURI(uri)
	a, ok := u.Target()
	if !ok {
		return netip.AddrPort{}
	}
	return a
}
