package sip

import (
	"bytes"
	"net/netip"
	"strconv"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/internal/source"
	"vitrine/wire/sip"
)

// startHops is added to a request without Max-Forwards (RFC 3261 section 16.6, step 3).
const startHops = "Max-Forwards: 70\r\n"

// A pass is the state of one request while it is handled.
type pass struct {
	via    sip.ViaHop
	routes routes
	callID uint64 // hash
	stamp  stamp
	target *table.Target // inward: the instance; outward: the instance that sent it; nil: not known
	addHop bool          // Max-Forwards is to be added
	toTag  []byte
	tagged bool // To has a tag, even an empty one
	rule   *steeringRule
	named  bool // a rule names the method
	// refused says why the request may not go to target; only for explanations.
	refused string
}

// request handles a request of n bytes (RFC 3261 section 16.3 to 16.6).
func (p *Proxy) request(m *sip.Message, n int) bool {
	p.pass = pass{}
	s := &p.pass
	var ok bool
	if s.via, ok = sip.ParseViaHop(m.Via); !ok {
		return p.drop(noType, meter.Malformed) // without a Via there is nowhere to answer to
	}
	s.callID = table.Key(m.CallID)
	s.stamp = stamp{listener: uint8(p.in.Listener), ty: noType, transaction: transactionOf(m, &s.via, s.callID)}
	s.toTag, s.tagged = sip.Param(m.To, "tag")
	if string(m.Method) == "ACK" && s.isOwnTag() {
		p.counts.Absorbed.Add(1)
		return false
	}
	// A strict router put the director's URI into the request line and the original
	// request URI at the end of Route (section 16.4).
	routable := p.undoStrictRouting(m, &s.routes)
	if routable {
		p.takeRoutes(m, &s.routes)
	}
	s.rule, s.named = p.rules.find(m)
	if over, answered := p.exceedsQuota(m, s); over {
		return answered
	}
	if !routable {
		return p.answer(m, s, 400, "Bad Route", meter.Malformed)
	}
	hops, ok := p.forwards(m)
	switch {
	case !ok:
		return p.answer(m, s, 400, "Bad Max-Forwards", meter.Malformed)
	case len(s.routes.next) == 0 && string(m.Method) == "OPTIONS" && p.isForDirector(m):
		return p.answer(m, s, 200, "OK", 0)
	case hops == 0:
		return p.answer(m, s, 483, "Too Many Hops", meter.TooManyHops)
	case m.ProxyRequire != nil && string(m.Method) != "CANCEL": // the director supports no extension
		return p.answer(m, s, 420, "Bad Extension", meter.Malformed)
	}
	s.addHop = hops < 0
	outward := p.isOutward(m, s)
	s.stamp.loop = loopOf(m, s.routes.next, s.callID, outward)
	if p.loops(m, s.stamp.loop) {
		return p.answer(m, s, 482, "Loop Detected", meter.Looped)
	}
	if outward {
		return p.outward(m, n, s)
	}
	return p.inward(m, n, s)
}

// keyIn returns the key that a request to a type is steered by.
func (s *pass) keyIn(m *sip.Message, ty table.Type) uint64 {
	if s.rule != nil && s.rule.ty == ty {
		return s.rule.hash(m, s.callID)
	}
	return s.callID
}

// undoStrictRouting undoes the change of a strict router, and takes the mark in the request
// line. It returns false if it cannot.
func (p *Proxy) undoStrictRouting(m *sip.Message, r *routes) bool {
	if m.Route == nil || bytes.IndexByte(m.URI, '.') < 0 {
		return true
	}
	u, ok := sip.ParseURI(m.URI)
	if !ok || !p.isOwn(u.Host, u.Port) {
		return true
	}
	if _, ok := parseMark(u.User); !ok {
		return true
	}
	var last, line []byte
	first := true
	for f := m.Fields(); f.Next(); {
		if f.Kind != sip.Route {
			continue
		}
		for rest := f.Value; len(rest) > 0; {
			last, rest = sip.CutElement(rest)
			first, line = len(rest) == 0 && last != nil && p.edits.offset(last) == p.edits.offset(f.Value), f.Value
		}
	}
	address := sip.Address(last)
	if !sip.IsRequestURI(address) {
		return false
	}
	uri := p.edits.offset(m.URI)
	p.edits.replace(uri, uri+len(m.URI), address)
	if first {
		p.edits.cut(p.edits.lineStart(line), p.edits.lineEnd(line))
	} else {
		before := bytes.LastIndexByte(p.edits.data[:p.edits.offset(last)], ',')
		p.edits.cut(before, p.edits.end(line))
	}
	m.URI, r.moved = address, last
	p.takeMark(r, u.User)
	return true
}

