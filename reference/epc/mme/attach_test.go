package mme_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/epctest"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/ue"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// TestAttachAndDetach plays both with each ciphering algorithm, and with one worker
// and several.
func TestAttachAndDetach(t *testing.T) {
	for _, cipher := range []aka.Algorithm{aka.Null, aka.AES} {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("EEA%d/workers=%d", cipher, workers), func(t *testing.T) {
				b := start(t, func(c *mme.Config) { c.Cipher, c.Workers = cipher, workers })
				e := b.enodeb(1)
				const phones = 5
				for n := range phones {
					p := e.phone(n)
					p.attach()
					if p.ids.MME>>24 != 7 {
						t.Errorf("the top byte of MME UE S1AP ID %#x is not the instance", p.ids.MME)
					}
					if !p.HasGUTI || p.GUTI.Code != 7 || !p.Address.IsValid() || p.Bearer != 5 {
						t.Errorf("attach: got GUTI %v, address %v, bearer %d", p.GUTI, p.Address, p.Bearer)
					}
					p.uplink(p.AppendDetach(nil, n%2 == 1))
					if n%2 == 0 {
						p.download(ue.Detached)
					}
					if cause := p.hangUp(); cause != s1ap.CauseDetach {
						t.Errorf("got release cause %+v", cause)
					}
				}
				b.until("all contexts are gone", func() bool { return b.count("contexts") == 0 })
				if b.gateway.Len() != 0 || b.hss.Located() != 0 {
					t.Errorf("after the detaches: got %d sessions, %d registered subscribers, want 0", b.gateway.Len(), b.hss.Located())
				}
				if b.ended("attach", "success") != phones || b.ended("detach", "success") != phones {
					t.Errorf("counted %d attaches, %d detaches", b.ended("attach", "success"), b.ended("detach", "success"))
				}
			})
		}
	}
}

// TestAttachByKnownGUTIKeepsTheKeys attaches again, from idle and by another
// eNodeB, and then in the middle of a connection.
func TestAttachByKnownGUTIKeepsTheKeys(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Cipher = aka.AES })
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	p.idle()
	old := p.GUTI

	p.at = other
	p.begin(p.AppendAttach(nil))
	p.accept()
	if p.GUTI == old {
		t.Error("the UE got its old GUTI again")
	}
	old2, ids := p.GUTI, p.ids
	p.begin(p.AppendAttach(nil))
	m := other.expect(s1ap.Initiating, s1ap.UEContextRelease)
	if m.IDs != ids {
		t.Errorf("the MME released %+v, want the old connection %+v", m.IDs, ids)
	}
	other.send(other.AppendReleased(nil, m.IDs))
	p.accept()
	if p.GUTI == old2 || b.count("attaches_with_known_keys_total") != 2 || b.count("contexts") != 1 {
		t.Errorf("got GUTI %v, %d attaches with known keys, %d contexts", p.GUTI, b.count("attaches_with_known_keys_total"), b.count("contexts"))
	}
	p.uplink(p.AppendDetach(nil, false))
	p.download(ue.Detached)
	p.hangUp()
	b.until("the session is gone", func() bool { return b.gateway.Len() == 0 })
}

func TestAttachByUnknownGUTIAsksForTheIMSI(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.HasGUTI, p.GUTI = true, identity.GUTI{GUMMEI: identity.GUMMEI{PLMN: plmn(t), Group: 1, Code: 7}, TMSI: 0xdead}
	p.begin(p.AppendAttach(nil))
	p.uplink(p.download(ue.Asked))
	p.answerChallenge()
	p.accept()
}

