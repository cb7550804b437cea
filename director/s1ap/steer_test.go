package s1ap

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/enb"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

func TestSetupIsAnsweredForThePool(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.connect(5)
	e.send(e.AppendSetup(nil))
	_, raw := e.expect(s1ap.Successful, s1ap.S1Setup)
	var m s1ap.Message
	if err := m.Parse(raw); err != nil {
		t.Fatal(err)
	}
	codes := make([]byte, 256) // all MME codes
	for i := range codes {
		codes[i] = byte(i)
	}
	for id, want := range map[s1ap.ID]string{
		s1ap.MMEName:          "\x01\x80pool",
		s1ap.RelativeCapacity: "\x4d",
		s1ap.ServedGUMMEIs:    "\x00\x00\x00\xf1\x10\x00\x00\x00\x01\xff" + string(codes), // PLMN 001-01, group 1
	} {
		if got, _ := m.Find(id); string(got) != want {
			t.Errorf("element %d: got % x, want % x", id, got, want)
		}
	}
	a.at(e.Cell)
	b.at(e.Cell)
	if c := s.server.Counters(); c.Setups != 1 || c.ENodeBs != 1 || c.Links != 2 {
		t.Errorf("%+v", c)
	}
}

func TestSetupFailsWithoutAnInstanceAndSucceedsLater(t *testing.T) {
	a := newInstance(t, attachType, 1)
	a.kill()
	s := newSite(t, false, []*instance{a})
	e := s.connect(5)
	e.send(e.AppendSetup(nil))
	if m, _ := e.expect(s1ap.Unsuccessful, s1ap.S1Setup); m.Cause != noResource {
		t.Errorf("S1 Setup refused with cause %v, want no resource", m.Cause)
	}
	b := newInstance(t, attachType, 2)
	s.publish(b.instance())
	e.send(e.AppendSetup(nil))
	e.expect(s1ap.Successful, s1ap.S1Setup)
}

func TestSetupCannotBeRepeatedAtOnce(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	e.send(e.AppendSetup(nil))
	e.expect(s1ap.Unsuccessful, s1ap.S1Setup)
	e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
	e.arrived(s1ap.UplinkNASTransport, a)
}

func TestSetupOfAnotherNetworkIsRefused(t *testing.T) {
	s := newSite(t, false, []*instance{newInstance(t, attachType, 1)})
	e := s.connect(5)
	e.TAI.PLMN, _ = identity.MakePLMN("262", "01")
	e.send(e.AppendSetup(nil))
	if m, _ := e.expect(s1ap.Unsuccessful, s1ap.S1Setup); m.Cause != s1ap.CauseUnknownPLMN {
		t.Errorf("S1 Setup refused with cause %v, want unknown PLMN", m.Cause)
	}
}

func TestNothingIsForwardedBeforeSetup(t *testing.T) {
	s := newSite(t, false, []*instance{newInstance(t, attachType, 1)})
	e := s.connect(5)
	e.send(e.AppendInitial(nil, 3, attachRequest(1), nil))
	if m, _ := e.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseIncompatible || m.IDs.ENB != 3 {
		t.Errorf("%+v", m)
	}
}

func TestEnodebThatIsSilentLosesItsAssociation(t *testing.T) {
	s := newSite(t, false, []*instance{newInstance(t, attachType, 1)}, func(c *Config, _ *Policy) { c.First = 200 * time.Millisecond })
	e := s.connect(5)
	if got := e.read(); got != nil {
		t.Errorf("% x", got)
	}
	s.until("it is counted", func() bool { return s.server.Counters().Late == 1 })
}

func TestFirstMessageGoesByItsSTMSI(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.enodeb(5)
	for n := range uint32(8) {
		want := []*instance{a, b}[n%2]
		if got := e.begin(n, serviceRequest(), &identity.STMSI{Code: want.number, TMSI: 77 + n}, a, b); got != want {
			t.Errorf("a request with the S-TMSI of %s went to %s", want.name, got.name)
		}
	}
}

// TestKnownUEsAreSpread checks that the weights choose also for UEs whose S-TMSI names an instance, if
// the type asks for it. A UE goes to the same instance again.
func TestKnownUEsAreSpread(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b}, func(_ *Config, p *Policy) { p.options[0].Spread = true })
	e, f := s.enodeb(5), s.enodeb(6)
	used := map[*instance]int{}
	for n := range uint32(16) {
		ue := &identity.STMSI{Code: a.number, TMSI: 77 + n}
		first := e.begin(n, serviceRequest(), ue, a, b)
		if second := f.begin(n, serviceRequest(), ue, a, b); second != first {
			t.Errorf("UE %d went first to %s and then to %s", n, first.name, second.name)
		}
		used[first]++
	}
	if len(used) != 2 {
		t.Error("all UEs of one instance went to 1 of 2 instances")
	}
}

