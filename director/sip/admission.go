package sip

import (
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/wire/sip"
)

// exceedsQuota takes a token of the sender's quota for each request that the gate may refuse, and
// for CANCEL over UDP. A request without a token is answered or dropped. CANCEL is only dropped.
// Over TCP, nothing is dropped and CANCEL passes: the client repeats nothing, and the answer cannot go
// to a forged address.
func (p *Proxy) exceedsQuota(m *sip.Message, s *pass) (over, answered bool) {
	stream := p.server.places[p.in.Listener].Stream
	cancels := !stream && string(m.Method) == "CANCEL"
	if !cancels && !s.isGated(m) {
		return false, false
	}
	switch verdict := p.takeQuota(); {
	case verdict == overload.Admitted:
		return false, false
	case stream, verdict == overload.Refused && !cancels:
		return true, p.answer(m, s, 503, "Service Unavailable", meter.OverQuota)
	}
	return true, p.drop(noType, meter.OverQuota)
}

// takeQuota takes a token of the sender's quota. Instances and trusted networks have no
// quota. If the proxy only explains, there is none either.
func (p *Proxy) takeQuota() overload.Verdict {
	if p.rules.quota == nil || p.explains || p.isTrusted(p.in.From.Addr()) {
		return overload.Admitted
	}
	return p.rules.quota.Take(p.in.At, p.in.From.Addr())
}

// admit takes a token of the gate. If the proxy only explains, admit reports whether there
// is a token.
func (p *Proxy) admit(m *sip.Message, gate *overload.Gate) bool {
	if p.explains {
		return gate.Open(p.in.At, workOf(m))
	}
	return gate.Admit(p.in.At, workOf(m))
}

// workOf returns whether the request answers a challenge (RFC 3261 section 22). Its client was
// admitted before. A first REGISTER in an IMS has an Authorization without a response (TS 24.229
// section 5.1.1.2).
func workOf(m *sip.Message) overload.Work {
	const response = "response"
	if len(sip.AuthParam(m.Authorization, response)) > 0 || len(sip.AuthParam(m.ProxyAuthorization, response)) > 0 {
		return overload.Continues
	}
	return overload.Begins
}

// isGated reports whether the gate may refuse the request. It may not refuse ACK, CANCEL,
// or a request within a dialog. A request is within a dialog if it has a To tag and the
// director's signed Route entry. Anybody can write a To tag, so the tag alone is not
// enough.
func (s *pass) isGated(m *sip.Message) bool {
	if method := string(m.Method); method == "ACK" || method == "CANCEL" {
		return false
	}
	return !s.tagged || !s.routes.known || s.routes.mark.outward
}

// refuse answers a request that its type cannot serve now. 503 makes a client send nothing
// at all for a while (RFC 3261 section 21.5.4), so while another type serves, the answer is
// 500.
func (p *Proxy) refuse(m *sip.Message, s *pass, cause meter.Cause) bool {
	if p.server.epochs.View().Health.ServesOther(p.rules.all, s.stamp.ty) {
		return p.answer(m, s, 500, "Server Internal Error", cause)
	}
	return p.answer(m, s, 503, "Service Unavailable", cause)
}
