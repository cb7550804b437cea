package s1ap

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"vitrine/director/meter"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/enb"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// TestRefusedPathSwitchLeavesTheUEWhereItIs lets an eNodeB ask for a UE of another eNodeB. The
// instance refuses in two ways. The UE must stay at its eNodeB.
func TestRefusedPathSwitchLeavesTheUEWhereItIs(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e, thief := s.enodeb(5), s.enodeb(6)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	for n, refusal := range [][]byte{
		about(s1ap.Unsuccessful, s1ap.PathSwitchRequest, enb.IDs{MME: ids.MME, ENB: 40}, nil),
		releaseCommand(enb.IDs{MME: ids.MME, ENB: 41}),
	} {
		thief.send(thief.AppendPathSwitch(nil, enb.IDs{MME: ids.MME, ENB: uint32(40 + n)}, 5))
		a.at(thief.Cell).expect(s1ap.Initiating, s1ap.PathSwitchRequest)
		a.at(thief.Cell).send(refusal)
		if thief.read() == nil {
			t.Fatal("the eNodeB got no answer")
		}
		e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
		a.at(e.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
		e.download(a, ids)
	}
}

// drops returns the number of messages that were dropped for a cause.
func (s *site) drops(cause meter.Cause) uint64 { return s.meter.Drops("s1ap")[cause.String()] }

func TestOctetsThatAreNoFrameEndTheAssociation(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	if _, err := e.conn.Write([]byte{0, 1, 0, 1, 0, 0, 0, 18, 0, 0, 0, 0}); err != nil { // announces 65,537 octets
		t.Fatal(err)
	}
	if got := e.read(); got != nil {
		t.Errorf("% x", got)
	}
	s.until("it is counted", func() bool { return s.drops(meter.Malformed) == 1 && s.server.Counters().Malformed == 1 })

	e = s.enodeb(5)
	if _, err := a.at(e.Cell).conn.Write(make([]byte, frame.HeaderSize)); err != nil { // announces an empty message
		t.Fatal(err)
	}
	s.until("that of an instance is counted", func() bool { c := s.server.Counters(); return s.drops(meter.Malformed) == 2 && c.Losses >= 1 })
}

// fragments returns a value of 16,384 to 32,767 octets as an open type (X.691 clause 11.9.3.8).
func fragments(v []byte) []byte {
	rest := v[1<<14:]
	return slices.Concat([]byte{0xc1}, v[:1<<14], []byte{0x80 | byte(len(rest)>>8), byte(len(rest))}, rest)
}

// long returns a message with some elements and a UE's radio capability of 20,000 octets.
func long(p s1ap.Procedure, count byte, elements []byte) []byte {
	radio := slices.Concat([]byte{0, byte(s1ap.RadioCapability), byte(s1ap.Ignore) << 6}, fragments(fragments(make([]byte, 20_000))))
	return append([]byte{byte(s1ap.Initiating) << 5, byte(p), byte(s1ap.Ignore) << 6}, fragments(slices.Concat([]byte{0, 0, count + 1}, elements, radio))...)
}

// TestLongMessagePasses sends radio capabilities that are so long that S1AP fragments them. Messages about
// a UE must pass. One about no UE is refused, and one before S1 Setup ends the association.
func TestLongMessagePasses(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	both := s1ap.AppendENBUEID(s1ap.AppendMMEUEID(nil, s1ap.MMEUEID, s1ap.Reject, ids.MME), s1ap.Reject, ids.ENB)
	for p, hop := range map[s1ap.Procedure][2]*peer{
		s1ap.UECapabilityIndication: {&e.peer, a.at(e.Cell)}, s1ap.InitialContextSetup: {a.at(e.Cell), &e.peer},
	} {
		want := long(p, 2, both)
		hop[0].send(want)
		if got := hop[1].read(); !bytes.Equal(got, want) {
			t.Errorf("%v of %d octets arrived with %d", p, len(want), len(got))
		}
	}
	e.send(long(s1ap.ENBConfigurationUpdate, 0, nil))
	if m, _ := e.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseAbstractSyntax {
		t.Errorf("a long message about no UE: got cause %v", m.Cause)
	}
	e.download(a, ids)
	early := s.connect(6)
	early.send(long(s1ap.UECapabilityIndication, 2, both))
	if got := early.read(); got != nil {
		t.Errorf("a long message before S1 Setup: got % x", got)
	}
}

// TestUrgentUEsAreNotRefused takes the only token of a gate and of a quota. Emergency calls and UEs of high
// priority must pass, and others not.
func TestUrgentUEsAreNotRefused(t *testing.T) {
	for name, change := range map[string]func(*Config, *Policy){"gate": gateOfOne, "quota": quotaOfOne} {
		a := newInstance(t, attachType, 1)
		s := newSite(t, false, []*instance{a}, change)
		e := s.enodeb(5)
		e.begin(1, attachRequest(1), nil, a)
		for cause := range uint8(3) {
			b := s1ap.AppendENBUEID(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.InitialUEMessage, s1ap.Ignore), s1ap.Reject, 2+uint32(cause))
			b = s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, attachRequest(2))
			e.send(s1ap.End(s1ap.AppendEnum(b, s1ap.EstablishmentCause, s1ap.Ignore, cause), 0))
			if urgent := reason(cause) + 1; urgent == emergency || urgent == highPriority {
				e.arrived(s1ap.InitialUEMessage, a)
			} else {
				e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
			}
		}
		if c := s.server.Counters(); c.Refused != 1 {
			t.Errorf("%s: %d UEs were refused, want 1", name, c.Refused)
		}
	}
}