func TestAttachGoesByItsIMSI(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e, f := s.enodeb(5), s.enodeb(6)
	used := map[*instance]int{}
	for n := range 12 {
		first := e.begin(uint32(2*n), attachRequest(n), nil, a, b)
		if second := f.begin(uint32(2*n+1), attachRequest(n), nil, a, b); second != first {
			t.Errorf("IMSI %d went first to %s and then to %s", n, first.name, second.name)
		}
		used[first]++
	}
	if len(used) != 2 {
		t.Errorf("all attaches went to 1 of 2 instances")
	}
}

func TestMessageOfEachKindGoesToItsType(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, srType, 2)
	s := newSite(t, true, []*instance{a, b})
	e := s.enodeb(5)
	if got := e.begin(1, attachRequest(1), nil, a, b); got != a {
		t.Errorf("the attach went to %s", got.name)
	}
	// The instance of the S-TMSI has another type, so the key chooses.
	if got := e.begin(2, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 5}, a, b); got != b {
		t.Errorf("the service request went to %s", got.name)
	}
}

func TestEnodebMayOnlyNameItsOwnConnections(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e, f := s.enodeb(5), s.enodeb(6)
	_, ids := e.connection(9, 1, attachRequest(1), nil, a)
	_, own := f.connection(9, 2, attachRequest(2), nil, a)
	for what, c := range map[string]struct {
		ids   enb.IDs
		cause s1ap.Cause
	}{
		"another eNodeB's": {ids, s1ap.CauseUnknownMMEUEID}, "a wrong pair": {enb.IDs{MME: own.MME, ENB: 8}, s1ap.CauseUnknownPair},
		"nobody's": {enb.IDs{MME: a.id(99), ENB: 9}, s1ap.CauseUnknownMMEUEID}, "no instance's": {enb.IDs{MME: 0x77000001, ENB: 9}, s1ap.CauseUnknownMMEUEID},
	} {
		f.send(f.AppendUplink(nil, c.ids, []byte{7, 0x55}))
		if m, _ := f.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != c.cause || m.IDs != c.ids {
			t.Errorf("%s: got cause %v for identifiers %+v", what, m.Cause, m.IDs)
		}
	}
	f.send(f.AppendUplink(nil, own, []byte{7, 0x55}))
	if got := f.arrived(s1ap.UplinkNASTransport, a); got != a {
		t.Error("the eNodeB's own message did not reach its instance")
	}
}

func TestRepeatedIdentifierIsRefused(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	_, ids := e.connection(9, 1, attachRequest(1), nil, a)
	e.send(about(s1ap.Initiating, s1ap.UplinkNASTransport, ids, func(b []byte) []byte {
		return s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Reject, a.id(7))
	}))
	if m, _ := e.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseAbstractSyntax {
		t.Errorf("cause %v", m.Cause)
	}
}

// TestInstanceMustGiveItsNumber checks that messages with another number are answered, so that they count as
// failures and not as drops. The log has the first one.
func TestInstanceMustGiveItsNumber(t *testing.T) {
	a, log := newInstance(t, attachType, 1), new(hosttest.Output)
	s := newSite(t, false, []*instance{a}, logTo(log))
	e := s.enodeb(5)
	e.begin(9, attachRequest(1), nil, a)
	at := a.at(e.Cell)
	const wrong = 2<<24 | 1
	handover := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.HandoverResourceAllocation, s1ap.Reject)
	for _, message := range [][]byte{
		about(s1ap.Initiating, s1ap.DownlinkNASTransport, enb.IDs{MME: wrong, ENB: 9}, nil),
		s1ap.End(s1ap.AppendMMEUEID(handover, s1ap.MMEUEID, s1ap.Reject, wrong), 0),
	} {
		at.send(message)
		if m, _ := at.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseUnknownMMEUEID {
			t.Errorf("cause %v", m.Cause)
		}
	}
	c, failures := s.server.Counters(), s.meter.Types()[0].Failures["unroutable"]
	if n := s.drops(meter.Unroutable); c.Misnumbered != 2 || c.Unknown != 0 || failures != 2 || n != 0 {
		t.Errorf("got %d misnumbered messages, %d about unknown connections, %d failures and %d drops, want 2, 0, 2 and 0", c.Misnumbered, c.Unknown, failures, n)
	}
	if n := strings.Count(log.String(), "without its number"); n != 1 {
		t.Errorf("got %d lines in the log, want 1: %s", n, log)
	}
}

