package sgw

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// handle handles a request from an MME or a P-GW. It drops requests of other types
// (TS 29.274 clause 7.7.4).
func (s *server) handle(ctx context.Context, r *gtp.Request) {
	switch r.Type {
	case gtpc.CreateSessionRequest:
		s.create(ctx, r)
	case gtpc.ModifyBearerRequest:
		s.modify(r)
	case gtpc.DeleteSessionRequest:
		s.remove(ctx, r)
	case gtpc.ReleaseAccessBearersRequest:
		s.release(r)
	case gtpc.BearerResourceCommand:
		s.resource(ctx, r)
	case gtpc.CreateBearerRequest:
		s.createBearer(ctx, r)
	case gtpc.DeleteBearerRequest:
		s.deleteBearer(ctx, r)
	default:
		s.procedures.Count(r.Type, 0)
	}
}

// create handles a Create Session Request (clause 7.2.1). It forwards the request
// to the P-GW, and the answer to the MME.
func (s *server) create(ctx context.Context, r *gtp.Request) {
	var m gtpc.CreateSession
	err := m.Parse(&r.Message)
	if err == nil {
		err = check(&m, r.TEID)
	}
	var c *connection
	if err == nil {
		var stale []*connection
		c, stale, err = s.open(r, &m)
		s.abandon(ctx, stale)
	}
	if err != nil {
		s.procedures.Refuse(r, m.Sender.TEID, err)
		return
	}
	var answer gtpc.CreateSessionAnswer
	if m.PGW.TEID != 0 {
		err = s.relocate(ctx, c, &m, &answer)
	} else {
		err = s.connect(ctx, c, &m, &answer)
	}
	if err == nil {
		err = s.settle(c, &m, &answer)
		if err != nil && m.PGW.TEID == 0 { // c is gone, but the P-GW has just created it
			s.abandon(ctx, []*connection{{ebi: c.ebi, pgw: answer.PGW}})
		}
	}
	if err != nil {
		s.close(c)
		s.procedures.Refuse(r, m.Sender.TEID, err)
		return
	}
	s.procedures.Answer(r, m.Sender.TEID, &answer, answer.Result.Cause)
}

// check checks a Create Session Request on S11. The error is a gtpc.Result.
func check(m *gtpc.CreateSession, teid uint32) error {
	switch {
	case m.Sender.Interface != gtpc.S11MME || !m.Sender.Addr().IsValid():
		return gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.FTEID}
	case m.IMSI.Len() == 0 && teid == 0:
		return gtpc.Result{Cause: gtpc.ConditionalMissing, Offending: gtpc.IMSI}
	case !m.PGW.Addr().IsValid():
		return gtpc.Result{Cause: gtpc.ConditionalMissing, Offending: gtpc.FTEID, Instance: 1}
	case m.Bearers[0].QoS.QCI == 0:
		return gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.BearerQoS}
	}
	return nil
}

// connect requests the connection from the P-GW. The error is a gtpc.Result.
func (s *server) connect(ctx context.Context, c *connection, m *gtpc.CreateSession, answer *gtpc.CreateSessionAnswer) error {
	request := *m
	request.Sender, request.PGW, request.Recovery = s.endpoint.Direct(gtpc.S5SGW, c.teid), gtpc.Endpoint{}, s.endpoint.Restart()
	request.Bearers = make([]gtpc.Bearer, len(m.Bearers))
	for i, b := range m.Bearers {
		b.ENB, b.S5SGW = gtpc.Endpoint{}, s.endpoint.Direct(gtpc.S5USGW, c.teid)
		request.Bearers[i] = b
	}
	if err := s.endpoint.Do(ctx, s.endpoint.Reach(c.pgw), m.PGW.TEID, &request, answer); err != nil {
		return replyError(err)
	}
	switch {
	case !answer.Result.Cause.Accepted():
		return answer.Result
	case !answer.PGW.Addr().IsValid():
		return gtpc.Result{Cause: gtpc.InvalidReply, Offending: gtpc.FTEID, Instance: 1}
	case len(answer.Bearers) == 0:
		return gtpc.Result{Cause: gtpc.InvalidReply, Offending: gtpc.BearerContext}
	}
	return nil
}

