package sip

import (
	"bytes"
	"net/netip"

	"vitrine/director/table"
	"vitrine/wire/sip"
)

// A routeMark is the user part of the director's own URIs in Record-Route and Path.
// "i.0a1b..session.MAC" sends requests inward, to the instance 0x0a1b of the type session.
// "o.0a1b.FLOW.session.MAC" belongs to the same instance and sends requests outward, over
// that flow if it is still open.
type routeMark struct {
	outward  bool
	id       uint16 // 0: not known
	flow     []byte // empty: none
	typeName []byte
	mac      []byte // empty: none
}

// parseMark reads the user part of one of the director's own URIs.
func parseMark(user []byte) (m routeMark, ok bool) {
	if len(user) < 8 || user[1] != '.' || user[6] != '.' || user[0] != 'i' && user[0] != 'o' {
		return m, false
	}
	id, ok := parseHex(user[2:6])
	m.outward, m.id = user[0] == 'o', uint16(id)
	var found bool
	m.flow, m.typeName, found = bytes.Cut(user[7:], dot)
	m.typeName, m.mac, _ = bytes.Cut(m.typeName, dot)
	return m, ok && found && len(m.typeName) > 0
}

var dot = []byte(".")

// appendURI appends one of the director's own URIs in angle brackets.
func (p *Proxy) appendURI(b []byte, at *place, direction byte, id uint16, flow netip.AddrPort, typeName []byte) []byte {
	b = append(append(b, "<sip:"...), direction, '.')
	b = append(appendHex(b, uint64(id), 4), '.')
	start := len(b)
	if flow.IsValid() {
		b = appendFlow(b, flow)
	}
	m := routeMark{outward: direction == 'o', id: id, flow: b[start:], typeName: typeName}
	over := p.markInput(p.keys.signer, &m, p.message.CallID)
	b = append(append(append(b, '.'), typeName...), '.')
	return append(p.keys.signer.append(b, over), at.uri...)
}

// isSigned reports whether the mark has a MAC by a key that verifies Route entries.
func (p *Proxy) isSigned(m *routeMark) bool {
	k := p.keys.find(m.mac)
	return k != nil && k.route && k.verify(m.mac, p.markInput(k, m, p.message.CallID))
}

// routes is the result of reading a request's Route header.
type routes struct {
	mark  routeMark // of the first own element with a valid MAC
	flow  []byte    // of the own elements with a valid MAC
	next  []byte    // the first element that is not the director's, or empty
	known bool      // mark is set
	moved []byte    // the last element, which undoStrictRouting moved into the request line; nil: none

	marks int // that were verified
}

// maxMarks bounds the marks that are verified in one request, because each costs a hash of the
// Call-ID. One pass adds at most two.
const maxMarks = 8

// takeRoutes reads the Route header and removes the director's own elements from its
// front (RFC 3261 section 16.4), as edits. Of those that send a request inward, it removes
// only the two that one pass added: the instance sends the request on by the others.
func (p *Proxy) takeRoutes(m *sip.Message, r *routes) {
	if m.Route == nil {
		return
	}
	complete := false // both elements of a pass are taken
	moved := p.edits.offset(r.moved)
	for f := m.Fields(); f.Next(); {
		if f.Kind != sip.Route {
			continue
		}
		rest, taken := f.Value, false
		for len(rest) > 0 {
			element, after := sip.CutElement(rest)
			if p.edits.offset(element) == moved {
				rest = nil
				break
			}
			u, ok := sip.ParseURI(sip.Address(element))
			if complete || !ok || !p.isOwn(u.Host, u.Port) {
				r.next = element
				break
			}
			complete = r.known && !r.mark.outward
			p.takeMark(r, u.User)
			taken, rest = true, after
		}
		switch start := p.edits.offset(f.Name); {
		case taken && len(rest) == 0:
			p.edits.cut(start, p.edits.lineEnd(f.Value))
		case taken:
			p.edits.cut(p.edits.offset(f.Value), p.edits.offset(rest))
		}
		if len(r.next) > 0 {
			return
		}
	}
}