// TestLostInstanceIsNoticedByItsConnectionsAlone kills one of two instances. The eNodeB must get a
// Reset of the connections at that instance only.
func TestLostInstanceIsNoticedByItsConnectionsAlone(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.enodeb(5)
	_, lost := e.connection(1, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
	_, kept := e.connection(2, 1, serviceRequest(), &identity.STMSI{Code: 2, TMSI: 2}, b)
	e.begin(3, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 3}, a) // the connection has no MME UE S1AP ID yet
	a.kill()
	_, raw := e.expect(s1ap.Initiating, s1ap.Reset)
	got := map[s1ap.Connection]bool{}
	for _, c := range connections(t, raw) {
		got[c] = true
	}
	if len(got) != 2 || !got[s1ap.Connection{MME: lost.MME, ENB: 1, HasMME: true, HasENB: true}] || !got[s1ap.Connection{ENB: 3, HasENB: true}] {
		t.Errorf("got a reset of %+v", got)
	}
	e.send(e.AppendUplink(nil, kept, []byte{7, 0x55}))
	e.arrived(s1ap.UplinkNASTransport, b)
	// The table still has the dead instance.
	if in := e.begin(4, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, b); in != b {
		t.Error("the next message of the UE did not reach the other instance")
	}
	if c := s.server.Counters(); c.UEs != 2 || c.Losses != 1 {
		t.Errorf("%+v", c)
	}
}

// connections returns the connections in a Reset.
func connections(t *testing.T, raw []byte) (all []s1ap.Connection) {
	t.Helper()
	var m s1ap.Message
	if err := m.Parse(raw); err != nil {
		t.Fatal(err)
	}
	v, _ := m.Find(s1ap.ResetType)
	whole, some, ok := s1ap.ParseReset(v)
	if whole || !ok {
		t.Fatalf("reset of all connections: got %v, %v", whole, ok)
	}
	for some.Next() {
		all = append(all, some.Connection)
	}
	return all
}

func TestDrainingInstanceKeepsItsConnectionsAndGetsNoMore(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
	draining := a.instance()
	draining.State = vitrine.Draining
	s.publish(draining, b.instance())
	e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
	e.arrived(s1ap.UplinkNASTransport, a)
	if in := e.begin(2, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 9}, a, b); in != b {
		t.Error("a draining instance got a new connection")
	}
	a.at(e.Cell).send(s1ap.End(s1ap.AppendCause(s1ap.AppendUEIDs(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UEContextRelease, s1ap.Reject), s1ap.Reject, ids.MME, ids.ENB), s1ap.Ignore, s1ap.CauseNormalRelease), 0))
	e.expect(s1ap.Initiating, s1ap.UEContextRelease)
	e.send(e.AppendReleased(nil, ids))
	s.until("the connection has ended", func() bool { return s.dialogs("m1") == 0 })
	s.publish(b.instance())
	s.until("the association of the instance that is gone has ended", func() bool { return a.at(e.Cell).ended() })
}

// ended reports whether the association has ended.
func (p *peer) ended() bool {
	_ = p.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	buffer := make([]byte, 64<<10)
	_, err := p.conn.Read(buffer)
	return errors.Is(err, io.EOF)
}

// dialogs returns the meter's number of connections at an instance, or -1 for an unknown instance.
func (s *site) dialogs(name string) int {
	for _, in := range s.meter.Instances() {
		if in.Name == name {
			return int(in.Dialogs)
		}
	}
	return -1
}

func TestNewInstanceGetsAnAssociationOfEachEnodeb(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	b := newInstance(t, attachType, 2)
	s.publish(a.instance(), b.instance())
	b.at(e.Cell)
	s.until("two associations are up", func() bool { return s.server.Counters().Links == 2 })
	if in := e.begin(2, serviceRequest(), &identity.STMSI{Code: 2, TMSI: 9}, a, b); in != b {
		t.Error("the UEs of the new instance went to another one")
	}
}

