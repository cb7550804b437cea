package s1ap

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/reference/epc/enb"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// TestHandoverStaysAtItsInstance checks that a UE that is handed over by S1 stays at its instance.
// The messages of both eNodeBs must reach that instance.
func TestHandoverStaysAtItsInstance(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e, f := s.enodeb(5), s.enodeb(6)
	_, ids := e.connection(1, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
	there := enb.IDs{MME: ids.MME, ENB: 40}

	// The target may not answer a Handover Request that it did not get.
	f.send(f.AppendHandoverAdmitted(nil, there, []byte{1}, 5))
	if m, _ := f.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseUnknownMMEUEID {
		t.Errorf("cause %v", m.Cause)
	}
	e.send(e.AppendHandoverRequired(nil, ids, &f.Cell, []byte{1}))
	a.at(e.Cell).expect(s1ap.Initiating, s1ap.HandoverPreparation)
	request := s1ap.AppendMMEUEID(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.HandoverResourceAllocation, s1ap.Reject), s1ap.MMEUEID, s1ap.Reject, ids.MME)
	a.at(f.Cell).send(s1ap.End(request, 0))
	f.expect(s1ap.Initiating, s1ap.HandoverResourceAllocation)
	f.send(f.AppendHandoverAdmitted(nil, there, []byte{1}, 5))
	a.at(f.Cell).expect(s1ap.Successful, s1ap.HandoverResourceAllocation)
	a.at(e.Cell).send(about(s1ap.Successful, s1ap.HandoverPreparation, ids, nil))
	e.expect(s1ap.Successful, s1ap.HandoverPreparation)
	f.send(f.AppendHandoverNotify(nil, there))
	a.at(f.Cell).expect(s1ap.Initiating, s1ap.HandoverNotification)
	a.at(e.Cell).send(releaseCommand(ids))
	e.expect(s1ap.Initiating, s1ap.UEContextRelease)
	e.send(e.AppendReleased(nil, ids))
	a.at(e.Cell).expect(s1ap.Successful, s1ap.UEContextRelease)
	f.send(f.AppendUplink(nil, there, []byte{7, 0x55}))
	a.at(f.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
	if c := s.server.Counters(); c.UEs != 1 {
		t.Errorf("got %d connections, want 1", c.UEs)
	}
	if in := s.meter.Instances()[0]; in.Begun != 2 || in.Ended["succeeded"] != 1 {
		t.Errorf("%+v", in)
	}
}

// TestHandoverIsReleasedByTheMMEIdentifier ends a handover before its instance has the answer of the
// target. The release has only the MME UE S1AP ID. It must reach the target, and the target's answer
// must reach the instance, also if the release crosses a Handover Request Acknowledge.
func TestHandoverIsReleasedByTheMMEIdentifier(t *testing.T) {
	for name, crosses := range map[string]bool{"not answered": false, "crosses the answer": true} {
		t.Run(name, func(t *testing.T) {
			a := newInstance(t, attachType, 1)
			s := newSite(t, false, []*instance{a})
			e, f := s.enodeb(5), s.enodeb(6)
			_, ids := e.connection(1, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
			request := s1ap.AppendMMEUEID(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.HandoverResourceAllocation, s1ap.Reject), s1ap.MMEUEID, s1ap.Reject, ids.MME)
			a.at(f.Cell).send(s1ap.End(request, 0))
			f.expect(s1ap.Initiating, s1ap.HandoverResourceAllocation)
			there := enb.IDs{MME: ids.MME, ENB: 40}
			if crosses {
				f.send(f.AppendHandoverAdmitted(nil, there, []byte{1}, 5))
				a.at(f.Cell).expect(s1ap.Successful, s1ap.HandoverResourceAllocation)
			}

			release := appendMMEAlone(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UEContextRelease, s1ap.Reject), ids.MME)
			a.at(f.Cell).send(s1ap.End(s1ap.AppendCause(release, s1ap.Ignore, s1ap.CauseNormalRelease), 0))
			if m, _ := f.expect(s1ap.Initiating, s1ap.UEContextRelease); m.IDs.MME != ids.MME || m.HasENB {
				t.Errorf("%+v", m)
			}
			f.send(f.AppendReleased(nil, there))
			if m, _ := a.at(f.Cell).expect(s1ap.Successful, s1ap.UEContextRelease); m.IDs != there {
				t.Errorf("%+v", m)
			}
			f.send(f.AppendReleased(nil, there)) // once is enough
			s.until("the second answer is absorbed", func() bool { return s.server.Counters().Absorbed == 1 })
			e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
			a.at(e.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
			if c := s.server.Counters(); c.UEs != 1 {
				t.Errorf("got %d connections, want 1", c.UEs)
			}
		})
	}
}

// TestResetEndsTheTargetOfAHandover resets a UE by its MME UE S1AP ID alone, between Handover Request
// Acknowledge and Handover Notify. The connection at the target must end.
func TestResetEndsTheTargetOfAHandover(t *testing.T) {
	there := enb.IDs{MME: 1<<24 | 9, ENB: 3}
	message := s1ap.End(s1ap.AppendReset(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject), s1ap.Connection{MME: there.MME, HasMME: true}), 0)
	whole := frame.Append(nil, frame.Common, message)
	for name, reset := range map[string]func(*bench){
		"by the instance": func(b *bench) { b.downlink(b.links[0], whole, message) },
		"by the eNodeB":   func(b *bench) { b.uplink(b.e, whole, message) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.begin()
			defer b.done()
			b.server.holders.set(there.MME, place{new(enodeb), 1}) // the source
			b.e.expect(there.MME)
			admitted := b.cell.AppendHandoverAdmitted(nil, there, []byte{1}, 5)
			b.uplink(b.e, frame.Append(nil, frame.UE, admitted), admitted)
			if _, ok := b.e.ues[there.ENB]; !ok {
				t.Fatal("the target has no connection, so the test proves nothing")
			}
			reset(b)
			if _, ok := b.e.ues[there.ENB]; ok {
				t.Error("the target still has the connection")
			}
		})
	}
}

