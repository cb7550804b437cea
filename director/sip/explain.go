package sip

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// An Explanation is what would be done with a message, and why.
type Explanation struct {
	Request bool
	Rule    int        // of RulesConfig.Rules, that fits the request; -1: none
	Type    table.Type // that the rule names
	Key     uint64     // by which the rule steers it
	Route   string     // the type that the director's own Route or Path names, with its instance; empty: none
	ID      uint16     // the instance that Route names
	Outward bool       // Route says that it goes to a client
	Sends   bool       // something is sent
	To      netip.AddrPort
	Message []byte // what is sent
}

// Explain does everything but send. The memory of what was seen is not asked:
// it is as for a key that is new. counts are thrown away.
func (s *Server) Explain(now time.Duration, counts *meter.Worker, from netip.AddrPort, data []byte) (Explanation, error) {
	e := Explanation{Rule: -1}
	p := &Proxy{server: &s.core, steering: table.NewSteering(s.core.epochs, 1), meter: counts, rules: s.core.rules.Load()}
	var m sip.Message
	if _, err := m.Parse(slices.Clone(data)); err != nil {
		return e, err
	}
	if e.Request = m.IsRequest(); e.Request {
		if r, _ := p.rules.find(&m); r != nil {
			e.Type, e.Key = r.ty, r.hash(&m, table.Key(m.CallID))
			for i := range p.rules.rules {
				if &p.rules.rules[i] == r {
					e.Rule = i
				}
			}
		}
		if routes := p.takeRoutes(&m); routes.known {
			e.Route, e.ID, e.Outward = string(routes.mark.typeName), routes.mark.id, routes.mark.outward
		}
	}
	var out Outgoing
	in := datagram.Datagram{Data: slices.Clone(data), From: from, At: now}
	if e.Sends = p.Handle(&in, make([]byte, 0, datagram.RoomSize), &out); e.Sends {
		e.To, e.Message = out.To, bytes.Join(out.Parts, nil)
	}
	return e, nil
}
