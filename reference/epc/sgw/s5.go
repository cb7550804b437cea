package sgw

import (
	"context"
	"errors"
	"slices"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// add adds a dedicated bearer. It replaces a bearer with the same identity: the MME assigns
// identities, and has released that bearer. It leaves the default bearer alone: the P-GW
// refuses its identity. The caller holds the server's mu.
func (c *connection) add(b gtpc.Bearer) {
	if b.EBI != c.ebi {
		c.remove(b.EBI)
		c.bearers = append(c.bearers, b)
	}
}

// remove removes a bearer. The caller holds the server's mu.
func (c *connection) remove(ebi uint8) {
	c.bearers = slices.DeleteFunc(c.bearers, func(b gtpc.Bearer) bool { return b.EBI == ebi })
}

// s5 returns the connection that a TEID on S5 names, with copies of its peers' F-TEIDs.
// The connection is nil if there is none.
func (s *server) s5(teid uint32) (c *connection, mme gtp.Peer, pgw gtpc.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.teids.Get(teid)
	if !ok || known.on == nil {
		return nil, mme, pgw
	}
	return known.on, known.of.mme, known.on.pgw
}

// resource handles a Bearer Resource Command from an MME (clause 7.2.5). It forwards the
// command to the P-GW, and a refusal to the MME. If the P-GW grants the command, it sends
// a request of its own.
func (s *server) resource(ctx context.Context, r *gtp.Request) {
	var m gtpc.BearerResource
	err := m.Parse(&r.Message)
	of, peer := s.s11(r.TEID)
	var to gtpc.Endpoint
	if err == nil {
		to, err = s.pgwOf(of, m.Linked)
	}
	failure := gtpc.BearerFailure{Linked: m.Linked, PTI: m.PTI}
	refused := false
	if err == nil {
		m.Sender = gtpc.Endpoint{}
		refused, err = s.endpoint.DoCommand(ctx, s.endpoint.Reach(to), to.TEID, r.Sequence, &m, &failure)
	}
	if err == nil && !refused {
		s.procedures.Count(r.Type, gtpc.RequestAccepted)
		return
	}
	if err != nil && !errors.As(err, &failure.Result) {
		failure.Result = replyError(err)
	}
	s.procedures.Answer(r, peer, &failure, failure.Result.Cause)
}

// pgwOf returns the P-GW of a UE's connection, by its default bearer. The error is a
// gtpc.Result.
func (s *server) pgwOf(of *ue, linked uint8) (gtpc.Endpoint, error) {
	if of == nil {
		return gtpc.Endpoint{}, gtpc.Result{Cause: gtpc.ContextNotFound}
	}
	for _, c := range s.named(of, linked) {
		if c.ebi == linked {
			s.mu.Lock()
			defer s.mu.Unlock()
			return c.pgw, nil
		}
	}
	return gtpc.Endpoint{}, gtpc.Result{Cause: gtpc.ContextNotFound, Offending: gtpc.EBI}
}

// createBearer handles a Create Bearer Request (clause 7.2.3). It forwards the request to
// the MME, and the answer to the P-GW.
func (s *server) createBearer(ctx context.Context, r *gtp.Request) {
	var m gtpc.CreateBearer
	c, mme, pgw := s.s5(r.TEID)
	if !s.procedures.Take(r, &m, c != nil, pgw.TEID) {
		return
	}
	for i := range m.Bearers {
		m.Bearers[i].SGW = s.endpoint.Own(gtpc.S1USGW, c.teid)
	}
	answer := gtpc.Answer{}
	if err := s.endpoint.DoTriggered(ctx, mme.At, mme.TEID, r.Origin, &m, &answer); err != nil {
		s.procedures.Refuse(r, pgw.TEID, replyError(err))
		return
	}
	answer.Type, answer.Recovery = gtpc.CreateBearerResponse, gtpc.Restart{}
	s.mu.Lock()
	for i := range answer.Bearers {
		b := &answer.Bearers[i]
		if b.Result.Cause.Accepted() && i < len(m.Bearers) {
			asked := m.Bearers[i]
			c.add(gtpc.Bearer{EBI: b.EBI, QoS: asked.QoS, ENB: b.ENB, SGW: asked.SGW, S5PGW: asked.S5PGW, ChargingID: asked.ChargingID})
			b.S5SGW, b.S5PGW = s.endpoint.Direct(gtpc.S5USGW, c.teid), asked.S5PGW
		}
		b.ENB, b.SGW = gtpc.Endpoint{}, gtpc.Endpoint{}
	}
	s.mu.Unlock()
	s.procedures.Answer(r, pgw.TEID, &answer, answer.Result.Cause)
}

// deleteBearer handles a Delete Bearer Request (clause 7.2.9.2). It forwards the request
// to the MME, and the answer to the P-GW. It removes the bearers, whatever the MME
// answers.
func (s *server) deleteBearer(ctx context.Context, r *gtp.Request) {
	var m gtpc.DeleteBearer
	c, mme, pgw := s.s5(r.TEID)
	if !s.procedures.Take(r, &m, c != nil, pgw.TEID) {
		return
	}
	var answer gtpc.Answer
	if err := s.endpoint.DoTriggered(ctx, mme.At, mme.TEID, r.Origin, &m, &answer); err != nil {
		answer = *gtpc.Refuse(r.Type, replyError(err))
	}
	s.mu.Lock()
	if m.Linked == c.ebi {
		s.drop(c)
	}
	for _, ebi := range m.Bearers {
		if ebi != c.ebi { // a default bearer is removed with its connection
			c.remove(ebi)
		}
	}
	s.mu.Unlock()
	answer.Type, answer.Recovery = gtpc.DeleteBearerResponse, gtpc.Restart{}
	s.procedures.Answer(r, pgw.TEID, &answer, answer.Result.Cause)
}
