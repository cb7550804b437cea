package sip

import (
	"errors"
	"net/netip"
	"time"

	"vitrine/internal/truth"
	"vitrine/wire/sip"
)

// receive handles the datagrams waiting on the socket, up to maxBatches. It reads the clock for each
// batch, because the work on a batch delays the next one.
func (e *engine) receive(s *socket) {
	for range maxBatches {
		n := s.receive()
		if n > 0 {
			e.now = e.clock()
		}
		for i := range n {
			data := s.datagram(i)
			if data == nil {
				e.malformed++
				continue
			}
			if _, err := e.message.Parse(data); err != nil {
				if !errors.Is(err, sip.ErrEmpty) {
					e.malformed++
				}
				continue
			}
			var of truth.Event
			if e.message.IsRequest() {
				of = e.messages.Begin()
				e.handleRequest(s, i, of)
			} else {
				of = e.handleResponse(s)
			}
			e.logReceived(s, i, data, of)
		}
		if n < batch {
			return
		}
	}
}

// handleResponse handles the answer to one of our requests. It returns the answer's event if the
// event is known.
func (e *engine) handleResponse(s *socket) (of truth.Event) {
	m := &e.message
	c, transaction := e.findByVia(m.Via)
	if c != nil && c.transaction == transaction {
		of = c.event
	}
	switch {
	case c == nil || c.transaction != transaction || c.answered:
		e.handleRepeated(s, c, of)
	case m.Status < 200:
		c.proceeding = true
	case m.Status < 300:
		e.handleSuccess(c)
	default:
		if c.step == invite {
			e.acknowledgeFailure(c.socket, c, of)
		}
		if (m.Status == 401 || m.Status == 407) && e.answerChallenge(c) {
			return of
		}
		e.fail(c, e.causes.Text(m.Status))
	}
	return of
}

// handleRepeated handles an answer to a request that has an answer, or whose call has ended; then c
// is nil. It acknowledges final answers to INVITE again (RFC 3261 sections 13.2.2.4 and 17.1.1.2).
// Without the ACK, the function would repeat a failure, which adds load.
func (e *engine) handleRepeated(s *socket, c *call, of truth.Event) {
	m := &e.message
	toInvite := string(m.SequenceMethod) == "INVITE"
	switch {
	case toInvite && m.Status >= 300 && s.connected && ownVia(m.Via) != nil:
		e.acknowledgeFailure(s, c, of)
	case toInvite && m.Status/100 == 2 && c != nil && c.step >= invite && len(c.to) > 0:
		e.acknowledge(c)
	default:
		e.stray++
	}
}

// handleSuccess handles a 2xx.
func (e *engine) handleSuccess(c *call) {
	switch c.step {
	case registerCaller, registerCallee:
		p := e.party(c)
		if e.params.Digest && len(p.nonce) == 0 {
			e.fail(c, "unchallenged")
			return
		}
		e.keepServiceRoute(p)
	case subscribe:
		c.answered = true
		if !c.notified {
			return
		}
	case invite:
		c.answered = true
		e.keepDialog(c)
		e.acknowledge(c)
		if !c.alive || !c.confirmed {
			return // the callee's ACK ends the step
		}
	}
	e.advance(c)
}

// party returns the sender of the step's request.
func (e *engine) party(c *call) *party {
	if c.step == registerCallee {
		return &c.callee
	}
	return &c.caller
}

// advance starts the next step, or ends the call.
func (e *engine) advance(c *call) {
	c.step = e.nextStep(c.step)
	c.challenges, c.fresh = 0, false
	switch c.step {
	case done:
		e.succeed(c)
	case holding:
		if e.params.Hold == 0 {
			e.advance(c)
			return
		}
		c.transaction++ // cancels the INVITE's alarms
		e.holds.Push(alarm{call: c, at: e.now + time.Duration(e.params.Hold), generation: c.generation, transaction: c.transaction})
	default:
		e.request(c, false)
	}
}

// answerChallenge repeats the request with credentials. It returns false if it cannot answer the
// challenge, or has already answered one.
func (e *engine) answerChallenge(c *call) bool {
	challenge, ok := e.challenge()
	c.challenges++
	if !ok || !e.params.Digest || c.challenges > 2 || c.fresh && !challenge.Stale {
		return false
	}
	p := e.party(c)
	p.realm = append(p.realm[:0], challenge.Realm...)
	p.nonce = append(p.nonce[:0], challenge.Nonce...)
	p.opaque = append(p.opaque[:0], challenge.Opaque...)
	p.qop, p.proxy, p.count = challenge.QOP, e.message.Status == 407, 0
	e.user = e.appendUsername(e.user[:0], p.number)
	var password [128]byte
	p.ha1 = sip.HA1(e.scratch, e.user, p.realm, e.appendPassword(password[:0], p.number))
	c.fresh = true
	e.request(c, false)
	return true
}

// challenge returns the first challenge of a 401 or 407 that credentials can answer. A function may
// send one for each algorithm, and the best one first (RFC 8760 section 2.4). Mostly there is only one,
// which Parse has found.
func (e *engine) challenge() (c sip.Challenge, ok bool) {
	kind, first := sip.WWWAuthenticate, e.message.WWWAuthenticate
	if e.message.Status == 407 {
		kind, first = sip.ProxyAuthenticate, e.message.ProxyAuthenticate
	}
	c, ok = sip.ParseChallenge(first)
	for f := e.message.Fields(); !ok && f.Next(); {
		if f.Kind == kind {
			c, ok = sip.ParseChallenge(f.Value)
		}
	}
	return c, ok
}