// appendMMEAlone appends the element UEIDs with the MME UE S1AP ID alone: the second alternative, of
// 4 octets.
func appendMMEAlone(b []byte, mme uint32) []byte {
	return s1ap.AppendElement(b, s1ap.UEIDs, s1ap.Reject, binary.BigEndian.AppendUint32([]byte{0x70}, mme))
}

func releaseCommand(ids enb.IDs) []byte {
	b := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UEContextRelease, s1ap.Reject)
	return s1ap.End(s1ap.AppendCause(s1ap.AppendUEIDs(b, s1ap.Reject, ids.MME, ids.ENB), s1ap.Ignore, s1ap.CauseNormalRelease), 0)
}

// TestPathSwitchEndsTheOldConnection checks that a handover by X2 ends the connection at the old
// eNodeB, although the old eNodeB sends nothing. The instance may give the UE another MME UE S1AP ID.
func TestPathSwitchEndsTheOldConnection(t *testing.T) {
	for name, given := range map[string]uint32{"same identifier": 1, "another identifier": 2} {
		t.Run(name, func(t *testing.T) {
			a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
			s := newSite(t, false, []*instance{a, b})
			e, f := s.enodeb(5), s.enodeb(6)
			_, ids := e.connection(1, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
			there := enb.IDs{MME: a.id(given), ENB: 40}
			f.send(f.AppendPathSwitch(nil, enb.IDs{MME: ids.MME, ENB: there.ENB}, 5))
			a.at(f.Cell).expect(s1ap.Initiating, s1ap.PathSwitchRequest)
			a.at(f.Cell).send(about(s1ap.Successful, s1ap.PathSwitchRequest, there, nil))
			f.expect(s1ap.Successful, s1ap.PathSwitchRequest)
			s.until("the old connection has ended", func() bool { return s.server.Counters().UEs == 1 })
			f.send(f.AppendUplink(nil, there, []byte{7, 0x55}))
			a.at(f.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
			e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
			if m, _ := e.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseUnknownMMEUEID {
				t.Errorf("cause %v", m.Cause)
			}
		})
	}
}

func TestPathSwitchOfNoInstanceFails(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	e.send(e.AppendPathSwitch(nil, enb.IDs{MME: 9<<24 | 1, ENB: 3}, 5))
	if m, _ := e.expect(s1ap.Unsuccessful, s1ap.PathSwitchRequest); m.Cause != s1ap.CauseUnknownMMEUEID {
		t.Errorf("cause %v", m.Cause)
	}
	e.send(e.AppendPathSwitch(nil, enb.IDs{MME: a.id(1), ENB: 3}, 5))
	a.at(e.Cell).expect(s1ap.Initiating, s1ap.PathSwitchRequest)
	a.at(e.Cell).send(about(s1ap.Unsuccessful, s1ap.PathSwitchRequest, enb.IDs{MME: a.id(1), ENB: 3}, nil))
	e.expect(s1ap.Unsuccessful, s1ap.PathSwitchRequest)
	s.until("nothing is left", func() bool { return s.server.Counters().UEs == 0 })
}

// TestResetOfAnEnodebReachesEachInstance resets three connections at two instances, and one that
// does not exist. Each instance must get a Reset of its own connections only.
func TestResetOfAnEnodebReachesEachInstance(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.enodeb(5)
	var all []s1ap.Connection
	for n := range uint32(4) {
		of := []*instance{a, b}[n%2]
		_, ids := e.connection(n, n+1, serviceRequest(), &identity.STMSI{Code: of.number, TMSI: n}, of)
		all = append(all, s1ap.Connection{MME: ids.MME, ENB: ids.ENB, HasMME: true, HasENB: true})
	}
	some := []s1ap.Connection{all[0], {MME: all[1].MME, HasMME: true}, {ENB: 77, HasENB: true}, {ENB: all[2].ENB, HasENB: true}}
	e.send(s1ap.End(s1ap.AppendReset(s1ap.AppendCause(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject), s1ap.Ignore, s1ap.CauseOverload), some...), 0))
	_, raw := e.expect(s1ap.Successful, s1ap.Reset)
	var m s1ap.Message
	if err := m.Parse(raw); err != nil {
		t.Fatal(err)
	}
	v, _ := m.Find(s1ap.ResetConnections)
	acknowledged := 0
	for it := s1ap.ParseConnections(v); it.Next(); acknowledged++ {
		if it.Connection != some[acknowledged] {
			t.Errorf("acknowledged connection %+v, want %+v", it.Connection, some[acknowledged])
		}
	}
	if acknowledged != len(some) {
		t.Errorf("acknowledged %d connections, want all", acknowledged)
	}
	_, raw = a.at(e.Cell).expect(s1ap.Initiating, s1ap.Reset)
	if got := connections(t, raw); len(got) != 2 || got[0] != some[0] || got[1] != some[3] {
		t.Errorf("reset at the first instance: got connections %+v", got)
	}
	_, raw = b.at(e.Cell).expect(s1ap.Initiating, s1ap.Reset)
	if got := connections(t, raw); len(got) != 1 || got[0] != some[1] {
		t.Errorf("reset at the second instance: got connections %+v", got)
	}
	b.at(e.Cell).send(s1ap.End(s1ap.AppendHeader(nil, s1ap.Successful, s1ap.Reset, s1ap.Reject), 0)) // the director absorbs it
	e.send(e.AppendUplink(nil, enb.IDs{MME: all[3].MME, ENB: all[3].ENB}, []byte{7, 0x55}))
	b.at(e.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
	if c := s.server.Counters(); c.UEs != 1 {
		t.Errorf("got %d connections, want 1", c.UEs)
	}
}

// TestResetOfAnInstanceConcernsItsConnections checks that the Reset of a whole instance ends only
// the connections at that instance.
func TestResetOfAnInstanceConcernsItsConnections(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.enodeb(5)
	_, gone := e.connection(1, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
	_, kept := e.connection(2, 1, serviceRequest(), &identity.STMSI{Code: 2, TMSI: 1}, b)
	a.at(e.Cell).send(s1ap.End(s1ap.AppendReset(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject)), 0))
	_, raw := e.expect(s1ap.Initiating, s1ap.Reset)
	if got := connections(t, raw); len(got) != 1 || got[0].MME != gone.MME {
		t.Errorf("got a reset of %+v", got)
	}
	a.at(e.Cell).expect(s1ap.Successful, s1ap.Reset)
	e.send(e.AppendUplink(nil, kept, []byte{7, 0x55}))
	b.at(e.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
}

func TestErrorIndicationOfAnEnodebEndsTheConnection(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	e.send(about(s1ap.Initiating, s1ap.ErrorIndication, ids, func(b []byte) []byte { return s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseUnknownENBUEID) }))
	a.at(e.Cell).expect(s1ap.Initiating, s1ap.ErrorIndication)
	s.until("it has ended", func() bool { return s.server.Counters().UEs == 0 })
}

// TestErrorIndicationOfAnInstanceEndsTheConnection checks that a connection ends if its instance does
// not know it. An Error Indication about an earlier connection with the same eNB UE S1AP ID must not
// end it.
func TestErrorIndicationOfAnInstanceEndsTheConnection(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	complain := func(ids enb.IDs) {
		t.Helper()
		a.at(e.Cell).send(about(s1ap.Initiating, s1ap.ErrorIndication, ids, func(b []byte) []byte { return s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseUnknownMMEUEID) }))
		e.expect(s1ap.Initiating, s1ap.ErrorIndication)
	}
	complain(enb.IDs{MME: a.id(99), ENB: ids.ENB})
	e.download(a, ids)
	complain(ids)
	if c := s.server.Counters(); c.UEs != 0 {
		t.Errorf("got %d connections, want 0", c.UEs)
	}
}

func TestPagingReachesTheEnodebUnchanged(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	paging := s1ap.End(s1ap.AppendPaged(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Paging, s1ap.Ignore), s1ap.Ignore, identity.STMSI{Code: 1, TMSI: 7}), 0)
	a.at(e.Cell).send(paging)
	if _, raw := e.expect(s1ap.Initiating, s1ap.Paging); string(raw) != string(paging) {
		t.Errorf("% x", raw)
	}
}