// TestAttachWithForeignKeys: until the MME gives a UE new keys, the UE protects its messages with those of
// a context that the MME does not have. The MME drops messages that need a secure exchange.
func TestAttachWithForeignKeys(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	foreign := func(body []byte) []byte {
		pdu := append(nas.AppendFrame(nil, nas.Protected, 40), body...)
		nas.SetMAC(pdu, 0, 0x0badcafe)
		return pdu
	}
	p := e.phone(1)
	p.HasGUTI, p.GUTI = true, identity.GUTI{GUMMEI: identity.GUMMEI{PLMN: plmn(t), Group: 1, Code: 7}, TMSI: 0xdead}
	p.begin(foreign(p.AppendAttach(nil)))
	response := p.download(ue.Asked)
	dropped := [][]byte{
		p.AppendDetach(nil, true), p.AppendUpdate(nil, false), (&nas.SecurityModeComplete{}).Append(nil),
		(&nas.AttachComplete{ESM: []byte{0x52, 0, byte(nas.DefaultBearerAcceptType)}}).Append(nil),
	}
	for _, body := range dropped {
		p.uplink(foreign(body))
	}
	p.uplink(foreign(response))
	p.uplink(foreign(p.download(ue.Asked)))
	p.uplink(p.download(ue.Asked))
	p.accept()
	if got := b.count("unexpected_total"); got != len(dropped) {
		t.Errorf("%d messages were dropped, want %d", got, len(dropped))
	}

	p = e.phone(2)
	p.Secret.K[0] ^= 1
	p.begin(p.AppendAttach(nil))
	p.uplink(foreign(p.download(ue.Untrusted)))
	p.download(ue.Forbidden)
	p.hangUp()

	p = e.phone(3)
	p.begin(p.AppendAttach(nil))
	p.uplink(p.download(ue.Asked))
	p.download(ue.Asked)
	p.uplink(foreign((&nas.Failure{Type: nas.SecurityModeRejectType, Cause: nas.CauseCapabilityMismatch}).Append(nil)))
	p.hangUp()
	if b.ended("attach", "authentication") != 1 || b.ended("attach", "refused") != 1 {
		t.Errorf("%d attaches failed by authentication, %d were refused, want 1 each", b.ended("attach", "authentication"), b.ended("attach", "refused"))
	}
}

// TestAttachReplaysTheCapability attaches UEs with algorithms of UMTS and GPRS. Each must find its
// algorithms in the Security Mode Command (TS 24.301 clauses 5.4.3.2 and 9.9.3.36).
func TestAttachReplaysTheCapability(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	for n, c := range []struct{ network, ms, want []byte }{
		{[]byte{0xa0, 0x20}, nil, []byte{0xa0, 0x20}},
		{[]byte{0xa0, 0x20}, []byte{0x65, 0x80}, []byte{0xa0, 0x20}},                               // no algorithm
		{[]byte{0xa0, 0x20}, []byte{0xe5, 0xc0}, []byte{0xa0, 0x20, 0, 0, 0x60}},                   // GEA1 and GEA2
		{[]byte{0xa0, 0x20, 0xc0, 0xc0}, nil, []byte{0xa0, 0x20, 0xc0, 0x40}},                      // UEA0, UEA1, UCS2 and UIA1
		{[]byte{0xa0, 0x20, 0xc0, 0xc0}, []byte{0x65, 0xab}, []byte{0xa0, 0x20, 0xc0, 0x40, 0x15}}, // GEA3, GEA5 and GEA7
	} {
		p := e.phone(n)
		esm := nas.ConnectivityRequest{Header: nas.Bearer(0, 1), Request: 1, PDN: nas.PDNv4}
		p.begin((&nas.AttachRequest{
			Attach: 1, KSI: 7, Identity: nas.Identity{Kind: nas.KindIMSI, Digits: p.IMSI},
			Capability: c.network, MSCapability: c.ms, ESM: esm.Append(nil),
		}).Append(nil))
		p.uplink(p.download(ue.Asked))
		m := e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
		var pdu nas.PDU
		var command nas.SecurityModeCommand
		if err := pdu.Parse(m.NAS); err != nil {
			t.Fatal(err)
		}
		if err := command.Parse(pdu.Body); err != nil || !bytes.Equal(command.Capability, c.want) {
			t.Errorf("network capability %x, MS network capability %x: got %x, error %v, want %x", c.network, c.ms, command.Capability, err, c.want)
		}
		p.uplink(p.take(m, ue.Asked))
		p.accept()
	}
}

// TestAttachAgainByIMSIDetachesTheOldContext checks that a subscriber has one
// context, also if the two are of different workers.
func TestAttachAgainByIMSIDetachesTheOldContext(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Workers = 2 })
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	second := other.phone(1)
	other.last++ // the other worker
	b.hss.SetSQN(p.IMSI, 100)
	second.begin(second.AppendAttach(nil))
	second.answerChallenge()
	complete := second.take(other.expect(s1ap.Initiating, s1ap.InitialContextSetup), ue.Accepted)
	p.hangUp()
	other.send(other.AppendContextSetUp(nil, second.ids, 5))
	second.uplink(complete)
	second.reached(other)
	b.until("one context is left", func() bool { return b.count("contexts") == 1 })
	if b.count("attached_again_total") != 1 || b.hss.Located() != 1 {
		t.Errorf("got %d repeated attaches, %d registered subscribers, want 1 each", b.count("attached_again_total"), b.hss.Located())
	}
}

