package pgw

import (
	"net/netip"
	"slices"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// A session is a PDN connection. The server's mutex guards it. A removed session does
// not change any more.
type session struct {
	key     sessionKey
	teid    uint32   // this P-GW's TEID
	sgw     gtp.Peer // for the control plane
	address netip.Addr
	gx      string // Gx session; empty: no PCRF
	asked   uint32 // number of the Gx session's last request
	bearers []bearer
	named   int           // number of rules made without a PCRF
	turn    chan struct{} // held by the procedure that changes the bearers; see take
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

// drop removes the dedicated bearer of a rule, and returns the bearer's identity; 0:
// no such bearer.
func (s *session) drop(rule string) uint8 {
	i := s.index(rule)
	if i < 0 {
		return 0
	}
	ebi := s.bearers[i].EBI
	s.bearers = slices.Delete(s.bearers, i, i+1)
	return ebi
}

// index returns the place of the dedicated bearer of a rule; -1: there is none.
func (s *session) index(rule string) int {
	return slices.IndexFunc(s.bearers, func(b bearer) bool { return b.rule == rule && rule != "" })
}

// nextRequest returns the number of the next request about a Gx session.
func (s *server) nextRequest(of *session) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.asked++
	return of.asked
}

// open creates a session and allocates its TEID and address. If there is a session
// with the same key, the S-GW and the UE have forgotten it, so open removes it and
// returns it as over. The error is a gtpc.Result.
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
// if there is none, or if settle has not completed it yet.
func (s *server) get(teid uint32) (found *session, peer uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, _ = s.sessions.Get(teid); found == nil || len(found.bearers) == 0 {
		return nil, 0
	}
	return found, found.sgw.TEID
}

// settle completes a session after the PCRF's answer. It returns false if the session
// was removed in the meantime, and then does not change the session, because another
// goroutine may be reading it.
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

// close removes a session. It returns false if the session is already removed.
func (s *server) close(old *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.sessions.Get(old.teid); !ok || found != old {
		return false
	}
	s.drop(old)
	return true
}

// drop removes a session and frees its address. The caller holds mu.
func (s *server) drop(old *session) {
	s.sessions.Remove(old.teid)
	if s.keys[old.key] == old {
		delete(s.keys, old.key)
	}
	delete(s.byGx, old.gx)
	s.pool.give(old.address)
}

// restarted removes and returns the sessions of a restarted S-GW, which has lost them
// (TS 23.007 clause 14.1.1.2).
func (s *server) restarted(peer netip.Addr) []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost []*session
	for _, session := range s.sessions.All {
		if session.sgw.Has(peer) {
			lost = append(lost, session)
		}
	}
	for _, session := range lost {
		s.drop(session)
	}
	return lost
}

// gxRequest returns the request to the PCRF for a session.
func (s *session) gxRequest(m *gtpc.CreateSession, apn string) diameter.GxRequest {
	q := m.Bearers[0].QoS
	return diameter.GxRequest{
		IMSI: s.key.imsi.String(), MSISDN: m.MSISDN.String(), APN: apn, Address: s.address,
		QoS:  diameter.QoS{QCI: q.QCI, Priority: q.Priority, MayPreempt: q.MayPreempt, Preemptable: q.Preemptable},
		AMBR: diameter.Rates{Up: kilo(m.AMBR.Up), Down: kilo(m.AMBR.Down)},
	}
}

// kilo converts kbit/s to bit/s. The result is limited to the 32 bits of Diameter's
// AVPs, some 4 Gbit/s (TS 29.212 clause 5.3.53).
func kilo(rate uint32) uint32 { return uint32(min(uint64(rate)*1000, 1<<32-1)) }