// forwards decrements Max-Forwards in place and returns the value before; -1 if the
// header is missing.
func (p *Proxy) forwards(m *sip.Message) (hops int, ok bool) {
	text := m.MaxForwards
	if text == nil {
		return -1, true
	}
	n, ok := sip.ParseNumber(text)
	if !ok || n == 0 {
		return 0, ok
	}
	for i := len(text) - 1; ; i-- {
		if text[i] != '0' {
			text[i]--
			return int(n), true
		}
		text[i] = '9'
	}
}

// isForDirector reports whether the request line names the director and no user.
func (p *Proxy) isForDirector(m *sip.Message) bool {
	u, ok := sip.ParseURI(m.URI)
	return ok && u.User == nil && p.isOwn(u.Host, u.Port)
}

// loops reports whether the director handled the request before and would route it the
// same way again (RFC 5393 section 4.2).
func (p *Proxy) loops(m *sip.Message, loop uint64) bool {
	if m.NextVia == nil {
		return p.loopsBy(m.Via, loop)
	}
	for f := m.Fields(); f.Next(); {
		if f.Kind != sip.Via {
			continue
		}
		for rest := f.Value; len(rest) > 0; {
			var element []byte
			element, rest = sip.CutElement(rest)
			if p.loopsBy(element, loop) {
				return true
			}
		}
	}
	return false
}

// loopsBy is loops for one Via element.
func (p *Proxy) loopsBy(element []byte, loop uint64) bool {
	if !bytes.Contains(element, ownBranch) {
		return false
	}
	v, ok := sip.ParseViaHop(element)
	if !ok || !p.isOwn(v.Host, v.Port) {
		return false
	}
	s, ok := parseStamp(v.Branch)
	return ok && s.loop == loop
}

var ownBranch = []byte(sip.BranchCookie + mark)

// isOutward reports whether a request goes to a client. It does if the director's Path or
// Record-Route says so and the sender is trusted. It also does if it comes from an
// instance's own address and its Route or request line has an IP address that is not the
// director's.
func (p *Proxy) isOutward(m *sip.Message, s *pass) bool {
	if s.routes.known {
		return s.routes.mark.outward && p.isTrusted(p.in.From.Addr())
	}
	target := p.server.sources().find(p.in.From)
	if target == nil {
		return false
	}
	next := sip.Address(s.routes.next)
	if next == nil {
		next = m.URI
	}
	u, ok := sip.ParseURI(next)
	if !ok || p.isOwn(u.Host, u.Port) {
		return false
	}
	_, ok = u.Target()
	s.target = target
	return ok
}

// isTrusted reports whether requests from that IP address may go where they say: the
// address is an instance's or configured as trusted.
func (p *Proxy) isTrusted(a netip.Addr) bool { return p.server.trusts(p.rules, a) }

func (c *core) trusts(r *Rules, a netip.Addr) bool {
	return c.sources().trusted(a) || source.In(a, r.trusted)
}