func TestAttachOfUnknownSubscriberIsRejected(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.IMSI, _ = identity.MakeDigits("999990000000001")
	p.begin(p.AppendAttach(nil))
	p.rejected(nas.CauseServicesNotAllowed)
	b.until("the context is gone", func() bool { return b.count("contexts") == 0 })
	if b.ended("attach", "unknown-subscriber") != 1 {
		t.Error("the attach of an unknown subscriber was not counted")
	}
}

// TestAttachWithWrongKeysIsRejected plays a UE whose own check fails, and one that
// answers whatever it is asked.
func TestAttachWithWrongKeysIsRejected(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	honest := e.phone(1)
	honest.Secret.K[0] ^= 1
	honest.begin(honest.AppendAttach(nil))
	honest.uplink(honest.download(ue.Untrusted))
	honest.download(ue.Forbidden)
	if cause := honest.hangUp(); cause != s1ap.CauseAuthentication {
		t.Errorf("got release cause %+v", cause)
	}
	liar := e.phone(2)
	liar.begin(liar.AppendAttach(nil))
	liar.download(ue.Asked)
	liar.uplink((&nas.AuthenticationResponse{RES: make([]byte, 8)}).Append(nil))
	liar.download(ue.Forbidden)
	liar.hangUp()
	b.until("both are counted and gone", func() bool {
		return b.ended("attach", "authentication") == 2 && b.count("contexts") == 0
	})
}

func TestAttachResynchronises(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	b.hss.SetSQN(p.IMSI, 1000)
	p.attach()
	p.uplink(p.AppendDetach(nil, true))
	p.hangUp()
	p.Forget()
	b.hss.SetSQN(p.IMSI, 5)
	p.begin(p.AppendAttach(nil))
	p.uplink(p.download(ue.Asked)) // AUTS
	p.answerChallenge()
	p.accept()
	if b.count("resynchronisations_total") != 1 {
		t.Error("the resynchronisation was not counted")
	}
}

// A failing HSS and gateway fail the calls that they are made to fail.
type failing struct {
	*epctest.HSS
	*epctest.Gateway
	vector, location, create, modify error
	hang                             bool // calls for vectors never return by themselves
}

func (f *failing) Vector(ctx context.Context, imsi identity.Digits, p identity.PLMN, r *mme.Resynchronisation) (aka.Vector, error) {
	if f.hang {
		<-ctx.Done()
		return aka.Vector{}, ctx.Err()
	}
	v, err := f.HSS.Vector(ctx, imsi, p, r)
	return v, errors.Join(err, f.vector)
}

func (f *failing) UpdateLocation(ctx context.Context, imsi identity.Digits, p identity.PLMN) (mme.Subscription, error) {
	s, err := f.HSS.UpdateLocation(ctx, imsi, p)
	return s, errors.Join(err, f.location)
}

func (f *failing) CreateSession(ctx context.Context, r mme.SessionRequest) (mme.Session, error) {
	if f.create != nil {
		return mme.Session{}, f.create
	}
	return f.Gateway.CreateSession(ctx, r)
}

func (f *failing) ModifyBearer(ctx context.Context, s mme.Session, to s1ap.Tunnel) error {
	if f.modify != nil {
		return f.modify
	}
	return f.Gateway.ModifyBearer(ctx, s, to)
}

// TestAttachFailsWithItsNeighbours makes each call of an attach fail.
func TestAttachFailsWithItsNeighbours(t *testing.T) {
	away := errors.New("away")
	for name, c := range map[string]struct {
		failing failing
		secured bool // the rejection comes after the security mode
		cause   nas.Cause
		esm     nas.ESMCause
		outcome string
	}{
		"vector":              {failing{vector: away}, false, nas.CauseNetworkFailure, 0, "network-failure"},
		"HSS silent":          {failing{hang: true}, false, nas.CauseNetworkFailure, 0, "network-failure"},
		"location":            {failing{location: away}, true, nas.CauseNetworkFailure, 0, "network-failure"},
		"subscription is new": {failing{location: mme.ErrUnknown}, true, nas.CauseServicesNotAllowed, 0, "unknown-subscriber"},
		"session":             {failing{create: away}, true, nas.CauseESMFailure, nas.ESMCauseNetworkFailure, "network-failure"},
		"no address left":     {failing{create: gtpc.Result{Cause: gtpc.AddressesOccupied}}, true, nas.CauseESMFailure, nas.ESMCauseResources, "no-resources"},
		"unknown APN":         {failing{create: gtpc.Result{Cause: gtpc.UnknownAPN}}, true, nas.CauseESMFailure, nas.ESMCauseUnknownAPN, "refused"},
		"PCRF refuses":        {failing{create: gtpc.Result{Cause: gtpc.RequestRejected}}, true, nas.CauseESMFailure, nas.ESMCauseGateway, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, func(config *mme.Config) {
				c.failing.HSS, c.failing.Gateway = config.Subscribers.(*epctest.HSS), config.Gateway.(*epctest.Gateway)
				config.Subscribers, config.Gateway, config.CallTime = &c.failing, &c.failing, 50*time.Millisecond
			})
			e := b.enodeb(1)
			p := e.phone(1)
			p.begin(p.AppendAttach(nil))
			if c.secured {
				p.answerChallenge()
			}
			p.rejected(c.cause)
			if p.ESM != c.esm {
				t.Errorf("got ESM cause %d, want %d", p.ESM, c.esm)
			}
			if got := b.ended("attach", c.outcome); got != 1 {
				t.Errorf("%d attaches ended with %s, want 1", got, c.outcome)
			}
			b.until("the context is gone", func() bool { return b.count("contexts") == 0 })
			if b.gateway.Len() != 0 {
				t.Errorf("%d sessions are left, want 0", b.gateway.Len())
			}
		})
	}
}