// TestPagingDuringSetupIsDropped lets an instance page a UE while the eNodeB sets up again. The eNodeB
// must not get the message, and the message must count as dropped.
func TestPagingDuringSetupIsDropped(t *testing.T) {
	b := newBench(t)
	b.begin()
	defer b.done()
	b.e.state = settingUp
	paging := s1ap.End(s1ap.AppendPaged(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Paging, s1ap.Ignore), s1ap.Ignore, identity.STMSI{Code: 1, TMSI: 7}), 0)
	drops := func() uint64 { return sharedGround().meter.Drops("")["unroutable"] }
	before := drops()
	b.downlink(b.links[0], frame.Append(nil, frame.Common, paging), paging)
	if n, sent := drops()-before, b.take(b.e.association); n != 1 || len(sent) > 0 {
		t.Errorf("got %d drops, and the eNodeB got % x, want one drop and nothing", n, sent)
	}
}

// TestOverloadIsPassedOnWhenAllInstancesHaveIt checks that the eNodeB learns of an overload only
// while all active instances are overloaded. Otherwise it would also refuse UEs of instances with
// room. The loss, addition and drain of an instance with room count too. A further Overload Start with
// another action must replace the first.
func TestOverloadIsPassedOnWhenAllInstancesHaveIt(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.enodeb(5)
	start := s1ap.End(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.OverloadStart, s1ap.Ignore), 0)
	response := s1ap.ID(101) // Overload Response; the value permits only emergency sessions and terminated services
	worse := s1ap.End(s1ap.AppendElement(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.OverloadStart, s1ap.Ignore), response, s1ap.Reject, []byte{0x20}), 0)
	stop := s1ap.End(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.OverloadStop, s1ap.Ignore), 0)
	a.at(e.Cell).send(start)
	s.until("the first is absorbed", func() bool { return s.server.Counters().Absorbed == 1 })
	b.at(e.Cell).send(start)
	e.expect(s1ap.Initiating, s1ap.OverloadStart)
	b.at(e.Cell).send(start)
	s.until("an equal one is absorbed", func() bool { return s.server.Counters().Absorbed == 2 })
	b.at(e.Cell).send(worse)
	if _, raw := e.expect(s1ap.Initiating, s1ap.OverloadStart); string(raw) != string(worse) {
		t.Errorf("% x", raw)
	}
	a.at(e.Cell).send(start) // it repeats its own
	s.until("a repeated one is absorbed", func() bool { return s.server.Counters().Absorbed == 3 })
	a.at(e.Cell).send(stop)
	e.expect(s1ap.Initiating, s1ap.OverloadStop)

	a.kill()
	e.expect(s1ap.Initiating, s1ap.OverloadStart)
	c := newInstance(t, attachType, 3)
	s.publish(b.instance(), c.instance())
	e.expect(s1ap.Initiating, s1ap.OverloadStop)
	draining := c.instance()
	draining.State = vitrine.Draining
	s.publish(b.instance(), draining)
	e.expect(s1ap.Initiating, s1ap.OverloadStart)
	s.publish(b.instance(), c.instance())
	e.expect(s1ap.Initiating, s1ap.OverloadStop)
}

