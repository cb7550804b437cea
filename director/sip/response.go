package sip

import (
	"github.com/cespare/xxhash/v2"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// response sends a response of n bytes back along its Via, if the director wrote that Via
// (RFC 3261 sections 16.11 and 18.2.2, RFC 3581 section 4).
func (p *Proxy) response(m *sip.Message, n int) bool {
	own, ok := sip.ParseViaHop(m.Via)
	if !ok || m.NextVia == nil || !p.isOwn(own.Host, own.Port) {
		return p.drop(noType, meter.Unroutable)
	}
	next, ok := sip.ParseViaHop(m.NextVia)
	if !ok {
		return p.drop(noType, meter.Unroutable)
	}
	s, w, stream, ok := p.wayBack(&own, &next)
	if !ok {
		return p.drop(noType, meter.Unverified)
	}
	if int(s.ty) >= len(p.rules.types) {
		s.ty = noType
	}
	p.out.To, p.out.Flow, p.out.Back = w.reply, w.flow, true
	p.out.Listener = p.placeFor(int(s.listener), stream, p.out.To.Addr().Is4())
	if p.out.Listener < 0 {
		return p.drop(s.ty, meter.Unroutable)
	}
	p.cutVia(m)
	if s.ty != noType {
		p.countResponse(m, &s, w.counts)
		if !s.outward && len(own.OC) > 0 && p.rules.feedback && !p.explains && p.isInstance(&s) {
			p.server.losses.record(p.in.At, s.ty, s.id, &own)
		}
		if !s.outward {
			p.feedback(&next)
		}
	}
	if m.NoLength && p.server.places[p.out.Listener].Stream {
		p.edits.insert(p.edits.offset(m.Header), p.built(sip.AppendLength(p.build(), len(m.Body))))
	}
	p.out.Parts = p.edits.compose(p.edits.offset(m.StartLine), n)
	p.counts.Returned.Add(1)
	return true
}

// wayBack reads the destination of a response from the director's own Via and the next
// one. ok is false if the director did not write them.
func (p *Proxy) wayBack(own, next *sip.ViaHop) (s stamp, w way, stream, ok bool) {
	if s, ok = parseStamp(own.Branch); !ok {
		return s, w, false, false
	}
	var flow, mac []byte // nil: no such parameter
	for rest := own.Params; len(rest) > 0; {
		var name, value []byte
		name, value, rest = sip.CutParam(rest)
		switch {
		case len(name) != 2:
		case sip.EqualFold(name, macName):
			mac = value
		case sip.EqualFold(name, flowName):
			flow = value
		case sip.EqualFold(name, countsName):
			w.counts = true
		}
	}
	if flow != nil {
		if w.flow, stream = parseFlow(flow); !stream {
			return s, w, false, false
		}
	}
	if w.reply, ok = readReply(next, stream); !ok {
		return s, w, stream, false
	}
	k := p.keys.find(mac)
	return s, w, stream, k != nil && k.via && k.verify(mac, p.viaInput(&s, &w))
}

// isInstance reports whether a response may come from the instance that the request went
// to: the source is trusted and the instance still exists.
func (p *Proxy) isInstance(s *stamp) bool {
	return p.isTrusted(p.in.From.Addr()) && p.server.epochs.View().Table.ByID(s.ty, s.id) != nil
}

// cutVia removes the director's Via: the line, or its first element.
func (p *Proxy) cutVia(m *sip.Message) {
	start, end := p.edits.lineStart(m.Via), p.edits.lineEnd(m.Via)
	if next := p.edits.offset(m.NextVia); next < end {
		start, end = p.edits.offset(m.Via), next
	}
	p.edits.cut(start, end)
}

// countResponse counts a response. Anybody may answer a request from an instance. Only an
// instance or a trusted address may answer a request to an instance. counts says that the
// request begins or ends a counted dialog.
func (p *Proxy) countResponse(m *sip.Message, s *stamp, counts bool) {
	method := string(m.SequenceMethod)
	if method == "CANCEL" || !s.outward && !p.isTrusted(p.in.From.Addr()) {
		return
	}
	if !s.outward && method == "INVITE" && m.Status > 100 { // 100 Trying says nothing about the work (RFC 6076 section 4.3)
		if latency, first := p.meter.Hear(p.in.At, s.transaction); first && p.rules.types[s.ty].Provisional {
			p.meter.Sample(s.ty, latency)
		}
	}
	if m.Status < 200 {
		return
	}
	if !s.outward {
		latency, ok := p.meter.End(p.in.At, s.transaction, outcomeOf(m.Status))
		if ok && method != "INVITE" { // an INVITE waits for a person
			p.meter.Sample(s.ty, latency)
		}
	}
	switch method {
	case "INVITE": // even if the meter has forgotten the INVITE after long ringing
		if counts && m.Status < 300 && isRecorded(m) {
			p.countDialog(m, s, true)
		}
	case "BYE": // after 401 or 407 another BYE follows; an outward BYE was counted when it was sent
		if counts && !s.outward && m.Status != 401 && m.Status != 407 {
			p.countDialog(m, s, false)
		}
	}
}

// isRecorded reports whether the response has Record-Route, which later requests follow.
func isRecorded(m *sip.Message) bool {
	for f := m.Fields(); f.Next(); {
		if f.Kind == sip.RecordRoute {
			return true
		}
	}
	return false
}

// countDialog counts the begin or end of a dialog once, however many messages report it.
func (p *Proxy) countDialog(m *sip.Message, s *stamp, began bool) {
	target := p.server.epochs.View().Table.ByID(s.ty, s.id)
	if target != nil && p.meter.First(p.in.At, dialogKey(m, s, began)) {
		p.meter.Dialog(target, began)
	}
}

// dialogKey returns a hash of the dialog at the instance (RFC 3261 section 12) and of
// begin or end. It is the same for messages of both sides.
func dialogKey(m *sip.Message, s *stamp, began bool) uint64 {
	from, _ := sip.Param(m.From, "tag")
	to, _ := sip.Param(m.To, "tag")
	at := uint64(s.ty)<<17 | uint64(s.id)<<1
	if began {
		at |= 1
	}
	return fold(fold(table.Key(m.CallID), xxhash.Sum64(from)^xxhash.Sum64(to)), at)
}

func outcomeOf(status int) meter.Outcome {
	switch {
	case status < 300:
		return meter.Succeeded
	case status == 503:
		return meter.Busy
	case status >= 500 && status < 600:
		return meter.Failed
	}
	return meter.Declined
}
