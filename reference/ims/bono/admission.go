package bono

import (
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims"
	"vitrine/reference/ims/overload"
	"vitrine/reference/ims/sipudp"
	wiresip "vitrine/wire/sip"
)

// admit makes the window decide which calls are admitted.
func (p *proxy) admit(w *overload.Window, registry *prometheus.Registry) {
	p.window = w
	gauge := ims.Gauges(registry, "bono")
	gauge("window", "Requests that may be in flight before new calls are refused.", w.Limit)
	gauge("in_flight", "Requests admitted and not yet answered.", func() float64 { return float64(w.InFlight()) })
}

// refuse answers a new call with 503 if the window is full, and reports whether
// it did. It runs before all other work and keeps no transaction: each
// retransmission is decided on its own (RFC 3261 section 16.11).
func (p *proxy) refuse(data []byte, a sipudp.Arrival) bool {
	if !p.window.Full(time.Now(), a.At) {
		return false
	}
	var m wiresip.Message
	if _, err := m.Parse(data); err != nil || !beginsCall(&m) {
		return false
	}
	via, ok := wiresip.ParseViaHop(m.Via)
	if !ok || p.transactions.Holds(&via, string(sip.REGISTER)) {
		return false
	}
	p.counts.requests.Inc()
	p.counts.shed.Inc()
	tag := sipudp.NewToken()
	p.answer = wiresip.AppendResponse(p.answer[:0], &m, sip.StatusServiceUnavailable, "Overloaded", []byte(tag), a.From)
	p.answer = append(p.answer, "Retry-After: 1\r\n"...)
	p.answer = wiresip.AppendEnd(p.answer, nil)
	peer := sipudp.Peer{Socket: p.socket, To: wiresip.ReplyTo(&m, a.From)}
	of := p.transactions.Messages.Begin()
	sipudp.Received(p.transactions.Messages, data, a, of)
	if err := peer.Send(p.answer, of); err != nil {
		p.log.Debug("an answer was not sent", "error", err)
	}
	return true
}

// beginsCall reports whether the message is the first of its call: a REGISTER
// without an answer to a challenge. A client that sends anything else was
// admitted before.
func beginsCall(m *wiresip.Message) bool {
	return string(m.Method) == string(sip.REGISTER) && len(wiresip.AuthParam(m.Authorization, "response")) == 0
}

// control admits an initial request by the rule of the mode. The caller calls
// done when Bono has forwarded the request.
func (p *proxy) control(tx *sipudp.Transaction, a sipudp.Arrival) (done func(), ok bool) {
	switch {
	case p.load != nil:
		return func() { now := time.Now(); p.load.Done(now, now.Sub(a.At)) }, p.load.Admit(a.At)
	case p.window != nil && p.pool.fromSprout(a.From):
		return func() {}, true // it was admitted at the Bono where it entered
	case p.window != nil:
		if p.window.Crowded(time.Now(), a.At) {
			return nil, false
		}
		tx.Counted.Store(true)
		p.window.Enter()
	}
	return func() {}, true
}

// leave removes a transaction from the window at its first answer other than 100.
// A ringing call has reached the callee and no longer counts.
func (p *proxy) leave(tx *sipudp.Transaction, res *sip.Response) {
	if res.StatusCode <= sip.StatusTrying || !tx.Counted.CompareAndSwap(true, false) {
		return
	}
	switch res.StatusCode {
	case sip.StatusServiceUnavailable:
		p.window.Abandon()
	default:
		now := time.Now()
		p.window.Leave(now, now.Sub(tx.Arrived))
	}
}