// TestFrameThatDoesNotEndIsCounted checks that a frame that is incomplete at its deadline ends the
// association and is counted.
func TestFrameThatDoesNotEndIsCounted(t *testing.T) {
	t.Parallel() // because it waits for the deadline
	s := newSite(t, false, []*instance{newInstance(t, attachType, 1)}, func(c *Config, _ *Policy) { c.First = time.Hour })
	e := s.enodeb(5)
	if _, err := e.conn.Write([]byte{0, 0}); err != nil {
		t.Fatal(err)
	}
	if got := e.read(); got != nil {
		t.Errorf("% x", got)
	}
	s.until("it is counted", func() bool { return s.server.Counters().Late == 1 })
}

// extended returns a message with additional elements.
func extended(message []byte, more func([]byte) []byte) []byte {
	var m s1ap.Message
	_ = m.Parse(message) // the tests make valid messages
	b := s1ap.AppendHeader(nil, m.Kind, m.Procedure, m.Criticality)
	return s1ap.End(more(append(b, m.IEs...)), 0)
}

// crowded returns a message with count additional elements whose IDs no version of S1AP defines.
func crowded(message []byte, count int) []byte {
	return extended(message, func(b []byte) []byte {
		for n := range count {
			b = s1ap.AppendElement(b, s1ap.ID(5000+n), s1ap.Ignore, nil)
		}
		return b
	})
}

// TestElementsOfAConfigurationAreLimited checks the limit on the elements of a configuration.
// Without it, the director would compare thousands of elements with thousands of others.
func TestElementsOfAConfigurationAreLimited(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e := s.connect(5)
	refused := func(message []byte) {
		t.Helper()
		e.send(message)
		if m, _ := e.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseAbstractSyntax {
			t.Errorf("cause %v", m.Cause)
		}
	}
	setup := e.AppendSetup(nil)
	refused(crowded(setup, 3000))
	e.send(crowded(setup, mostElements-4))
	e.expect(s1ap.Successful, s1ap.S1Setup)
	update := s1ap.End(s1ap.AppendName(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBConfigurationUpdate, s1ap.Reject), s1ap.ENBName, s1ap.Ignore, "renamed"), 0)
	refused(crowded(update, 3000))
	e.send(crowded(update, 1))
	e.expect(s1ap.Successful, s1ap.ENBConfigurationUpdate)
	if got := merge(setup, crowded(update, mostElements)); string(got) != string(setup) {
		t.Errorf("merge made %d octets with more than %d elements", len(got), mostElements)
	}
}