// TestReloadReachesConnectedEnodebs adds a type with an instance and then changes the type's
// transport. The links of an eNodeB that is set up must follow, although the new table is in force
// before the new policy.
func TestReloadReachesConnectedEnodebs(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, srType, 2)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	setPolicy := func(sctp bool) {
		t.Helper()
		p, err := NewPolicy(s.types, []TypeOption{{Type: attachType}, {Type: srType, SCTP: sctp}}, []Rule{{Type: attachType}})
		if err != nil {
			t.Fatal(err)
		}
		p.Pool = s.server.policy.Load().Pool
		s.server.SetPolicy(p)
	}
	s.types = append(s.types, srType)
	s.publish(a.instance(), b.instance())
	s.until("the links follow the table", func() bool {
		of := s.server.associations()[0]
		of.worker.mu.Lock()
		defer of.worker.mu.Unlock()
		return of.table == s.epochs.View().Table
	})
	setPolicy(false)
	link := b.at(e.Cell)
	s.until("two associations are up", func() bool { return s.server.Counters().Links == 2 })
	setPolicy(true)
	s.until("the association over TCP has ended", link.ended)
	if a.at(e.Cell).ended() {
		t.Error("the association with an instance of another type has ended")
	}
}

// gateOfOne and quotaOfOne admit one UE, and no other for a quarter of an hour.
func gateOfOne(_ *Config, p *Policy) {
	p.options[0].Gate = overload.New(overload.Config{Target: time.Second, Initial: 0.001, Min: 0.001, Max: 0.001, Burst: 1}, 0)
}

func quotaOfOne(_ *Config, p *Policy) {
	p.Quota = overload.NewQuota(overload.QuotaConfig{Rate: 0.001, Burst: 1, Sources: 8})
}

func TestRefusedUEMayTryAgain(t *testing.T) {
	for name, change := range map[string]func(*Config, *Policy){
		"gate":        gateOfOne,
		"quota":       quotaOfOne,
		"connections": func(c *Config, _ *Policy) { c.PerENodeB = 1 },
		"in total":    func(c *Config, _ *Policy) { c.UEs = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			a := newInstance(t, attachType, 1)
			s := newSite(t, false, []*instance{a}, change)
			e := s.enodeb(5)
			e.begin(1, attachRequest(1), nil, a)
			e.send(e.AppendInitial(nil, 2, attachRequest(2), nil))
			m, _ := e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
			var reject nas.Reject
			if err := reject.Parse(m.NAS); err != nil || reject.Type != nas.AttachRejectType || reject.Cause != nas.CauseCongestion || len(reject.T3346) > 0 {
				t.Errorf("%+v, %v", reject, err)
			}
			release, _ := e.expect(s1ap.Initiating, s1ap.UEContextRelease)
			if release.IDs != m.IDs || m.IDs.ENB != 2 || numberOf(m.IDs.MME) != 0 {
				t.Errorf("got identifiers %+v and %+v", m.IDs, release.IDs)
			}
			e.send(e.AppendReleased(nil, release.IDs))
			s.until("the release is absorbed", func() bool { c := s.server.Counters(); return c.Absorbed == 1 && c.Refused == 1 && c.UEs == 1 })
		})
	}
}

func TestAssociationsAreLimited(t *testing.T) {
	for name, limit := range map[string]struct {
		change         func(*Config, *Policy)
		source, others uint64
	}{
		"per source": {func(c *Config, _ *Policy) { c.PerSource = 2 }, 1, 0},
		"in total":   {func(c *Config, _ *Policy) { c.ENodeBs = 2 }, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, false, []*instance{newInstance(t, attachType, 1)}, limit.change)
			s.enodeb(1)
			second := s.enodeb(2)
			if s.connect(3).read() != nil {
				t.Error("a third association was accepted")
			}
			if c := s.server.Counters(); c.Crowded != limit.source || c.TurnedAway != limit.others {
				t.Errorf("counted %d associations refused by the limit of a source and %d by that of all, want %d and %d", c.Crowded, c.TurnedAway, limit.source, limit.others)
			}
			if err := second.conn.Close(); err != nil {
				t.Fatal(err)
			}
			s.until("there is room again", func() bool { return s.server.Counters().ENodeBs == 1 })
			s.enodeb(3)
		})
	}
}

// TestIdentityIsOneAddressesEnodeb checks that another host cannot take the identity of a connected
// eNodeB. The eNodeB itself may connect again.
func TestIdentityIsOneAddressesEnodeb(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	thief := s.connectFrom("127.0.0.2", 5)
	thief.send(thief.AppendSetup(nil))
	thief.expect(s1ap.Unsuccessful, s1ap.S1Setup)
	e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
	e.arrived(s1ap.UplinkNASTransport, a)
	s.enodeb(5)
	if e.read() != nil {
		t.Error("the old association is still open")
	}
	s.until("its connections have ended", func() bool { return s.server.Counters().UEs == 0 })
}