// keepServiceRoute stores the route for later requests of the party (RFC 3608
// section 5).
func (e *engine) keepServiceRoute(p *party) {
	for f := e.message.Fields(); f.Next(); {
		if f.Kind == sip.ServiceRoute {
			p.route = sip.AppendField(p.route, "Route", f.Value)
		}
	}
}

// keepDialog stores the dialog state from the 200 to INVITE (RFC 3261 section
// 12.1.2): the remote target, and the route set in reverse.
func (e *engine) keepDialog(c *call) {
	m := &e.message
	c.to = append(c.to[:0], m.To...)
	if uri := sip.Address(m.Contact); len(uri) > 0 {
		c.target = append(c.target[:0], uri...)
	}
	var routes [16][]byte
	n := 0
	for f := m.Fields(); f.Next(); {
		for rest := f.Value; f.Kind == sip.RecordRoute && len(rest) > 0 && n < len(routes); n++ {
			routes[n], rest = sip.CutElement(rest)
		}
	}
	c.routes = c.routes[:0]
	for n--; n >= 0; n-- {
		c.routes = sip.AppendField(c.routes, "Route", routes[n])
	}
}

// acknowledge sends the ACK to a 2xx.
func (e *engine) acknowledge(c *call) {
	s := c.socket
	if s.full() {
		s.flush(e.sentFunc)
	}
	if c.alive {
		b := e.appendInDialog(s.next(), c, "ACK", c.inviteSequence, false)
		e.logSent(s, b, netip.AddrPort{}, c.event, "")
		s.push(b, netip.AddrPort{}, owner{})
	}
}

// acknowledgeFailure sends the ACK to a 3xx to 6xx, which belongs to the INVITE's
// transaction (RFC 3261 section 17.1.1.3). The answer repeats all that the ACK needs except Route.
// If the call has ended, c is nil and Route is left out: the next hop finds the transaction by Via.
func (e *engine) acknowledgeFailure(s *socket, c *call, of truth.Event) {
	if s.full() {
		s.flush(e.sentFunc)
	}
	m := &e.message
	b := sip.AppendRequestLine(s.next(), "ACK", sip.Address(m.To)) // the URI of our INVITEs
	b = sip.AppendField(b, "Via", ownVia(m.Via))
	b = append(b, "Max-Forwards: 70\r\n"...)
	if c != nil {
		b = append(b, c.caller.route...)
	}
	b = sip.AppendField(b, "From", m.From)
	b = sip.AppendField(b, "To", m.To)
	b = sip.AppendField(b, "Call-ID", m.CallID)
	b = sip.AppendCSeq(b, m.Sequence, "ACK")
	b = sip.AppendEnd(b, nil)
	e.logSent(s, b, netip.AddrPort{}, of, "")
	s.push(b, netip.AddrPort{}, owner{})
}

// handleRequest handles a request from the function, which belongs to the event:
// the callee's side of a call, or a notification.
func (e *engine) handleRequest(s *socket, i int, of truth.Event) {
	m := &e.message
	var source netip.AddrPort
	if !s.connected {
		source = s.source(i)
	}
	c := e.findBySubscriber(m)
	switch string(m.Method) {
	case "INVITE":
		if c == nil || c.step != invite {
			e.reply(s, source, of, nil, 404, "Not Found")
			return
		}
		e.reply(s, source, of, c, 180, "Ringing")
		e.reply(s, source, of, c, 200, "OK")
		c.accepted = true
	case "ACK":
		// The ACK of a back-to-back user agent may overtake the 200 to the caller.
		if c != nil && c.step == invite && (c.accepted || c.answered) {
			c.answer = c.answer[:0]
			c.confirmed = true
			if c.answered {
				e.advance(c)
			}
		}
	case "NOTIFY":
		e.reply(s, source, of, nil, 200, "OK")
		if c != nil && c.step == subscribe {
			c.notified = true
			if c.answered {
				e.advance(c)
			}
		}
	case "BYE", "OPTIONS":
		e.reply(s, source, of, nil, 200, "OK")
	default:
		e.reply(s, source, of, nil, 501, "Not Implemented")
	}
}

// reply answers the request in e.message. c is the call whose callee answers an
// INVITE, or nil.
func (e *engine) reply(s *socket, source netip.AddrPort, of truth.Event, c *call, status int, reason string) {
	if s.full() {
		s.flush(e.sentFunc)
		if c != nil && !c.alive {
			return
		}
	}
	to := source
	if source.IsValid() {
		to = sip.ReplyTo(&e.message, source)
	}
	var tag [9]byte
	own := append(tag[:0], 'n')
	if c != nil {
		own = appendHex(tag[:0], ^c.generation, 8)
	}
	b := sip.AppendResponse(s.next(), &e.message, status, reason, own, source)
	var body []byte
	if c != nil {
		b = e.appendContact(b, c, c.callee.number)
		if status == 200 {
			b = append(b, "Content-Type: application/sdp\r\n"...)
			body = sdpBody
		}
	}
	b = sip.AppendEnd(b, body)
	e.logSent(s, b, to, of, "")
	s.push(b, to, owner{})
	if c != nil && status == 200 && e.params.Retransmit && len(c.answer) == 0 {
		c.answer, c.from, c.reply = append(c.answer, b...), s, to
		e.sendAgain(alarm{call: c, first: e.now, generation: c.generation, transaction: c.transaction, ofAnswer: true})
	}
}