// TestAttachWithoutBearerIsUndone lets the gateway refuse the eNodeB's end.
func TestAttachWithoutBearerIsUndone(t *testing.T) {
	f := failing{modify: errors.New("away")}
	b := start(t, func(c *mme.Config) {
		f.HSS, f.Gateway = c.Subscribers.(*epctest.HSS), c.Gateway.(*epctest.Gateway)
		c.Gateway = &f
	})
	e := b.enodeb(1)
	p := e.phone(1)
	p.begin(p.AppendAttach(nil))
	p.answerChallenge()
	complete := p.take(e.expect(s1ap.Initiating, s1ap.InitialContextSetup), ue.Accepted)
	e.send(e.AppendContextSetUp(nil, p.ids, 5))
	p.uplink(complete)
	p.download(ue.Dismissed)
	p.hangUp()
	b.until("nothing is left", func() bool {
		return b.count("contexts") == 0 && b.gateway.Len() == 0 && b.hss.Located() == 0
	})
	if b.ended("attach", "network-failure") != 1 {
		t.Error("the failed attach was not counted")
	}
}

// TestServiceWithoutSessionDetaches has the gateway lose the session of an idle UE, as an S-GW
// that restarts does. The MME must tell the UE to attach again.
func TestServiceWithoutSessionDetaches(t *testing.T) {
	var f failing
	b := start(t, func(c *mme.Config) {
		f.HSS, f.Gateway = c.Subscribers.(*epctest.HSS), c.Gateway.(*epctest.Gateway)
		c.Gateway = &f
	})
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	p.idle()
	f.modify = gtpc.Result{Cause: gtpc.ContextNotFound}
	p.begin(p.AppendService(nil))
	m := e.expect(s1ap.Initiating, s1ap.InitialContextSetup)
	p.ids.MME = m.IDs.MME
	p.Serve()
	e.send(e.AppendContextSetUp(nil, p.ids, m.Bearer))
	p.download(ue.Dismissed)
	p.hangUp()
	b.until("nothing is left", func() bool {
		return b.count("contexts") == 0 && b.gateway.Len() == 0 && b.hss.Located() == 0
	})
	if b.ended("service-request", "network-failure") != 1 {
		t.Error("the failed service request was not counted")
	}
}