// relocate tells the connection's P-GW that this S-GW has taken over the connection
// (TS 23.401 clause 5.3.3.1). The error is a gtpc.Result.
func (s *server) relocate(ctx context.Context, c *connection, m *gtpc.CreateSession, answer *gtpc.CreateSessionAnswer) error {
	request := gtpc.ModifyBearer{
		Location: m.Location, Serving: m.Serving, RAT: m.RAT,
		Sender: s.endpoint.Direct(gtpc.S5SGW, c.teid), Recovery: s.endpoint.Restart(),
	}
	for _, b := range m.Bearers {
		request.Bearers = append(request.Bearers, gtpc.Bearer{EBI: b.EBI, S5SGW: s.endpoint.Direct(gtpc.S5USGW, c.teid)})
	}
	var modified gtpc.Answer
	if err := s.endpoint.Do(ctx, s.endpoint.Reach(c.pgw), m.PGW.TEID, &request, &modified); err != nil {
		return replyError(err)
	}
	if !modified.Result.Cause.Accepted() {
		return modified.Result
	}
	*answer = gtpc.CreateSessionAnswer{Result: modified.Result, PGW: m.PGW, AMBR: m.AMBR}
	for _, b := range m.Bearers {
		b.Result = gtpc.Result{Cause: gtpc.ContextNotFound}
		for i := range modified.Bearers {
			if modified.Bearers[i].EBI == b.EBI {
				b.Result = modified.Bearers[i].Result
			}
		}
		answer.Bearers = append(answer.Bearers, b)
	}
	return nil
}

// replyError returns the cause for a P-GW or MME whose answer is missing or
// invalid.
func replyError(err error) gtpc.Result {
	var r gtpc.Result
	switch {
	case errors.As(err, &r):
		return gtpc.Result{Cause: gtpc.InvalidReply, Offending: r.Offending, Instance: r.Instance}
	case errors.Is(err, gtp.ErrTimeout):
		return gtpc.Result{Cause: gtpc.PeerNotResponding}
	}
	return gtpc.Result{Cause: gtpc.NoResourcesAvailable}
}

// settle completes a connection and the answer to the MME. It fails with a
// gtpc.Result if the connection was removed in the meantime.
func (s *server) settle(c *connection, m *gtpc.CreateSession, answer *gtpc.CreateSessionAnswer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has(c) {
		return gtpc.Result{Cause: gtpc.RequestRejected}
	}
	c.pgw = answer.PGW
	for i := range answer.Bearers {
		b := &answer.Bearers[i]
		b.SGW = s.endpoint.Own(gtpc.S1USGW, c.teid)
		kept := gtpc.Bearer{EBI: b.EBI, QoS: b.QoS, SGW: b.SGW, S5PGW: b.S5PGW, ChargingID: b.ChargingID}
		for _, asked := range m.Bearers {
			if asked.EBI == b.EBI {
				kept.ENB = asked.ENB
			}
		}
		if b.Result.Cause.Accepted() {
			c.bearers = append(c.bearers, kept)
		}
	}
	answer.Sender, answer.Recovery = s.endpoint.Own(gtpc.S11SGW, c.of.teid), s.endpoint.Restart()
	return nil
}

// s11 returns the UE that a TEID on S11 names, and the TEID of its MME. The UE is
// nil if there is none.
func (s *server) s11(teid uint32) (of *ue, peer uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.teids.Get(teid)
	if !ok || known.on != nil {
		return nil, 0
	}
	return known.of, known.of.mme.TEID
}

// modify handles a Modify Bearer Request (clause 7.2.7): the UE has a new eNodeB or
// a new MME. The P-GW need not know, because its own data stay the same.
func (s *server) modify(r *gtp.Request) {
	var m gtpc.ModifyBearer
	of, peer := s.s11(r.TEID)
	if !s.procedures.Take(r, &m, of != nil, peer) {
		return
	}
	s.mu.Lock()
	if m.Sender.Addr().IsValid() {
		of.mme = r.Peer(m.Sender)
	}
	answer := gtpc.Answer{Type: gtpc.ModifyBearerResponse, Recovery: s.endpoint.Restart(), Bearers: make([]gtpc.Bearer, 0, len(m.Bearers))}
	unknown := 0
	for i := range m.Bearers {
		b := gtpc.Bearer{EBI: m.Bearers[i].EBI, Result: gtpc.Result{Cause: gtpc.RequestAccepted}}
		if _, own := of.find(b.EBI); own != nil {
			own.ENB, b.SGW = m.Bearers[i].ENB, own.SGW
		} else {
			b.Result.Cause = gtpc.ContextNotFound
			unknown++
		}
		answer.Bearers = append(answer.Bearers, b)
	}
	for _, b := range m.Removed {
		if c, own := of.find(b.EBI); own != nil && b.EBI != c.ebi {
			c.remove(b.EBI)
		}
	}
	peer = of.mme.TEID
	s.mu.Unlock()
	answer.Result.Cause = gtp.Sum(len(m.Bearers), unknown)
	s.procedures.Answer(r, peer, &answer, answer.Result.Cause)
}