// inward sends a request to an instance.
func (p *Proxy) inward(m *sip.Message, n int, s *pass) bool {
	region := p.rules.regionOf(p.in.From.Addr())
	ty, id := p.dialogOf(s)
	var ok bool
	switch {
	case ty != noType:
		s.target, ok = p.resume(m, s, ty, id, region)
	case s.rule != nil:
		ty = s.rule.ty
		s.target, ok = p.steering.Choose(p.in.At, ty, s.keyIn(m, ty), region)
	case s.named:
		return p.answer(m, s, 489, "Bad Event", meter.Unruled)
	default:
		return p.answer(m, s, 501, "Not Implemented", meter.Unruled)
	}
	s.stamp.ty = ty
	if !ok {
		return p.refuse(m, s, meter.NoInstance)
	}
	options := &p.rules.types[ty]
	if (options.Gate != nil || p.rules.feedback) && s.isGated(m) {
		switch {
		case p.rules.feedback && p.server.losses.refuses(p.in.At, s.target, s.stamp.transaction):
			s.refused = "the instance asks to hold such requests back"
		case !p.admit(m, options.Gate):
			s.refused = "the gate of its type refuses it now"
		}
		if s.refused != "" {
			return p.refuse(m, s, meter.Overloaded)
		}
	}
	s.stamp.id = s.target.ID
	p.out.To = s.target.Address
	if sent, answered := p.send(m, n, s, options.Stream); !sent {
		return answered
	}
	p.counts.Inward.Add(1)
	switch string(m.Method) {
	case "ACK", "CANCEL":
		p.meter.Sent(s.target)
	default:
		p.meter.Begin(p.in.At, s.target, s.stamp.transaction)
		p.endElsewhere(m, s)
	}
	return true
}

// outward sends a request from an instance to the destination in the flow, Route or the
// request line.
func (p *Proxy) outward(m *sip.Message, n int, s *pass) bool {
	s.stamp.outward = true
	s.stamp.ty, s.stamp.id = p.owner(s)
	next := sip.Address(s.routes.next)
	if next == nil {
		next = m.URI
	}
	u, ok := sip.ParseURI(next)
	if !ok {
		return p.answer(m, s, 416, "Unsupported URI Scheme", meter.Unroutable)
	}
	stream := u.Stream
	if flow, ok := parseFlow(s.routes.flow); ok {
		p.out.Flow, stream = flow, true
	}
	p.out.To, ok = u.Target()
	switch {
	case ok && !u.Other:
	case p.out.Flow.IsValid():
		p.out.To = p.out.Flow // only the connection leads there
	case u.Other:
		return p.answer(m, s, 502, "No Such Transport", meter.Unroutable)
	default:
		return p.answer(m, s, 502, "Cannot Resolve Names", meter.Unroutable)
	}
	if sent, answered := p.send(m, n, s, stream); !sent {
		return answered
	}
	p.counts.Outward.Add(1)
	if string(m.Method) == "BYE" && !s.isForwarded(m) { // its response may never come, and anybody may send it
		p.countDialog(m, &s.stamp, false)
	}
	return true
}

// send writes the request to p.out.To. If it cannot, it answers the request. p.out has a
// message to send if sent or answered is true.
func (p *Proxy) send(m *sip.Message, n int, s *pass, stream bool) (sent, answered bool) {
	at := p.placeFor(p.in.Listener, stream, p.out.To.Addr().Is4())
	if at < 0 {
		return false, p.answer(m, s, 502, "No Such Transport", meter.Unroutable)
	}
	place, inbound := &p.server.places[at], &p.server.places[p.in.Listener]
	p.out.Listener = at
	p.received(&s.via)

	b := s.stamp.append(append(p.build(), place.via...))
	if p.rules.feedback && !s.stamp.outward {
		b = append(b, `;oc;oc-algo="loss"`...)
	}
	w := way{flow: p.flow(inbound), reply: replyOf(&s.via, p.in.From, inbound.Stream), counts: s.isCounted(m)}
	if inbound.Stream {
		b = appendFlow(append(append(append(b, ';'), flowName...), '='), w.flow)
	}
	if w.counts {
		b = append(append(b, ';'), countsName...)
	}
	b = p.keys.signer.append(append(append(append(b, ';'), macName...), '='), p.viaInput(&s.stamp, &w))
	b = append(b, '\r', '\n')
	b = p.appendRoute(b, m, s, place, inbound)
	if s.addHop {
		b = append(b, startHops...)
	}
	if m.NoLength && place.Stream {
		b = sip.AppendLength(b, len(m.Body))
	}
	p.edits.insert(p.edits.offset(m.Header), p.built(b))
	p.out.Parts = p.edits.compose(p.edits.offset(m.Method), n)
	if p.edits.full {
		return false, p.answer(m, s, 400, "Too Many Routes", meter.Malformed)
	}
	return true, false
}