// takeMark reads the mark of an own element. A mark without a valid MAC is ignored.
func (p *Proxy) takeMark(r *routes, user []byte) {
	mark, ok := parseMark(user)
	if !ok {
		return
	}
	if r.marks == maxMarks {
		p.counts.Unsigned.Add(1)
		return
	}
	r.marks++
	if !p.isSigned(&mark) {
		p.counts.Unsigned.Add(1)
		return
	}
	if len(mark.flow) > 0 {
		r.flow = mark.flow
	}
	if !r.known {
		r.mark, r.known = mark, true
	}
}

// isOwn reports whether a host and port name this director.
func (p *Proxy) isOwn(host []byte, port uint16) bool {
	for i := range p.server.places {
		if p.server.places[i].is(host, port) {
			return true
		}
	}
	for _, name := range p.rules.names {
		if sip.EqualFold(host, name) {
			return true
		}
	}
	return false
}

// resume returns the instance for a request of a dialog whose instance the director's own Route
// entry names. An ACK goes where its INVITE went, even if that instance drains. A later INVITE of
// the dialog may have gone to another instance by its key. Only if the key is the Call-ID, the key's
// last instance is that one: dialogs can share other keys.
func (p *Proxy) resume(m *sip.Message, s *pass, ty table.Type, id uint16, region table.Region) (*table.Target, bool) {
	key, dialogs, isACK := s.keyIn(m, ty), p.rules.types[ty].Dialogs, string(m.Method) == "ACK"
	if isACK && !dialogs && key == s.callID {
		return p.steering.Follow(p.in.At, ty, id, key, region)
	}
	return p.steering.Resume(p.in.At, ty, id, key, region, dialogs || isACK)
}

// dialogOf returns the type and instance that the director's own Route entry names.
func (p *Proxy) dialogOf(s *pass) (table.Type, uint16) {
	if !s.routes.known || s.routes.mark.outward {
		return noType, 0
	}
	return p.rules.typeOf(s.routes.mark.typeName), s.routes.mark.id
}

// appendRoute appends Record-Route to a request that may begin a dialog, and Path to an
// inward REGISTER.
func (p *Proxy) appendRoute(b []byte, m *sip.Message, s *pass, outbound, inbound *place) []byte {
	switch string(m.Method) {
	case "REGISTER":
		if s.stamp.outward {
			return b
		}
		b = p.appendURI(append(b, "Path: "...), outbound, 'o', s.stamp.id, p.flow(inbound), p.rules.types[s.stamp.ty].name)
		return append(b, '\r', '\n')
	case "INVITE", "SUBSCRIBE", "REFER":
	default:
		return b
	}
	if s.stamp.ty == noType || s.tagged {
		return b
	}
	id, name := s.stamp.id, p.rules.types[s.stamp.ty].name
	// Two entries: the first entry in a later request tells its direction, and each side
	// uses its own transport (RFC 5658 section 4.2).
	b = append(b, "Record-Route: "...)
	if !s.stamp.outward {
		b = p.appendURI(b, outbound, 'o', id, p.flow(inbound), name)
		b = p.appendURI(append(b, ", "...), inbound, 'i', id, netip.AddrPort{}, name)
	} else {
		b = p.appendURI(b, outbound, 'i', id, netip.AddrPort{}, name)
		b = p.appendURI(append(b, ", "...), inbound, 'o', id, p.out.Flow, name)
	}
	return append(b, '\r', '\n')
}

// flow returns the remote address of the TCP connection that a request came on, for later
// requests in the other direction (RFC 5626 section 5.3). It is invalid for UDP.
func (p *Proxy) flow(inbound *place) netip.AddrPort {
	if inbound.Stream {
		return p.in.From
	}
	return netip.AddrPort{}
}