// TestOverloadDuringSetupIsNotLost lets an instance report its overload while the eNodeB's S1 Setup
// waits for another instance. The eNodeB must learn of the overload after its S1 Setup Response.
func TestOverloadDuringSetupIsNotLost(t *testing.T) {
	b := newBench(t)
	b.begin()
	defer b.done()
	b.e.state, b.links[1].state, b.links[1].settled = settingUp, settingUp, false
	start := s1ap.End(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.OverloadStart, s1ap.Ignore), 0)
	b.downlink(b.links[0], frame.Append(nil, frame.Common, start), start)
	if early := b.take(b.e.association); len(early) > 0 {
		t.Errorf("the eNodeB got % x before its S1 Setup Response", early)
	}
	b.lost(b.links[1])
	if got := b.take(b.e.association); len(got) != 2 || string(got[1]) != string(start) {
		t.Errorf("the eNodeB got % x, want an S1 Setup Response and an Overload Start", got)
	}
}

// TestConfigurationUpdateReachesInstancesOfNowAndLater changes an eNodeB's tracking area. The
// present instance must get the update, and a later instance the updated S1 Setup.
func TestConfigurationUpdateReachesInstancesOfNowAndLater(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	area := identity.TAI{PLMN: network(), TAC: 99}
	update := s1ap.End(s1ap.AppendAreas(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBConfigurationUpdate, s1ap.Reject), s1ap.Reject, area), 0)
	e.send(update)
	e.expect(s1ap.Successful, s1ap.ENBConfigurationUpdate)
	if _, raw := a.at(e.Cell).expect(s1ap.Initiating, s1ap.ENBConfigurationUpdate); string(raw) != string(update) {
		t.Errorf("% x", raw)
	}
	a.at(e.Cell).send(s1ap.End(s1ap.AppendHeader(nil, s1ap.Successful, s1ap.ENBConfigurationUpdate, s1ap.Reject), 0)) // the director absorbs it
	s.publish(a.instance(), b.instance())
	b.at(e.Cell)
	for _, p := range s.server.associations() {
		p.worker.mu.Lock()
		setup := p.setup
		p.worker.mu.Unlock()
		var m s1ap.Message
		if err := m.Parse(setup); err != nil {
			t.Fatal(err)
		}
		v, _ := m.Find(s1ap.SupportedTAs)
		areas := s1ap.ParseAreas(v)
		name, _ := m.Find(s1ap.ENBName)
		if !areas.Next() || areas.TAC != 99 || !strings.HasSuffix(string(name), e.Name) || m.Check() != nil {
			t.Errorf("got TAC %d, name %q", areas.TAC, name)
		}
	}
}