// isCounted reports whether the answer to the request may begin or end a dialog that is
// counted.
func (s *pass) isCounted(m *sip.Message) bool {
	switch string(m.Method) {
	case "INVITE":
		return s.stamp.ty != noType && !s.tagged && !s.isForwarded(m)
	case "BYE":
		return s.isOfTarget()
	}
	return false
}

// isOfTarget reports whether the director's own signed Route entry names the instance that
// gets the request. Anybody can send a request without that entry, and an instance also
// gets requests of the dialogs of others that are away.
func (s *pass) isOfTarget() bool {
	mark := &s.routes.mark
	return s.routes.known && !mark.outward && mark.id == s.target.ID && string(mark.typeName) == s.target.TypeName()
}

// endElsewhere counts the end of the dialog of another instance than the one that got the
// BYE. The answer says nothing about that dialog.
func (p *Proxy) endElsewhere(m *sip.Message, s *pass) {
	if string(m.Method) == "BYE" && s.routes.known && !s.isOfTarget() {
		ty, id := p.dialogOf(s)
		p.countDialog(m, &stamp{ty: ty, id: id}, false)
	}
}

// isForwarded reports whether an instance only forwards the request. The request then came
// inward before, through this director or one beside it, and was counted there.
func (s *pass) isForwarded(m *sip.Message) bool {
	return s.stamp.outward && bytes.Contains(m.Header, ownBranch)
}

// owner returns the type and instance that a request from an instance belongs to. The
// source address decides first. Otherwise the director's own Route entry decides, unless
// the rules give the method to another type. Then owner returns that type and ID 0, which
// leaves the instance to the key.
func (p *Proxy) owner(s *pass) (table.Type, uint16) {
	if s.target == nil {
		s.target = p.server.sources().find(p.in.From)
	}
	if s.target != nil && int(s.target.Type) < len(p.rules.types) {
		return s.target.Type, s.target.ID
	}
	ty := p.rules.typeOf(s.routes.mark.typeName)
	switch {
	case s.rule != nil && s.rule.ty != ty:
		return s.rule.ty, 0
	case ty != noType:
		return ty, s.routes.mark.id
	}
	return noType, 0
}

// received writes the source address into the request's own Via (RFC 3261 section 18.2.1,
// RFC 3581 section 4), so that the response goes there.
func (p *Proxy) received(v *sip.ViaHop) {
	if v.RPort == nil && v.Received == nil {
		if addr, isIP := sip.ParseHost(v.Host); isIP && addr == p.in.From.Addr() {
			return
		}
	}
	if v.RPort != nil {
		b := strconv.AppendUint(append(p.build(), '='), uint64(p.in.From.Port()), 10)
		if v.Received == nil {
			b = p.in.From.Addr().AppendTo(append(b, ";received="...))
		}
		p.setParam(v.RPort, p.built(b))
	}
	switch {
	case v.Received != nil: // a client's own claim is replaced
		p.setParam(v.Received, p.built(p.in.From.Addr().AppendTo(append(p.build(), '='))))
	case v.RPort == nil:
		end := p.edits.end(v.Text)
		p.edits.insert(end, p.built(p.in.From.Addr().AppendTo(append(p.build(), ";received="...))))
	}
}

// setParam sets the value of a parameter. text begins with the equals sign.
func (p *Proxy) setParam(value, text []byte) {
	start := p.edits.offset(value)
	// The old value may be empty, with or without an equals sign before it.
	if before := bytes.TrimRight(p.edits.data[:start], " \t"); before[len(before)-1] == '=' {
		start = len(before) - 1
	}
	p.edits.replace(start, p.edits.end(value), text)
}

// isOwnTag reports whether To has the tag of the director's own answer to the
// transaction.
func (s *pass) isOwnTag() bool {
	var own [len(ownTag) + 16]byte
	return len(s.toTag) == len(own) && bytes.Equal(s.toTag, appendHex(append(own[:0], ownTag...), s.stamp.transaction, 16))
}

// ownTag begins the To tag of the director's own answers.
const ownTag = "vd-"