// TestAttachIsRefusedWhenTheWindowIsFull holds the HSS until the first attaches fill
// the window. What was admitted must be carried through.
func TestAttachIsRefusedWhenTheWindowIsFull(t *testing.T) {
	g := &gated{open: make(chan struct{})}
	b := start(t, func(c *mme.Config) {
		g.HSS = c.Subscribers.(*epctest.HSS)
		c.Subscribers, c.TargetDelay, c.BackOff, c.CallTime = g, time.Minute, 20*time.Second, time.Minute
	})
	e := b.enodeb(1)
	var admitted []*phone
	for n := 0; ; n++ {
		if n > 1000 {
			t.Fatal("1000 attaches were admitted")
		}
		p := e.phone(n)
		p.begin(p.AppendAttach(nil))
		// An attach that is refused is answered before an echo of what follows it.
		e.send(e.AppendReleaseRequest(nil, p.ids, s1ap.CauseUserInactivity))
		if e.expectEither(s1ap.DownlinkNASTransport, s1ap.ErrorIndication) == s1ap.ErrorIndication {
			admitted = append(admitted, p)
			continue
		}
		p.take(&e.message, ue.Rejected)
		if wait, _ := p.BackOff.Duration(); p.Cause != nas.CauseCongestion || wait != 20*time.Second {
			t.Errorf("got reject cause %d, back-off %v", p.Cause, wait)
		}
		p.hangUp()
		e.expect(s1ap.Initiating, s1ap.ErrorIndication)
		break
	}
	if len(admitted) < 20 {
		t.Fatalf("admitted only %d attaches, want at least 20", len(admitted))
	}
	close(g.open)
	byID := map[uint32]*phone{}
	for _, p := range admitted {
		byID[p.ids.ENB] = p
	}
	for done := 0; done < len(admitted); {
		if !e.receive() {
			t.Fatal("the association ended")
		}
		p := byID[e.message.IDs.ENB]
		p.ids.MME = e.message.IDs.MME
		setup := e.message.Procedure == s1ap.InitialContextSetup
		reply, event, err := p.Receive(nil, e.message.NAS)
		if err != nil || event != ue.Asked && event != ue.Accepted {
			t.Fatalf("got event %d, error %v", event, err)
		}
		if setup {
			e.send(e.AppendContextSetUp(nil, p.ids, 5))
			done++
		}
		p.uplink(reply)
	}
	b.until("all that were admitted have attached", func() bool { return b.ended("attach", "success") == len(admitted) })
	if b.ended("attach", "congestion") != 1 {
		t.Error("the refusal was not counted")
	}
}

// A gated HSS gives vectors when it is open.
type gated struct {
	*epctest.HSS
	open chan struct{}
}

func (g *gated) Vector(ctx context.Context, imsi identity.Digits, p identity.PLMN, r *mme.Resynchronisation) (aka.Vector, error) {
	select {
	case <-g.open:
	case <-ctx.Done():
	}
	return g.HSS.Vector(ctx, imsi, p, r)
}

// expectEither receives a message of one of the procedures.
func (e *base) expectEither(procedures ...s1ap.Procedure) s1ap.Procedure {
	e.t.Helper()
	if !e.receive() {
		e.t.Fatalf("%s: the association ended", e.Name)
	}
	for _, p := range procedures {
		if e.message.Procedure == p {
			return p
		}
	}
	e.t.Fatalf("%s: got %v, want one of %v", e.Name, e.message.Procedure, procedures)
	return 0
}

func TestAttachBeyondTheContextsIsRefused(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Contexts = 1 })
	e := b.enodeb(1)
	e.phone(1).attach()
	p := e.phone(2)
	p.begin(p.AppendAttach(nil))
	p.rejected(nas.CauseCongestion)
}

func TestAttachForIPv6IsRefused(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	esm := nas.ConnectivityRequest{Header: nas.Bearer(0, 1), Request: 1, PDN: nas.PDNv6}
	m := nas.AttachRequest{
		Attach: 1, KSI: 7, Identity: nas.Identity{Kind: nas.KindIMSI, Digits: p.IMSI},
		Capability: []byte{0xa0, 0x20}, ESM: esm.Append(nil),
	}
	p.begin(m.Append(nil))
	p.rejected(nas.CauseESMFailure)
	m.Capability = []byte{0xa0, 0x40} // no EIA2
	p = e.phone(2)
	p.begin(m.Append(nil))
	p.rejected(nas.CauseCapabilityMismatch)
	b.until("the contexts are gone", func() bool { return b.count("contexts") == 0 })
}

// TestSilentUEIsAskedAgainAndGivenUp answers no challenge.
func TestSilentUEIsAskedAgainAndGivenUp(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Timers.NAS = 20 * time.Millisecond })
	e := b.enodeb(1)
	p := e.phone(1)
	p.begin(p.AppendAttach(nil))
	for range 5 {
		p.download(ue.Asked)
	}
	p.hangUp()
	b.until("the context is gone", func() bool { return b.count("contexts") == 0 })
	if b.ended("attach", "timeout") != 1 || b.count("nas_retransmissions_total") != 4 {
		t.Errorf("counted %d timeouts, %d retransmissions, want 1 and 4", b.ended("attach", "timeout"), b.count("nas_retransmissions_total"))
	}
}

// TestRetransmittedSecurityModeCommandIsAnswered answers the second one only.
func TestRetransmittedSecurityModeCommandIsAnswered(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Timers.NAS, c.Cipher = 300*time.Millisecond, aka.AES })
	e := b.enodeb(1)
	p := e.phone(1)
	p.begin(p.AppendAttach(nil))
	p.uplink(p.download(ue.Asked))
	p.download(ue.Asked)
	p.uplink(p.download(ue.Asked))
	p.accept()
}