// TestOneAddressLeavesRoomForOthers takes all connections that one address may have. Other
// addresses must still get connections.
func TestOneAddressLeavesRoomForOthers(t *testing.T) {
	const most = 8
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a}, func(c *Config, _ *Policy) { c.UEs = most })
	greedy := func(id uint32) *base {
		e := s.connectFrom("127.0.0.2", id)
		e.send(e.AppendSetup(nil))
		e.expect(s1ap.Successful, s1ap.S1Setup)
		return e
	}
	one, two := greedy(5), greedy(6)
	one.connection(1, 1, attachRequest(1), nil, a)
	two.connection(1, 2, attachRequest(2), nil, a)
	refuses := func(e *base) {
		t.Helper()
		e.send(e.AppendInitial(nil, 9, attachRequest(9), nil))
		m, _ := e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
		var reject nas.Reject
		if err := reject.Parse(m.NAS); err != nil || reject.Cause != nas.CauseCongestion {
			t.Errorf("%+v, %v", reject, err)
		}
		e.expect(s1ap.Initiating, s1ap.UEContextRelease)
	}
	refuses(one)
	refuses(two)
	other := s.enodeb(7)
	for n := range uint32(most / originShare) {
		other.connection(n, 10+n, attachRequest(int(n)), nil, a)
	}
	if c := s.server.Counters(); c.Full != 2 || c.UEs != 2*most/originShare {
		t.Errorf("%+v", c)
	}
	if failures := s.meter.Types()[0].Failures; failures["no_room"] != 2 {
		t.Errorf("got the failures %v of the type, want 2 for no_room", failures)
	}
	_ = two.conn.Close()
	s.until("its connection has ended", func() bool { return s.server.Counters().UEs == 3 })
	one.begin(2, attachRequest(3), nil, a)
}

// TestQueueForAStuckInstanceLeavesRoomForOthers fills the queue of an instance that does not read,
// with as many octets as all queues together may hold. Messages for others must still find room.
func TestQueueForAStuckInstanceLeavesRoomForOthers(t *testing.T) {
	b := newBench(t)
	b.server.config.Queues = 64 << 10
	up := frame.Append(nil, frame.UE, b.cell.AppendUplink(nil, connectionIDs(0), make([]byte, 400)))
	other := b.queue(t, b.server, false)
	b.begin()
	defer b.done()
	for sent := 0; sent < int(b.server.config.Queues); sent += len(up) {
		b.each(up, func(whole, message []byte) { b.uplink(b.e, whole, message) })
		if !other.send(frame.UE, make([]byte, 1000)) {
			t.Fatalf("no room after %d octets for another connection", sent)
		}
		b.take(other)
	}
	if b.links[0].reason() == nil {
		t.Error("the association with the instance is still open, so the test proves nothing")
	}
}

// TestResetOfOthersConnectionsDoesNothing resets the connection of another eNodeB, with every
// combination of identifiers.
func TestResetOfOthersConnectionsDoesNothing(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e, f := s.enodeb(5), s.enodeb(6)
	_, ids := e.connection(9, 1, serviceRequest(), &identity.STMSI{Code: 1, TMSI: 1}, a)
	some := []s1ap.Connection{
		{MME: ids.MME, HasMME: true}, {MME: ids.MME, ENB: ids.ENB, HasMME: true, HasENB: true}, {ENB: ids.ENB, HasENB: true}, {},
	}
	f.send(f.AppendReset(nil, s1ap.CauseOverload, some...))
	f.expect(s1ap.Successful, s1ap.Reset)
	e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
	a.at(e.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
	if c := s.server.Counters(); c.Unknown != uint64(len(some)) || c.UEs != 1 {
		t.Errorf("%+v", c)
	}
}

// TestMMEIdentifierAloneLeavesTheOther parses a message with an eNB UE S1AP ID and, in another element,
// the MME UE S1AP ID alone. The director and the peer must read the same pair.
func TestMMEIdentifierAloneLeavesTheOther(t *testing.T) {
	want := enb.IDs{MME: 1<<24 | 7, ENB: 5}
	b := s1ap.AppendENBUEID(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UEContextRelease, s1ap.Reject), s1ap.Reject, want.ENB)
	var m s1ap.Message
	if err := m.Parse(s1ap.End(appendMMEAlone(b, want.MME), 0)); err != nil {
		t.Fatal(err)
	}
	var in elements
	if _, ok := in.parse(&m); !ok || in.has&bothIDs != bothIDs || in.mme != want.MME || in.enb != want.ENB {
		t.Errorf("got %+v, want %+v", in, want)
	}
}

