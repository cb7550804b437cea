package sip

import (
	"net/netip"

	"vitrine/director/meter"
	"vitrine/wire/sip"
)

// response sends a response of n bytes back by its Via (RFC 3261 sections 16.11
// and 18.2.2, RFC 3581 section 4).
func (p *Proxy) response(m *sip.Message, n int) bool {
	own, ok := parseVia(m.Via)
	if !ok || m.NextVia == nil || !p.isOwn(own.host, own.port) {
		return p.drop(noType, meter.Unroutable)
	}
	next, ok := parseVia(m.NextVia)
	if !ok {
		return p.drop(noType, meter.Unroutable)
	}
	s, stamped := parseStamp(own.branch)
	if !stamped {
		s.ty = noType
	}
	if int(s.ty) >= len(p.rules.types) {
		s.ty = noType
	}
	if flow, ok := parseFlow(own.flow); ok {
		p.out.Flow = flow
	}
	if p.out.To, ok = p.replyTo(&next); !ok {
		return p.drop(s.ty, meter.Unroutable)
	}
	p.out.Listener = p.placeFor(int(s.listener), next.stream, p.out.To.Addr().Is4())
	if p.out.Listener < 0 {
		return p.drop(s.ty, meter.Unroutable)
	}
	p.cutVia(m)
	if s.ty != noType {
		p.answered(m, &s)
		if !s.outward && len(own.oc) > 0 && p.rules.feedback {
			p.server.losses.tell(p.in.At, s.ty, s.id, &own)
		}
		if !s.outward {
			p.feedback(&next, p.rules.types[s.ty].Gate)
		}
	}
	p.out.Parts = p.edits.compose(p.edits.offset(m.StartLine), n)
	p.counts.Returned.Add(1)
	return true
}

// replyTo is where the response goes that has this Via on top.
func (p *Proxy) replyTo(v *via) (netip.AddrPort, bool) {
	port := v.port
	if port == 0 {
		port = 5060
	}
	if len(v.maddr) > 0 && !v.stream {
		addr, ok := parseHost(v.maddr)
		return netip.AddrPortFrom(addr, port), ok
	}
	host := v.host
	if len(v.received) > 0 {
		host = v.received
		if len(v.rport) > 0 {
			var ok bool
			if port, ok = parsePort(v.rport); !ok {
				return netip.AddrPort{}, false
			}
		}
	}
	addr, ok := parseHost(host)
	return netip.AddrPortFrom(addr, port), ok
}

// cutVia takes the director's Via off: the line, or the first element of it.
func (p *Proxy) cutVia(m *sip.Message) {
	start, end := p.edits.lineStart(m.Via), p.edits.lineEnd(m.Via)
	if next := p.edits.offset(m.NextVia); next < end {
		start, end = p.edits.offset(m.Via), next
	}
	p.edits.cut(start, end)
}

// answered tells the meter of a final response to what it was told of.
func (p *Proxy) answered(m *sip.Message, s *stamp) {
	if m.Status < 200 || string(m.SequenceMethod) == "CANCEL" {
		return
	}
	ok := true
	if !s.outward {
		_, ok = p.meter.End(p.in.At, s.transaction, outcomeOf(m.Status))
	}
	if !ok {
		return
	}
	switch string(m.SequenceMethod) {
	case "INVITE": // a later one in the dialog is not recorded
		if !s.outward && m.Status < 300 && has(m, sip.RecordRoute, 1) {
			p.dialog(s, true)
		}
	case "BYE": // one that the instance passes on came inward before
		if !s.outward || !has(m, sip.Via, 3) {
			p.dialog(s, false)
		}
	}
}

// has says whether a message has that many lines of a header, or more.
func has(m *sip.Message, kind sip.Kind, n int) bool {
	for f := m.Fields(); f.Next(); {
		if f.Kind == kind {
			n--
		}
	}
	return n <= 0
}

func (p *Proxy) dialog(s *stamp, began bool) {
	if target := p.server.epochs.View().Table.ByID(s.ty, s.id); target != nil {
		p.meter.Dialog(target, began)
	}
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
