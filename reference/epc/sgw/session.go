package sgw

import (
	"net/netip"
	"slices"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// A ue is a subscriber with at least one PDN connection. All its connections share one
// pair of TEIDs on S11 (TS 29.274 clause 4.1). The server's mutex guards it.
type ue struct {
	imsi        identity.Digits
	teid        uint32   // this S-GW's TEID on S11
	mme         gtp.Peer // for the control plane
	connections []*connection
}

// A connection is a PDN connection.
type connection struct {
	of      *ue
	ebi     uint8         // of the default bearer
	teid    uint32        // this S-GW's TEID on S5
	pgw     gtpc.Endpoint // for the control plane
	bearers []gtpc.Bearer
}

// An entry is what a TEID names: a UE on S11, or a connection on S5.
type entry struct {
	of *ue
	on *connection // nil on S11
}

// find returns the bearer with an identity; nil if there is none.
func (c *connection) find(ebi uint8) *gtpc.Bearer {
	for i := range c.bearers {
		if c.bearers[i].EBI == ebi {
			return &c.bearers[i]
		}
	}
	return nil
}

// find returns a connection and its bearer by the bearer's identity; nil if there
// is none.
func (u *ue) find(ebi uint8) (*connection, *gtpc.Bearer) {
	for _, c := range u.connections {
		if b := c.find(ebi); b != nil {
			return c, b
		}
	}
	return nil, nil
}

// open creates a connection for a Create Session Request, and its UE if there is none.
// It replaces a connection with the same default bearer. stale are the connections that
// open removed here, but that a P-GW still has. The error is a gtpc.Result.
func (s *server) open(r *gtp.Request, m *gtpc.CreateSession) (made *connection, stale []*connection, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, stale, err := s.subscriber(r.TEID, m)
	if err != nil {
		return nil, stale, err
	}
	of.mme, m.IMSI = r.Peer(m.Sender), of.imsi // a request for a second connection may lack the IMSI
	c := &connection{of: of, ebi: m.Bearers[0].EBI, pgw: m.PGW}
	of.connections = append(of.connections, c)
	var ok bool
	if c.teid, ok = s.teids.Add(of.imsi.Bytes(), entry{of: of, on: c}); !ok {
		s.drop(c)
		return nil, stale, gtpc.Result{Cause: gtpc.NoResourcesAvailable}
	}
	for _, old := range slices.Clone(of.connections) {
		if old != c && old.ebi == c.ebi {
			s.drop(old)
		}
	}
	return c, stale, nil
}

// subscriber returns the UE of a Create Session Request. A request without a TEID is
// for a new UE, or for a UE that has forgotten its connections, so subscriber removes
// these (TS 29.274 clause 7.2.1). stale are the removed connections that the request
// does not replace at the P-GW. A relocation leaves none stale, because the old S-GW
// may still serve them. The error is a gtpc.Result. The caller holds mu.
func (s *server) subscriber(teid uint32, m *gtpc.CreateSession) (of *ue, stale []*connection, err error) {
	if teid != 0 {
		if known, ok := s.teids.Get(teid); ok && known.on == nil {
			return known.of, nil, nil
		}
		return nil, nil, gtpc.Result{Cause: gtpc.ContextNotFound}
	}
	if old := s.ues[m.IMSI]; old != nil {
		for _, c := range slices.Clone(old.connections) {
			s.drop(c)
			if m.PGW.TEID == 0 && (c.ebi != m.Bearers[0].EBI || c.pgw.Addr() != m.PGW.Addr()) {
				stale = append(stale, c)
			}
		}
	}
	of = &ue{imsi: m.IMSI}
	var ok bool
	if of.teid, ok = s.teids.Add(m.IMSI.Bytes(), entry{of: of}); !ok {
		return nil, stale, gtpc.Result{Cause: gtpc.NoResourcesAvailable}
	}
	s.ues[of.imsi] = of
	return of, stale, nil
}

// drop removes a connection, and its UE if that was the last one. The caller holds mu.
func (s *server) drop(c *connection) {
	if known, ok := s.teids.Get(c.teid); ok && known.on == c {
		s.teids.Remove(c.teid)
	}
	of := c.of
	of.connections = slices.DeleteFunc(of.connections, func(other *connection) bool { return other == c })
	if len(of.connections) > 0 {
		return
	}
	if known, ok := s.teids.Get(of.teid); ok && known.of == of && known.on == nil {
		s.teids.Remove(of.teid)
	}
	if s.ues[of.imsi] == of {
		delete(s.ues, of.imsi)
	}
}

// close removes a connection.
func (s *server) close(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c)
}

// has reports whether the connection still exists. The caller holds mu.
func (s *server) has(c *connection) bool {
	known, ok := s.teids.Get(c.teid)
	return ok && known.on == c
}

// lose removes the connections of a restarted MME or P-GW. It returns those of an MME. A
// connection that a P-GW has not created yet stays, because the message with the P-GW's new
// restart counter may be the answer that creates it.
func (s *server) lose(peer netip.Addr) (ofMME []*connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []*connection
	for _, e := range s.teids.All {
		switch {
		case e.on == nil:
		case e.of.mme.Has(peer):
			ofMME = append(ofMME, e.on)
			gone = append(gone, e.on)
		case e.on.pgw.Has(peer) && e.on.pgw.TEID != 0:
			gone = append(gone, e.on)
		}
	}
	for _, c := range gone {
		s.drop(c)
	}
	s.lost.Add(float64(len(gone)))
	return ofMME
}
