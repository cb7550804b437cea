package pgw

import (
	"net/netip"
	"slices"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// A session is a PDN connection. The mutex of the server guards it, and a session
// that was removed does not change any more.
type session struct {
	key     sessionKey
	teid    uint32   // of this P-GW
	sgw     gtp.Peer // for the control plane
	address netip.Addr
	gx      string // the Gx session; empty without a PCRF
	asked   uint32 // the number of the last request about the Gx session
	bearers []bearer
	named   int           // rules made without a PCRF
	turn    chan struct{} // of the procedure that changes the bearers
}

// A sessionKey identifies a PDN connection: a subscriber and its default bearer
// (TS 29.274 clause 7.2.1).
type sessionKey struct {
	imsi identity.Digits
	ebi  uint8
}

// find returns the bearer with an identity; nil if there is none.
func (s *session) find(ebi uint8) *bearer {
	for i := range s.bearers {
		if s.bearers[i].EBI == ebi {
			return &s.bearers[i]
		}
	}
	return nil
}

// drop removes the dedicated bearer of a rule, and returns its identity; 0 if there is
// none.
func (s *session) drop(rule string) uint8 {
	for i, b := range s.bearers {
		if b.rule == rule && rule != "" {
			s.bearers = slices.Delete(s.bearers, i, i+1)
			return b.EBI
		}
	}
	return 0
}

// nextRequest returns the number of the next request about a Gx session.
func (s *server) nextRequest(of *session) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.asked++
	return of.asked
}

// open makes a session and gives it a TEID and an address. A session with the
// same key is over: the S-GW and the UE have forgotten it. open returns it. The
// error is a gtpc.Result.
func (s *server) open(key sessionKey, sgw gtp.Peer) (made *session, over *session, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over = s.keys[key]; over != nil {
		s.drop(over)
	}
	address, ok := s.pool.take()
	if !ok {
		return nil, over, gtpc.Result{Cause: gtpc.AddressesOccupied}
	}
	made = &session{key: key, sgw: sgw, address: address, turn: make(chan struct{}, 1)}
	if made.teid, ok = s.sessions.Add(key.imsi.Bytes(), made); !ok {
		s.pool.give(address)
		return nil, over, gtpc.Result{Cause: gtpc.NoResourcesAvailable}
	}
	s.keys[key] = made
	return made, over, nil
}

// get returns the session with a TEID, and the TEID of its S-GW. The session is nil
// if there is none.
func (s *server) get(teid uint32) (found *session, peer uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, _ = s.sessions.Get(teid); found != nil {
		peer = found.sgw.TEID
	}
	return found, peer
}

// settle completes a session. It returns false if the session was removed while
// the PCRF was asked. The session stays as it is then: whoever removed it may be
// reading it.
func (s *server) settle(made *session, gx string, b gtpc.Bearer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, _ := s.sessions.Get(made.teid); found != made {
		return false
	}
	made.gx, made.bearers = gx, append(made.bearers, bearer{Bearer: b})
	if s.pcef != nil {
		s.byGx[gx] = made
	}
	return true
}

// close removes a session. It returns false if somebody else has removed it.
func (s *server) close(old *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.sessions.Get(old.teid); !ok || found != old {
		return false
	}
	s.drop(old)
	return true
}

// drop removes a session and gives its address back. The caller holds mu.
func (s *server) drop(old *session) {
	s.sessions.Remove(old.teid)
	if s.keys[old.key] == old {
		delete(s.keys, old.key)
	}
	delete(s.byGx, old.gx)
	s.pool.give(old.address)
}

// restarted removes the sessions of an S-GW that has lost them (TS 23.007 clause
// 14.1.1.2). It returns them.
func (s *server) restarted(peer netip.Addr) []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost []*session
	for _, session := range s.sessions.All {
		if session.sgw.Addr() == peer {
			lost = append(lost, session)
		}
	}
	for _, session := range lost {
		s.drop(session)
	}
	return lost
}

// gxRequest returns what the PCRF is asked about a session.
func (s *session) gxRequest(m *gtpc.CreateSession, apn string) diameter.GxRequest {
	q := m.Bearers[0].QoS
	return diameter.GxRequest{
		IMSI: s.key.imsi.String(), MSISDN: m.MSISDN.String(), APN: apn, Address: s.address,
		QoS:  diameter.QoS{QCI: q.QCI, Priority: q.Priority, MayPreempt: q.MayPreempt, Preemptable: q.Preemptable},
		AMBR: diameter.Rates{Up: kilo(m.AMBR.Up), Down: kilo(m.AMBR.Down)},
	}
}

// kilo returns bit/s for kbit/s. Diameter's AVPs of 32 bits hold no more than 4
// Gbit/s (TS 29.212 clause 5.3.53).
func kilo(rate uint32) uint32 { return uint32(min(uint64(rate)*1000, 1<<32-1)) }