// TestConfigurationUpdateDuringSetupIsNotLost changes an eNodeB's tracking area while a new instance
// has not answered S1 Setup. The instance must then get another S1 Setup, with the new area.
func TestConfigurationUpdateDuringSetupIsNotLost(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// setUp accepts an association, and returns it with the tracking area in its S1 Setup.
	setUp := func() (*peer, uint16) {
		t.Helper()
		if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		p := &peer{t: t, conn: conn}
		var m s1ap.Message
		if err := m.Parse(p.read()); err != nil || m.Procedure != s1ap.S1Setup {
			t.Fatalf("got %v, %v, want an S1 Setup", m.Procedure, err)
		}
		v, _ := m.Find(s1ap.SupportedTAs)
		areas := s1ap.ParseAreas(v)
		areas.Next()
		return p, areas.TAC
	}
	s.publish(a.instance(), vitrine.Instance{Name: "m2", Type: attachType, ID: 2, Weight: 1, Address: netip.MustParseAddrPort(l.Addr().String())})
	slow, _ := setUp()
	area := identity.TAI{PLMN: network(), TAC: 99}
	e.send(s1ap.End(s1ap.AppendAreas(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBConfigurationUpdate, s1ap.Reject), s1ap.Reject, area), 0))
	e.expect(s1ap.Successful, s1ap.ENBConfigurationUpdate)
	slow.send(setupResponse(2))
	slow, tac := setUp()
	if tac != 99 {
		t.Errorf("the second S1 Setup has TAC %d, want 99", tac)
	}
	slow.send(setupResponse(2))
	s.until("two associations are up", func() bool { return s.server.Counters().Links == 2 })
}

// TestUsedIdentifierEndsTheOldConnection begins a connection with an eNB UE S1AP ID that another
// connection still has. The director must end the old connection.
func TestUsedIdentifierEndsTheOldConnection(t *testing.T) {
	a, b := newInstance(t, attachType, 1), newInstance(t, attachType, 2)
	s := newSite(t, false, []*instance{a, b})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
	e.begin(1, serviceRequest(), &identity.STMSI{Code: 2, TMSI: 1}, b)
	if m, _ := a.at(e.Cell).expect(s1ap.Initiating, s1ap.ErrorIndication); m.IDs != ids || m.Cause != s1ap.CauseUnknownENBUEID {
		t.Errorf("%+v", m)
	}
	if c := s.server.Counters(); c.UEs != 1 {
		t.Errorf("got %d connections, want 1", c.UEs)
	}
}
