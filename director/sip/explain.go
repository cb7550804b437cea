package sip

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// An Explanation tells what the director would do with a message, and why.
type Explanation struct {
	Request bool
	Outward bool   // it goes to a client
	Source  bool   // because of the instance's address that it comes from
	Route   string // the type in the director's own Route entry, or of that instance; empty: neither
	ID      uint16 // and the instance
	Rule    int    // the rule that matches, from 0; -1: none
	Type    table.Type
	Key     uint64 // that the table chooses by; only for requests with a rule
	Refused string // why the request does not go to its instance, although that is available; empty: it goes there

	Sends   bool // the director sends something: the message, or an answer to it
	To      netip.AddrPort
	Message []byte
}

// Explain handles a message from that address as a worker with an empty memory would, but
// sends nothing. A worker that saw the key before a recent change of epoch may still send
// the message to the earlier instance. Counts go to the probe. No gate loses a token.
//
// Explain fails if the message does not parse.
func (s *Server) Explain(now time.Duration, probe *meter.Worker, from netip.AddrPort, message []byte) (Explanation, error) {
	var parsed sip.Message
	if _, err := parsed.Parse(bytes.Clone(message)); err != nil {
		return Explanation{}, fmt.Errorf("explain a SIP message: %w", err)
	}
	p := &Proxy{server: &s.core, steering: table.NewSteering(s.core.epochs, 8), meter: probe, explains: true}
	listener := max(0, slices.IndexFunc(s.core.places, func(l place) bool {
		return (!from.IsValid() || l.is4 == from.Addr().Is4()) && (!l.Stream || !parsed.NoLength)
	}))
	if !from.IsValid() {
		from = s.core.places[listener].Address
	}
	var out Outgoing
	x := Explanation{Request: parsed.IsRequest(), Rule: -1}
	x.Sends = p.Handle(&datagram.Datagram{Data: bytes.Clone(message), From: from, Listener: listener, At: now}, make([]byte, 0, datagram.RoomSize), &out)
	if x.Sends {
		x.To, x.Message = out.To, bytes.Join(out.Parts, nil)
	}
	if !x.Request {
		return x, nil
	}
	if rule, _ := p.rules.find(&parsed); rule != nil {
		x.Rule = slices.IndexFunc(p.rules.rules, func(r steeringRule) bool { return r == *rule })
		x.Type, x.Key = rule.ty, rule.hash(&parsed, table.Key(parsed.CallID))
	}
	if route := &p.pass.routes; route.known {
		x.Route, x.ID = string(route.mark.typeName), route.mark.id
	}
	x.Outward, x.Refused = p.pass.stamp.outward, p.pass.refused
	if t := p.pass.target; x.Outward && x.Route == "" && t != nil {
		x.Source, x.Route, x.ID = true, t.TypeName(), t.ID
	}
	return x, nil
}
