package sip

import (
	"net/netip"
	"strconv"
	"time"

	"vitrine/wire/sip"
)

// request sends the first request of the call's step, or sends the request again with the answer
// to a challenge.
func (e *engine) request(c *call, first bool) {
	s := c.socket
	if s.full() {
		s.flush(e.sentFunc)
		if !c.alive {
			return
		}
	}
	c.transaction++
	c.proceeding, c.answered, c.accepted, c.confirmed = false, false, false, false
	b := e.appendRequest(s.next(), c)
	e.logSent(s, b, netip.AddrPort{}, e.eventOf(c), c.step.eventType())
	s.push(b, netip.AddrPort{}, owner{call: c, generation: c.generation, first: first})
	e.timeouts.Push(alarm{call: c, at: e.now + time.Duration(e.params.Timeout), generation: c.generation, transaction: c.transaction})
	if e.params.Retransmit {
		c.last = append(c.last[:0], b...)
		e.sendAgain(alarm{call: c, first: e.now, generation: c.generation, transaction: c.transaction})
	}
}

func (e *engine) appendRequest(b []byte, c *call) []byte {
	switch c.step {
	case registerCaller:
		return e.appendRegister(b, c, &c.caller, 'a', e.params.Expires)
	case registerCallee:
		return e.appendRegister(b, c, &c.callee, 'b', e.params.Expires)
	case deregister:
		return e.appendRegister(b, c, &c.caller, 'a', 0)
	case subscribe:
		return e.appendSubscribe(b, c)
	case invite:
		return e.appendInvite(b, c)
	}
	return e.appendInDialog(b, c, "BYE", c.sequence+1, true)
}

// appendIdentity appends sip:user@domain of a subscriber.
func (e *engine) appendIdentity(b []byte, number int) []byte {
	b = e.format.append(append(b, "sip:"...), number)
	return append(append(b, '@'), e.params.Domain...)
}

// appendVia appends the Via line with the branch of the call's transaction.
func appendVia(b []byte, c *call, transaction uint8) []byte {
	b = append(b, c.socket.via...)
	b = appendHex(appendHex(b, c.index, 8), c.generation, 8)
	return append(appendHex(b, uint32(transaction), 2), "\r\nMax-Forwards: 70\r\n"...)
}

// appendFrom appends the From line.
func (e *engine) appendFrom(b []byte, c *call, number int) []byte {
	b = e.appendIdentity(append(b, "From: <"...), number)
	return append(appendHex(append(b, ">;tag="...), c.generation, 8), "\r\n"...)
}

// appendTo appends the To line of a request outside a dialog.
func (e *engine) appendTo(b []byte, number int) []byte {
	return append(e.appendIdentity(append(b, "To: <"...), number), ">\r\n"...)
}

// appendContact appends a Contact line: the subscriber's number at the address to
// which the function sends requests.
func (e *engine) appendContact(b []byte, c *call, number int) []byte {
	b = strconv.AppendInt(append(b, "Contact: <sip:v"...), int64(number), 10)
	b = append(b, '@')
	if e.back != nil {
		b = append(b, e.back.host...)
	} else {
		b = append(b, c.socket.host...)
	}
	return append(b, ">\r\n"...)
}

func appendExpires(b []byte, seconds int) []byte {
	return append(strconv.AppendInt(append(b, "Expires: "...), int64(seconds), 10), "\r\n"...)
}

func (e *engine) appendCallIDLine(b []byte, c *call, kind byte) []byte {
	return append(e.appendCallID(append(b, "Call-ID: "...), c, kind), "\r\n"...)
}

func (e *engine) appendRegister(b []byte, c *call, p *party, kind byte, expires int) []byte {
	p.sequence++
	if len(p.lines) == 0 {
		p.lines = e.appendFrom(p.lines, c, p.number)
		p.lines = e.appendTo(p.lines, p.number)
		p.lines = e.appendCallIDLine(p.lines, c, kind)
		p.lines = e.appendContact(p.lines, c, p.number)
	}
	b = sip.AppendRequestLine(b, "REGISTER", e.registrar)
	b = appendVia(b, c, c.transaction)
	b = append(b, p.lines...)
	b = sip.AppendCSeq(b, p.sequence, "REGISTER")
	b = appendExpires(b, expires)
	b = e.appendCredentials(b, p, e.registerHA2, e.registrar)
	return sip.AppendEnd(b, nil)
}