// TestRequestsWithIdentifiersTheyHaveNotAreRefused adds the identifier of another eNodeB's UE to
// procedures that do not define one, and the identity of another eNodeB to a configuration update.
func TestRequestsWithIdentifiersTheyHaveNotAreRefused(t *testing.T) {
	a := newInstance(t, attachType, 1)
	s := newSite(t, false, []*instance{a})
	e, f := s.enodeb(5), s.enodeb(6)
	_, ids := e.connection(9, 1, attachRequest(1), nil, a)
	for _, message := range [][]byte{
		f.AppendInitial(nil, 3, attachRequest(3), nil), f.AppendPathSwitch(nil, enb.IDs{MME: ids.MME, ENB: 3}, 5), f.AppendSetup(nil), f.AppendReset(nil, s1ap.CauseOverload),
	} {
		f.send(extended(message, func(b []byte) []byte { return s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Reject, ids.MME) }))
		if m, _ := f.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseAbstractSyntax {
			t.Errorf("cause %v", m.Cause)
		}
	}
	f.send(s1ap.End(s1ap.AppendENB(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBConfigurationUpdate, s1ap.Reject), s1ap.Reject, e.ID), 0))
	if m, _ := f.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseAbstractSyntax {
		t.Errorf("message with another eNodeB's identity: got cause %v", m.Cause)
	}
	e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
	a.at(e.Cell).expect(s1ap.Initiating, s1ap.UplinkNASTransport)
}

// logTo makes a site write its log into the output.
func logTo(log *hosttest.Output) func(*Config, *Policy) {
	return func(c *Config, _ *Policy) { c.Log = log.Logger() }
}

// TestNetworksOfEnodebsAreEnforcedAtOnce takes the network of a connected eNodeB out of the policy, as a
// reload does. Its association must end, and its connections too. Other eNodeBs must stay.
func TestNetworksOfEnodebsAreEnforcedAtOnce(t *testing.T) {
	a := newInstance(t, attachType, 1)
	var log hosttest.Output
	s := newSite(t, false, []*instance{a}, logTo(&log))
	unwanted := s.connectFrom("127.0.0.2", 6)
	unwanted.send(unwanted.AppendSetup(nil))
	unwanted.expect(s1ap.Successful, s1ap.S1Setup)
	unwanted.connection(1, 1, attachRequest(1), nil, a)
	e := s.enodeb(5)
	_, ids := e.connection(1, 2, attachRequest(2), nil, a)
	p := *s.server.policy.Load()
	p.ENodeBs = append(p.ENodeBs, prefix("127.0.0.1/32"))
	s.server.SetPolicy(&p)
	if unwanted.read() != nil {
		t.Error("the eNodeB outside of the networks got a message, want the end of its association")
	}
	s.until("its connection has ended", func() bool { c := s.server.Counters(); return c.UEs == 1 && c.ENodeBs == 1 && c.Strangers == 1 })
	if log.Count("association of an eNodeB refused: its address is in no network of s1ap.enodebs") == 0 {
		t.Error("the log does not say why the association ended")
	}
	e.send(e.AppendUplink(nil, ids, []byte{7, 0x55}))
	e.arrived(s1ap.UplinkNASTransport, a)
}

// TestUnreachableInstanceIsTold lets an eNodeB lose the only instance. The refused UE must count for its
// type, and the log must name what the eNodeB does not reach.
func TestUnreachableInstanceIsTold(t *testing.T) {
	a := newInstance(t, attachType, 1)
	var log hosttest.Output
	s := newSite(t, false, []*instance{a}, logTo(&log))
	e := s.enodeb(5)
	a.kill()
	s.until("the association has ended", func() bool { return s.server.Counters().Links == 0 })
	e.send(e.AppendInitial(nil, 1, attachRequest(1), nil))
	e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
	if failures := s.meter.Types()[0].Failures; failures["no_instance"] != 1 {
		t.Errorf("got the failures %v of the type, want 1 for no_instance", failures)
	}
	s.until("the log names the instance", func() bool { return log.Count("instance="+a.listener.Addr().String()) > 0 })
	f := s.connect(6)
	f.send(f.AppendSetup(nil))
	f.expect(s1ap.Unsuccessful, s1ap.S1Setup)
	if log.Count("setup of an eNodeB refused: no instance accepts it") == 0 {
		t.Error("the log does not say why S1 Setup failed")
	}
}