func TestStrangersAreTurnedAway(t *testing.T) {
	s := newSite(t, false, []*instance{newInstance(t, attachType, 1)}, func(_ *Config, p *Policy) { p.ENodeBs = append(p.ENodeBs, prefix("127.0.0.1/32")) })
	if s.connectFrom("127.0.0.2", 5).read() != nil {
		t.Error("an association from an unlisted address was accepted")
	}
	s.enodeb(5)
}

func TestConnectionsCountAsTransactions(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	a.at(e.Cell).send(about(s1ap.Initiating, s1ap.InitialContextSetup, ids, nil))
	e.expect(s1ap.Initiating, s1ap.InitialContextSetup)
	e.begin(2, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 9}, a)
	rejected := (&nas.Reject{Type: nas.ServiceRejectType, Cause: nas.CauseIdentityUnderived}).Append(nil)
	a.at(e.Cell).send(about(s1ap.Initiating, s1ap.DownlinkNASTransport, enb.IDs{MME: a.id(2), ENB: 2}, func(b []byte) []byte {
		return s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, rejected)
	}))
	e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
	s.until("both are counted", func() bool {
		in := s.meter.Instances()[0]
		return in.Begun == 2 && in.Ended["succeeded"] == 1 && in.Ended["declined"] == 1 && in.InFlight == 0 && s.dialogs("m1") == 2
	})
}

func TestVoiceCallGoesToTheTypeOfItsBearer(t *testing.T) {
	a, b, c := newInstance(t, attachType, 1), newInstance(t, srType, 2), newInstance(t, callType, 3)
	s := newSite(t, true, []*instance{a, b, c})
	e := s.enodeb(5)
	if got := e.begin(1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 5}, a, b, c); got != b {
		t.Errorf("the service request for data went to %s", got.name)
	}
	e.send(e.AppendCall(nil, 2, serviceRequest(), &identity.STMSI{Code: 2, TMSI: 6}))
	if got := e.arrived(s1ap.InitialUEMessage, a, b, c); got != c {
		t.Errorf("the service request for a call went to %s", got.name)
	}
	e.send(e.AppendCall(nil, 3, attachRequest(3), nil)) // the rule for calls matches only service requests
	if got := e.arrived(s1ap.InitialUEMessage, a, b, c); got != a {
		t.Errorf("the attach for a call went to %s", got.name)
	}
}

func TestUnknownCausesMatchRulesWithoutCause(t *testing.T) {
	p, err := NewPolicy([]string{attachType, srType}, []TypeOption{{Type: attachType}, {Type: srType}}, []Rule{{Cause: "mt-access", Type: srType}, {Type: attachType}})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[uint8]int{2: 0, 3: 1, 7: 1, 8: 1, 63: 1} {
		var e elements
		e.element(s1ap.EstablishmentCause, s1ap.AppendEnum(nil, s1ap.EstablishmentCause, s1ap.Ignore, value)[4:])
		if r, ok := p.classify(service, e.reason); !ok || r.at != want {
			t.Errorf("cause %d matches rule %d, want %d", value, r.at, want)
		}
	}
	if _, err := NewPolicy([]string{attachType}, []TypeOption{{Type: attachType}}, []Rule{{Cause: "boredom", Type: attachType}}); err == nil {
		t.Error("NewPolicy accepted an unknown cause")
	}
}

func TestExplainSaysWhereAMessageGoes(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, srType, 2)
	s := newSite(t, true, []*instance{a, b})
	cell := newCell(5)
	x, err := s.server.Explain(s.now(), s.meter.Probe(), s.server.Addresses()[0], cell.AppendInitial(nil, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 5}))
	if err != nil || !x.Initial || x.Message != "service-request" || x.Cause != "mo-data" || x.Identity != "S-TMSI" || x.Rule != 1 || x.Number != 1 || x.Instance == nil || x.Instance.Name != "m2" {
		t.Errorf("%+v, %v", x, err)
	}
	x, err = s.server.Explain(s.now(), s.meter.Probe(), s.server.Addresses()[0], cell.AppendUplink(nil, enb.IDs{MME: a.id(3), ENB: 1}, []byte{7, 0x55}))
	if err != nil || x.Initial || x.Named == nil || x.Named.Name != "m1" {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := s.server.Explain(s.now(), s.meter.Probe(), s.server.Addresses()[0], []byte("INVITE")); err == nil {
		t.Error("Explain accepted data that is not S1AP")
	}
}