func (e *engine) appendSubscribe(b []byte, c *call) []byte {
	c.sequence++
	e.user = e.appendIdentity(e.user[:0], c.caller.number)
	b = sip.AppendRequestLine(b, "SUBSCRIBE", e.user)
	b = appendVia(b, c, c.transaction)
	b = append(b, c.caller.route...)
	b = e.appendFrom(b, c, c.caller.number)
	b = e.appendTo(b, c.caller.number)
	b = e.appendCallIDLine(b, c, 's')
	b = sip.AppendCSeq(b, c.sequence, "SUBSCRIBE")
	b = e.appendContact(b, c, c.caller.number)
	b = appendExpires(b, e.params.Expires)
	b = append(b, "Event: reg\r\nAccept: application/reginfo+xml\r\n"...)
	b = e.appendChallenged(b, c, "SUBSCRIBE")
	return sip.AppendEnd(b, nil)
}

// sdp is the body of INVITE and of its 200: one inactive audio stream.
const sdp = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\na=inactive\r\n"

var sdpBody = []byte(sdp)

func (e *engine) appendInvite(b []byte, c *call) []byte {
	c.sequence++
	c.inviteSequence = c.sequence
	e.user = e.appendIdentity(e.user[:0], c.callee.number)
	c.target = append(c.target[:0], e.user...)
	b = sip.AppendRequestLine(b, "INVITE", e.user)
	b = appendVia(b, c, c.transaction)
	b = append(b, c.caller.route...)
	b = e.appendFrom(b, c, c.caller.number)
	b = e.appendTo(b, c.callee.number)
	b = e.appendCallIDLine(b, c, 'i')
	b = sip.AppendCSeq(b, c.sequence, "INVITE")
	b = e.appendContact(b, c, c.caller.number)
	b = append(b, "Content-Type: application/sdp\r\n"...)
	b = e.appendChallenged(b, c, "INVITE")
	return sip.AppendEnd(b, sdpBody)
}

// appendInDialog appends ACK (to a 2xx) or BYE.
func (e *engine) appendInDialog(b []byte, c *call, method string, sequence uint32, counts bool) []byte {
	transaction := c.transaction
	if counts {
		c.sequence = sequence
	} else {
		transaction |= 0x80 // an ACK has its own branch (RFC 3261 section 13.2.2.4)
	}
	b = sip.AppendRequestLine(b, method, c.target)
	b = appendVia(b, c, transaction)
	b = append(b, c.routes...)
	b = e.appendFrom(b, c, c.caller.number)
	b = sip.AppendField(b, "To", c.to)
	b = e.appendCallIDLine(b, c, 'i')
	b = sip.AppendCSeq(b, sequence, method)
	if counts {
		e.user = append(e.user[:0], c.target...)
		b = e.appendChallenged(b, c, method)
	}
	return sip.AppendEnd(b, nil)
}

// appendChallenged appends credentials only if the current step was challenged. Outside
// registrations, an IMS trusts registered users. e.user is the request's URI.
func (e *engine) appendChallenged(b []byte, c *call, method string) []byte {
	if !c.fresh {
		return b
	}
	return e.appendCredentials(b, &c.caller, sip.HA2(e.scratch, method, e.user), e.user)
}

// appendCredentials appends the party's answer to its last challenge, if it had
// one, for a request to uri.
func (e *engine) appendCredentials(b []byte, p *party, ha2 sip.Hash, uri []byte) []byte {
	if len(p.nonce) == 0 {
		return b
	}
	p.count++
	var cnonce [8]byte
	var user [128]byte
	credentials := sip.Credentials{
		User: e.appendUsername(user[:0], p.number), Realm: p.realm, Nonce: p.nonce, URI: uri,
		HA1: p.ha1, HA2: ha2, QOP: p.qop, Count: p.count,
		CNonce: appendHex(cnonce[:0], uint32(p.number)*2654435761^p.count, 8),
	}
	if len(p.opaque) > 0 {
		credentials.Opaque = p.opaque
	}
	name := "Authorization: "
	if p.proxy {
		name = "Proxy-Authorization: "
	}
	b = credentials.AppendAuthorization(append(b, name...))
	return append(b, "\r\n"...)
}

// appendUsername appends the username of the credentials.
func (e *engine) appendUsername(b []byte, number int) []byte {
	b = e.format.append(b, number)
	if e.params.Username == "user@domain" {
		b = append(append(b, '@'), e.params.Domain...)
	}
	return b
}

// appendPassword appends the subscriber's password.
func (e *engine) appendPassword(b []byte, number int) []byte {
	format := e.params.PasswordFormat
	for i := 0; i < len(format); i++ {
		if format[i] == '%' { // Decode has checked that this is %s
			b = e.format.append(b, number)
			i++
			continue
		}
		b = append(b, format[i])
	}
	return b
}
