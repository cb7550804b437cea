package sip

import (
	"errors"
	"net/netip"
	"strconv"
	"time"

	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/wire/sip"
)

// answer builds the director's own answer to a request, except to an ACK. The same
// request always gets the same answer (RFC 3261 section 8.2.7).
func (p *Proxy) answer(m *sip.Message, s *pass, status int, reason string, cause meter.Cause) bool {
	if string(m.Method) == "ACK" {
		return p.drop(s.stamp.ty, cause)
	}
	if status >= 300 {
		p.fail(s.stamp.ty, cause)
	}
	var tag [len(ownTag) + 16]byte
	b := sip.AppendResponse(p.build(), m, status, reason, appendHex(append(tag[:0], ownTag...), s.stamp.transaction, 16), p.in.From)
	switch status {
	case 200:
		b = append(b, "Accept: */*\r\nSupported: path\r\n"...)
	case 420:
		for f := m.Fields(); f.Next(); {
			if f.Kind == sip.ProxyRequire {
				b = sip.AppendField(b, "Unsupported", f.Value)
			}
		}
	case 489:
		b = p.rules.appendEvents(b, m.Method)
	case 500, 503:
		b = append(b, "Retry-After: "...)
		b = strconv.AppendInt(b, int64(p.retryAfter(s, cause)/time.Second), 10)
		b = append(b, '\r', '\n')
	}
	b = sip.AppendEnd(b, nil)
	to := sip.ReplyTo(m, p.in.From)
	if s.stamp.ty != noType && s.via.OC != nil {
		b = p.withFeedback(b)
	}
	return p.reply(b, to)
}

// withFeedback returns an answer with the director's feedback in its Via.
func (p *Proxy) withFeedback(answer []byte) []byte {
	m := &p.message // the request's parse is no longer needed
	if _, err := m.Parse(answer); err != nil {
		return answer
	}
	v, ok := sip.ParseViaHop(m.Via)
	if !ok || !p.rules.tells(&v) {
		return answer
	}
	at := cap(answer) - cap(m.Via)
	answer = p.built(answer)
	b := appendFeedback(append(p.build(), answer[:at]...), &v, p.rules.overload)
	return append(b, answer[at+len(v.Text):]...)
}

// retryAfter returns the Retry-After value of a refusal, in whole seconds.
func (p *Proxy) retryAfter(s *pass, cause meter.Cause) time.Duration {
	if cause == meter.OverQuota {
		return time.Second
	}
	if s.stamp.ty != noType {
		if gate := p.rules.types[s.stamp.ty].Gate; gate != nil {
			return max(gate.RetryAfter(), time.Second)
		}
	}
	return 5 * time.Second
}

// reply sends an answer back on the path of the request.
func (p *Proxy) reply(b []byte, to netip.AddrPort) bool {
	p.out.Listener, p.out.To = p.in.Listener, to
	p.out.Flow = netip.AddrPort{}
	if p.server.places[p.in.Listener].Stream {
		p.out.To, p.out.Flow = p.in.From, p.in.From
	}
	p.out.Parts = append(p.edits.parts[:0], p.built(b))
	p.counts.Answered.Add(1)
	return true
}

// malformed answers a request that does not parse, except an ACK, if its five mandatory
// headers are readable (RFC 3261 sections 8.2.7 and 16.3).
func (p *Proxy) malformed(err error) bool {
	if errors.Is(err, sip.ErrEmpty) {
		p.counts.KeepAlives.Add(1)
		return false
	}
	head := &p.message
	var v sip.ViaHop
	ok := head.Salvage(p.in.Data) && string(head.Method) != "ACK"
	if ok {
		v, ok = sip.ParseViaHop(head.Via)
	}
	if !ok {
		p.counts.Malformed.Add(1)
		return p.drop(noType, meter.Malformed)
	}
	p.counts.Requests.Add(1)
	if p.takeQuota() != overload.Admitted {
		return p.drop(noType, meter.OverQuota)
	}
	p.fail(noType, meter.Malformed)
	status, reason := 400, "Bad Request"
	if errors.Is(err, sip.ErrVersion) {
		status, reason = 505, "Version Not Supported"
	}
	var tag [len(ownTag) + 16]byte
	transaction := transactionOf(head, &v, 0)
	b := sip.AppendResponse(p.build(), head, status, reason, appendHex(append(tag[:0], ownTag...), transaction, 16), p.in.From)
	return p.reply(sip.AppendEnd(b, nil), sip.ReplyTo(head, p.in.From))
}