// release handles a Release Access Bearers Request (clause 7.2.21), because the UE
// is idle.
func (s *server) release(r *gtp.Request) {
	var m gtpc.ReleaseAccessBearers
	of, peer := s.s11(r.TEID)
	if !s.procedures.Take(r, &m, of != nil, peer) {
		return
	}
	s.mu.Lock()
	for _, c := range of.connections {
		for i := range c.bearers {
			c.bearers[i].ENB = gtpc.Endpoint{}
		}
	}
	s.mu.Unlock()
	s.procedures.Answer(r, peer, &gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: gtpc.Result{Cause: gtpc.RequestAccepted}}, gtpc.RequestAccepted)
}

// remove handles a Delete Session Request (clause 7.2.9.1) for one connection, or
// for all connections if it names none. If the MME requests it, remove tells the
// P-GW. It then removes the connection, whatever the P-GW answers.
func (s *server) remove(ctx context.Context, r *gtp.Request) {
	var m gtpc.DeleteSession
	of, peer := s.s11(r.TEID)
	if !s.procedures.Take(r, &m, of != nil, peer) {
		return
	}
	named := s.named(of, m.Linked)
	result := gtpc.Result{Cause: gtpc.RequestAccepted}
	if len(named) == 0 {
		result.Cause = gtpc.ContextNotFound
	}
	for _, c := range named {
		if m.Flags&gtpc.Operation != 0 {
			if failed := s.disconnect(ctx, c, &m); failed.Cause != gtpc.RequestAccepted {
				result = failed
			}
		}
		s.close(c)
	}
	s.procedures.Answer(r, peer, &gtpc.Answer{Type: gtpc.DeleteSessionResponse, Result: result}, result.Cause)
}

// named returns the connection with a default bearer, or all connections of the UE
// if linked is 0.
func (s *server) named(of *ue, linked uint8) (named []*connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range of.connections {
		if linked == 0 || c.ebi == linked {
			named = append(named, c)
		}
	}
	return named
}

// disconnect asks the P-GW to remove a connection.
func (s *server) disconnect(ctx context.Context, c *connection, m *gtpc.DeleteSession) gtpc.Result {
	s.mu.Lock()
	to := c.pgw
	s.mu.Unlock()
	request := gtpc.DeleteSession{Linked: c.ebi, Location: m.Location, PCO: m.PCO}
	var answer gtpc.Answer
	if err := s.endpoint.Do(ctx, s.endpoint.Reach(to), to.TEID, &request, &answer); err != nil {
		return replyError(err)
	}
	return answer.Result
}

// restarted removes the connections of a restarted peer. If the peer is an MME, it
// also asks the P-GWs to remove them (TS 23.007 clause 14.1.1.1).
func (s *server) restarted(ctx context.Context, peer netip.Addr) {
	s.abandon(ctx, s.lose(peer))
}

// abandon asks the P-GWs to remove connections that this S-GW has removed. It does
// not wait for the answers. It leaves out a connection that a P-GW has not created yet:
// create abandons that one when the P-GW's answer gives the TEID.
func (s *server) abandon(ctx context.Context, gone []*connection) {
	gone = slices.DeleteFunc(gone, func(c *connection) bool { return c.pgw.TEID == 0 })
	if len(gone) == 0 {
		return
	}
	s.tasks.Go(func() error {
		var requests errgroup.Group
		requests.SetLimit(abandoning)
		for _, c := range gone {
			requests.Go(func() error { s.dismiss(ctx, c); return nil })
		}
		return requests.Wait()
	})
}

// abandoning limits the concurrent requests for removed connections, because other
// procedures need room for theirs.
const abandoning = 256

// busyPause is the pause before a request for which the endpoint had no room.
const busyPause = 100 * time.Millisecond

// dismiss asks the P-GW to remove a connection.
func (s *server) dismiss(ctx context.Context, c *connection) {
	request := gtpc.DeleteSession{Linked: c.ebi}
	var answer gtpc.Answer
	for errors.Is(s.endpoint.Do(ctx, s.endpoint.Reach(c.pgw), c.pgw.TEID, &request, &answer), gtp.ErrBusy) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(busyPause):
		}
	}
}
