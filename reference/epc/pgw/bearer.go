package pgw

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// A bearer is a bearer of a session. A dedicated one enforces a rule.
type bearer struct {
	gtpc.Bearer
	rule string
}

// A trigger is the command that caused a change. The zero trigger means that the PCRF
// requested the change.
type trigger struct {
	sequence uint32
	pti      uint8
	followed bool // a request for the change was sent
}

// take waits until the caller may change the session's bearers. Only one procedure
// changes them at a time. It returns false if ctx ends first.
func (s *session) take(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// give ends the turn that take began.
func (s *session) give() { <-s.turn }

// resource handles a Bearer Resource Command (clause 7.2.5, TS 23.401 clause 5.4.5). It
// carries out the change with a Create or Delete Bearer Request.
func (s *server) resource(ctx context.Context, r *gtp.Request) {
	var m gtpc.BearerResource
	err := m.Parse(&r.Message)
	found, peer := s.get(r.TEID)
	switch {
	case found == nil:
		err = gtpc.Result{Cause: gtpc.ContextNotFound}
	case err == nil && m.Linked != found.key.ebi:
		err = gtpc.Result{Cause: gtpc.ContextNotFound, Offending: gtpc.EBI}
	}
	if err == nil && found.take(ctx) {
		defer found.give()
		var change diameter.Change
		if change, err = s.decide(ctx, found, &m); err == nil {
			by := trigger{sequence: r.Sequence, pti: m.PTI}
			if err = s.apply(ctx, found, change, &by); by.followed {
				s.procedures.Count(r.Type, causeOf(err))
				return
			}
		}
	}
	var refused gtpc.Result
	if !errors.As(err, &refused) {
		refused.Cause = gtpc.SystemFailure
	}
	s.procedures.Answer(r, peer, &gtpc.BearerFailure{Result: refused, Linked: m.Linked, PTI: m.PTI}, refused.Cause)
}

// causeOf returns the final cause of a procedure.
func causeOf(err error) gtpc.CauseValue {
	var refused gtpc.Result
	switch {
	case err == nil:
		return gtpc.RequestAccepted
	case errors.As(err, &refused):
		return refused.Cause
	}
	return gtpc.PeerNotResponding
}

// decide returns the change for a command: one rule. If there is a PCRF, the PCRF
// decides. The error is a gtpc.Result.
func (s *server) decide(ctx context.Context, of *session, m *gtpc.BearerResource) (change diameter.Change, err error) {
	request := diameter.ResourceRequest{IMSI: of.key.imsi.String(), QCI: m.QoS.QCI, UpRate: bits(m.QoS.GuaranteedUp), DownRate: bits(m.QoS.GuaranteedDown)}
	if m.Bearer != 0 {
		if request.Release, err = s.ruleOf(of, m); err != nil {
			return change, err
		}
	} else if request.Flow, err = describe(m.TAD); err != nil {
		return change, err
	}
	if s.pcef != nil {
		change, err = s.pcef.Update(ctx, of.gx, s.nextRequest(of), request)
		if err != nil {
			return change, gxResult(err)
		}
	} else {
		change = s.local(of, request)
	}
	if len(change.Install)+len(change.Remove) != 1 {
		return change, gtpc.Result{Cause: gtpc.InvalidReply}
	}
	return change, nil
}

// ruleOf returns the rule of the bearer that a command releases. It accepts only a
// command that deletes packet filters, because each bearer here has exactly one.
func (s *server) ruleOf(of *session, m *gtpc.BearerResource) (string, error) {
	if !deletes(m.TAD) {
		return "", gtpc.Result{Cause: gtpc.TFTSemantic, Offending: gtpc.TAD}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := of.find(m.Bearer)
	if b == nil || b.rule == "" {
		return "", gtpc.Result{Cause: gtpc.ContextNotFound, Offending: gtpc.EBI, Instance: 1}
	}
	return b.rule, nil
}

// local decides without a PCRF. It grants the request, with the priority of the UE's
// default bearer (TS 23.401 clause 5.4.5 step 4).
func (s *server) local(of *session, request diameter.ResourceRequest) diameter.Change {
	if request.Release != "" {
		return diameter.Change{Remove: []string{request.Release}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := of.bearers[0].QoS
	of.named++
	return diameter.Change{Install: []diameter.Rule{{
		Name: "ue-" + strconv.Itoa(of.named), Flows: []string{request.Flow},
		QoS:   diameter.QoS{QCI: request.QCI, Priority: q.Priority, MayPreempt: q.MayPreempt, Preemptable: q.Preemptable},
		MaxUp: request.UpRate, MaxDown: request.DownRate, GuaranteedUp: request.UpRate, GuaranteedDown: request.DownRate,
	}}}
}

// changed makes a change that the PCRF requests (TS 23.401 clauses 5.4.1 and 5.4.4.1).
func (s *server) changed(ctx context.Context, gx string, change diameter.Change) error {
	s.mu.Lock()
	of := s.byGx[gx]
	s.mu.Unlock()
	if of == nil {
		return diameter.UnknownSession
	}
	if !of.take(ctx) {
		return ctx.Err()
	}
	defer of.give()
	return s.apply(ctx, of, change, new(trigger))
}

// apply changes the bearers of a session. A rule with the name of an earlier one replaces that
// one's bearer (TS 29.212 clause 5.3.2). The caller has the session's turn; see take.
// The error is a gtpc.Result, or the error of the exchange with the S-GW.
func (s *server) apply(ctx context.Context, of *session, change diameter.Change, by *trigger) error {
	remove := change.Remove
	for _, rule := range change.Install {
		if s.enforces(of, rule.Name) && !slices.Contains(remove, rule.Name) {
			remove = append(remove, rule.Name)
		}
	}
	for _, rule := range remove {
		if err := s.deactivate(ctx, of, rule, by); err != nil {
			return err
		}
	}
	for i := range change.Install {
		if err := s.activate(ctx, of, &change.Install[i], by); err != nil {
			return err
		}
	}
	return nil
}

// enforces reports whether a dedicated bearer of the session enforces a rule.
func (s *server) enforces(of *session, rule string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of.index(rule) >= 0
}

// do sends a request for bearers to the S-GW.
func (s *server) do(ctx context.Context, of *session, by *trigger, request gtp.Message) (answer gtpc.Answer, err error) {
	s.mu.Lock()
	to := of.sgw
	s.mu.Unlock()
	by.followed = by.sequence != 0
	err = s.endpoint.DoTriggered(ctx, to.At, to.TEID, by.sequence, request, &answer)
	return answer, err
}

// activate creates a dedicated bearer for a rule.
func (s *server) activate(ctx context.Context, of *session, rule *diameter.Rule, by *trigger) error {
	tft, err := template(rule.Flows)
	if err != nil {
		return err
	}
	made := bearer{rule: rule.Name, Bearer: gtpc.Bearer{
		TFT: tft, S5PGW: s.endpoint.Own(gtpc.S5UPGW, of.teid), ChargingID: s.chargingID(),
		QoS: gtpc.QoS{
			QCI: rule.QoS.QCI, Priority: rule.QoS.Priority, MayPreempt: rule.QoS.MayPreempt, Preemptable: rule.QoS.Preemptable,
			MaxUp: uint64(rule.MaxUp / 1000), MaxDown: uint64(rule.MaxDown / 1000),
			GuaranteedUp: uint64(rule.GuaranteedUp / 1000), GuaranteedDown: uint64(rule.GuaranteedDown / 1000),
		},
	}}
	answer, err := s.do(ctx, of, by, &gtpc.CreateBearer{PTI: by.pti, Linked: of.key.ebi, Bearers: []gtpc.Bearer{made.Bearer}})
	if err == nil {
		err = created(&answer)
	}
	if err == nil {
		made.EBI, made.S5SGW, made.TFT = answer.Bearers[0].EBI, answer.Bearers[0].S5SGW, nil
		err = s.attach(of, made)
	}
	s.procedures.Count(gtpc.CreateBearerRequest, causeOf(err))
	return err
}

// created returns an error if a Create Bearer Response refuses the bearer. The error is a
// gtpc.Result.
func created(answer *gtpc.Answer) error {
	switch {
	case len(answer.Bearers) == 1 && !answer.Bearers[0].Result.Cause.Accepted():
		return answer.Bearers[0].Result
	case !answer.Result.Cause.Accepted():
		return answer.Result
	case len(answer.Bearers) != 1:
		return gtpc.Result{Cause: gtpc.InvalidReply, Offending: gtpc.BearerContext}
	}
	return nil
}

// attach adds a dedicated bearer to a session. It replaces a bearer with the same identity:
// the MME assigns identities, and has released that bearer, perhaps because an eNodeB did
// not admit it. It fails with a gtpc.Result if the session was removed, or if the identity
// is the default bearer's.
func (s *server) attach(of *session, made bearer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, _ := s.sessions.Get(of.teid); found != of {
		return gtpc.Result{Cause: gtpc.ContextNotFound}
	}
	if made.EBI == of.key.ebi || made.EBI < 5 {
		return gtpc.Result{Cause: gtpc.InvalidReply, Offending: gtpc.EBI}
	}
	of.bearers = append(slices.DeleteFunc(of.bearers, func(b bearer) bool { return b.EBI == made.EBI }), made)
	return nil
}

// deactivate removes the dedicated bearer of a rule, whatever the S-GW answers.
func (s *server) deactivate(ctx context.Context, of *session, rule string, by *trigger) error {
	s.mu.Lock()
	ebi := of.drop(rule)
	s.mu.Unlock()
	if ebi == 0 {
		return gtpc.Result{Cause: gtpc.ContextNotFound}
	}
	answer, err := s.do(ctx, of, by, &gtpc.DeleteBearer{Bearers: []uint8{ebi}, PTI: by.pti})
	if err == nil && !answer.Result.Cause.Accepted() {
		err = answer.Result
	}
	s.procedures.Count(gtpc.DeleteBearerRequest, causeOf(err))
	return err
}

// bits converts kbit/s to bit/s, with the limit of kilo.
func bits(rate uint64) uint32 { return kilo(uint32(min(rate, 1<<32-1))) }
