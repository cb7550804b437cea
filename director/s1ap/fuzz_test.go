package s1ap

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/reference/epc/enb"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// A bench is a director without goroutines, with an eNodeB and two instances. The test reads their
// queues.
type bench struct {
	*turn
	e     *enodeb
	links [2]*link
	cell  enb.Cell
}

// A ground has the parts that all benches share, because making a table is expensive.
type ground struct {
	table  *table.Table
	meter  *meter.Meter
	policy *Policy
	conn   optionless // no test writes to it
	err    error
}

// optionless is a connection on which newAssociation sets no options, because a bench may have closed it.
type optionless struct{ *net.TCPConn }

var sharedGround = sync.OnceValue(func() (g ground) {
	types := []string{attachType}
	var instances []vitrine.Instance
	for n := range 2 {
		instances = append(instances, vitrine.Instance{Name: string(rune('a' + n)), Type: attachType, ID: uint16(n + 1), Weight: 1, Address: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(n+1))})
	}
	if g.table, g.err = table.New(1, types, instances); g.err != nil {
		return g
	}
	g.meter = meter.New(64, time.Minute)
	if g.err = g.meter.Register(g.table); g.err != nil {
		return g
	}
	if g.policy, g.err = NewPolicy(types, []TypeOption{{Type: attachType}}, []Rule{{Type: attachType}}); g.err != nil {
		return g
	}
	g.policy.Pool = Pool{Name: "pool", PLMN: network(), Group: 1}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		g.err = err
		return g
	}
	conn, err := net.Dial("tcp4", l.Addr().String())
	if g.err = err; err == nil {
		g.conn = optionless{conn.(*net.TCPConn)}
	}
	return g
})

// benchWorker is the meter's worker, which all benches use one after the other.
var benchWorker = sync.OnceValue(func() *meter.Worker { return sharedGround().meter.Worker() })

// newBench makes a bench with one connection at each of the instances 1 and 2. The connections have
// the identifiers of connectionIDs.
func newBench(t testing.TB) *bench {
	t.Helper()
	g := sharedGround()
	if g.err != nil {
		t.Fatal(g.err)
	}
	now := time.Duration(0)
	epochs := table.NewEpochs(time.Second, 0, g.table, nil)
	s := newServer(Config{
		Now: func() time.Duration { now++; return now }, Epochs: epochs, Meter: meter.New(8, time.Minute), Policy: g.policy,
		Log: slog.New(slog.DiscardHandler), PerENodeB: 64, Keys: 64,
	})
	s.workers[0].meter = benchWorker()
	b := &bench{turn: s.newTurn(s.workers[0]), cell: newCell(5)}
	b.e = &enodeb{association: b.queue(t, s, false), worker: s.workers[0], origin: new(origin), serial: 1, state: up, id: b.cell.ID, ues: map[uint32]ue{}, table: g.table, setup: b.cell.AppendSetup(nil)}
	s.open[b.e], s.enodebs[b.e.id] = struct{}{}, b.e
	for n := range b.links {
		target := g.table.ByID(0, uint16(n+1))
		b.links[n] = &link{enodeb: b.e, number: uint8(n + 1), association: b.queue(t, s, true), target: target, state: up, settled: true, stop: func() {}}
		b.e.links[n+1] = b.links[n]
	}
	b.begin()
	for n, l := range b.links {
		b.connect(l, connectionIDs(n))
	}
	b.done()
	return b
}

// connectionIDs returns the identifiers of the connection at instance n+1.
func connectionIDs(n int) enb.IDs {
	return enb.IDs{MME: uint32(n+1)<<24 | 7, ENB: uint32(100 + n)}
}

// connect makes a connection whose first messages have passed already.
func (b *bench) connect(l *link, ids enb.IDs) {
	b.put(b.e, ids.ENB, ue{number: l.number, mme: ids.MME, awaits: none})
	b.server.holders.set(ids.MME, place{b.e, ids.ENB})
}

// queue returns an association to which no test writes.
func (b *bench) queue(t testing.TB, s *Server, known bool) *association {
	t.Helper()
	a, err := newAssociation(s, sharedGround().conn, known)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// done ends a turn without writing.
func (b *bench) done() {
	b.touched = b.touched[:0]
	b.evicted = b.evicted[:0]
	b.worker.mu.Unlock()
}

// take returns the messages in a queue and empties the queue.
func (b *bench) take(a *association) (all [][]byte) {
	b.each(a.out, func(_, message []byte) { all = append(all, message) })
	b.server.queued.Add(-int64(len(a.out)))
	a.out = a.out[:0]
	return all
}

// FuzzUplink gives the director two messages of an eNodeB. An instance may only get messages about
// connections that the eNodeB has at that instance.
func FuzzUplink(f *testing.F) {
	cell := newCell(5)
	one, two := connectionIDs(0), connectionIDs(1)
	for _, seed := range [][]byte{
		cell.AppendSetup(nil), cell.AppendInitial(nil, 3, attachRequest(1), nil), cell.AppendInitial(nil, 100, serviceRequest(), &identity.STMSI{Code: 2, TMSI: 1}),
		cell.AppendUplink(nil, one, []byte{7, 0x55}), cell.AppendUplink(nil, two, []byte{7, 0x55}), cell.AppendReleased(nil, two),
		cell.AppendPathSwitch(nil, enb.IDs{MME: 1<<24 | 9, ENB: 4}, 5), cell.AppendHandoverRequired(nil, one, &cell, []byte{1}),
		cell.AppendHandoverAdmitted(nil, one, []byte{1}, 5), cell.AppendHandoverRefused(nil, one.MME, s1ap.CauseOverload), cell.AppendHandoverNotify(nil, one),
		s1ap.End(s1ap.AppendReset(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject), s1ap.Connection{MME: one.MME, HasMME: true}, s1ap.Connection{ENB: two.ENB, HasENB: true}), 0),
		s1ap.End(s1ap.AppendReset(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject)), 0),
		s1ap.End(s1ap.AppendAreas(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBConfigurationUpdate, s1ap.Reject), s1ap.Reject, cell.TAI), 0),
		about(s1ap.Initiating, s1ap.ErrorIndication, two, func(b []byte) []byte { return s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseUnknownPair) }),
	} {
		f.Add(seed, cell.AppendUplink(nil, one, []byte{7, 0x55}))
	}
	unanswered := enb.IDs{ENB: 3} // no instance gives the MME UE S1AP ID 0
	f.Add(cell.AppendInitial(nil, unanswered.ENB, attachRequest(1), nil), cell.AppendReleased(nil, unanswered))
	f.Add(cell.AppendInitial(nil, unanswered.ENB, attachRequest(1), nil), about(s1ap.Initiating, s1ap.ErrorIndication, unanswered, nil))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		b := newBench(t)
		b.e.expect(one.MME)
		for _, message := range [][]byte{first, second} {
			if len(message) == 0 || len(message) > frame.MaxMessage {
				continue
			}
			b.begin()
			had := map[uint32]ue{}
			for id, u := range b.e.ues {
				had[id] = u
			}
			b.uplink(b.e, frame.Append(nil, frame.UE, message), message)
			b.check(t, had)
			b.done()
		}
	})
}

// check checks the messages that the instances and the eNodeB got, and the counts of connections
// and queues. had holds the connections before the message.
func (b *bench) check(t *testing.T, had map[uint32]ue) {
	for _, l := range b.links {
		for _, message := range b.take(l.association) {
			var m s1ap.Message
			var in elements
			if m.Parse(message) != nil {
				t.Fatalf("an instance got the malformed message % x", message)
			}
			if _, ok := in.parse(&m); !ok {
				t.Fatalf("an instance got invalid elements in % x", message)
			}
			if in.has&bothIDs != bothIDs || m.Procedure == s1ap.HandoverResourceAllocation {
				continue
			}
			u, ok := had[in.enb]
			if !ok && m.Procedure == s1ap.UEContextRelease && in.mme == connectionIDs(0).MME && numberOf(in.mme) == l.number {
				continue // ends the handover that the eNodeB has not answered
			}
			if !ok || u.mme != in.mme || u.number != l.number || numberOf(in.mme) != l.number {
				t.Fatalf("instance %d got a message with MME ID %d and eNodeB ID %d, which belong to %+v", l.number, in.mme, in.enb, u)
			}
		}
	}
	for _, message := range b.take(b.e.association) {
		var m s1ap.Message
		if m.Parse(message) != nil || m.Check() != nil {
			t.Fatalf("the eNodeB got the malformed message % x", message)
		}
	}
	if n := b.server.ues.Load(); n != int64(len(b.e.ues)) || n > 64 {
		t.Fatalf("counted %d connections, but there are %d", n, len(b.e.ues))
	}
	if b.server.queued.Load() != 0 {
		t.Fatalf("counted %d octets in empty queues", b.server.queued.Load())
	}
}

// FuzzDownlink gives the director two messages of an instance. The eNodeB may only get messages
// about connections at that instance.
func FuzzDownlink(f *testing.F) {
	one, two := connectionIDs(0), connectionIDs(1)
	for _, seed := range [][]byte{
		about(s1ap.Initiating, s1ap.DownlinkNASTransport, one, nil), about(s1ap.Initiating, s1ap.InitialContextSetup, two, nil), releaseCommand(one),
		about(s1ap.Successful, s1ap.PathSwitchRequest, one, nil), about(s1ap.Unsuccessful, s1ap.HandoverPreparation, one, nil),
		s1ap.End(s1ap.AppendReset(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject), s1ap.Connection{MME: one.MME, HasMME: true}), 0),
		s1ap.End(s1ap.AppendReset(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject)), 0),
		s1ap.End(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.OverloadStart, s1ap.Reject), 0),
		s1ap.End(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.MMEConfigurationUpdate, s1ap.Reject), 0),
		s1ap.End(s1ap.AppendMMEUEID(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.HandoverResourceAllocation, s1ap.Reject), s1ap.MMEUEID, s1ap.Reject, one.MME), 0),
		about(s1ap.Initiating, s1ap.ErrorIndication, one, nil),
	} {
		f.Add(seed, about(s1ap.Initiating, s1ap.DownlinkNASTransport, one, nil))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		b := newBench(t)
		for _, message := range [][]byte{first, second} {
			if len(message) == 0 || len(message) > frame.MaxMessage {
				continue
			}
			b.begin()
			b.downlink(b.links[0], frame.Append(nil, frame.UE, message), message)
			for _, got := range b.take(b.e.association) {
				var m s1ap.Message
				var in elements
				if m.Parse(got) != nil {
					t.Fatalf("the eNodeB got the malformed message % x", got)
				}
				if _, ok := in.parse(&m); ok && in.has&hasENB != 0 && in.enb != one.ENB {
					t.Fatalf("the eNodeB got a message about UE %d, which another instance serves", in.enb)
				}
			}
			if u, ok := b.e.ues[two.ENB]; !ok || u.mme != two.MME {
				t.Fatal("an instance ended a connection of another instance")
			}
			b.take(b.links[0].association)
			if len(b.take(b.links[1].association)) > 0 {
				t.Fatal("a message reached another instance")
			}
			b.done()
		}
	})
}

// TestForwardingAllocatesNothing checks that messages in both directions, a new connection and a
// refused message allocate nothing.
func TestForwardingAllocatesNothing(t *testing.T) {
	b := newBench(t)
	one := connectionIDs(0)
	up := frame.Append(nil, frame.UE, b.cell.AppendUplink(nil, one, []byte{7, 0x55}))
	up = frame.Append(up, frame.UE, b.cell.AppendInitial(nil, 3, attachRequest(1), nil))
	up = frame.Append(up, frame.UE, b.cell.AppendUplink(nil, enb.IDs{MME: 1, ENB: 1}, []byte{7, 0x55})) // answered with an Error Indication
	down := frame.Append(nil, frame.UE, about(s1ap.Initiating, s1ap.DownlinkNASTransport, one, func(b []byte) []byte { return s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, []byte{7, 0x52}) }))
	pass := func() {
		b.begin()
		b.each(up, func(whole, message []byte) { b.uplink(b.e, whole, message) })
		b.each(down, func(whole, message []byte) { b.downlink(b.links[0], whole, message) })
		for _, a := range []*association{b.e.association, b.links[0].association, b.links[1].association} {
			b.server.queued.Add(-int64(len(a.out)))
			a.out = a.out[:0]
		}
		b.done()
	}
	pass()
	if n := testing.AllocsPerRun(500, pass); n != 0 {
		t.Errorf("%v allocations for four messages", n)
	}
}

// TestCallAllocatesNothing checks that connections allocate nothing from their service request to
// their release, at both instances.
func TestCallAllocatesNothing(t *testing.T) {
	b := newBench(t)
	var steps [][]byte // of the eNodeB and of the instances, alternately
	for n := range b.links {
		ids := enb.IDs{MME: uint32(n+1)<<24 | 9, ENB: uint32(n + 1)}
		up := frame.Append(nil, frame.UE, b.cell.AppendInitial(nil, ids.ENB, serviceRequest(), &identity.STMSI{Code: uint8(n + 1), TMSI: 1}))
		down := frame.Append(nil, frame.UE, about(s1ap.Initiating, s1ap.InitialContextSetup, ids, nil))
		steps = append(steps, up, down)
		up = frame.Append(nil, frame.UE, b.cell.AppendContextSetUp(nil, ids, 5))
		up = frame.Append(up, frame.UE, b.cell.AppendReleaseRequest(nil, ids, s1ap.CauseUserInactivity))
		steps = append(steps, up, frame.Append(nil, frame.UE, releaseCommand(ids)))
		steps = append(steps, frame.Append(nil, frame.UE, b.cell.AppendReleased(nil, ids)), nil)
	}
	passed := 0
	call := func() {
		b.begin()
		for i, frames := range steps {
			l := b.links[i*len(b.links)/len(steps)]
			b.each(frames, func(whole, message []byte) {
				if i%2 == 0 {
					b.uplink(b.e, whole, message)
				} else {
					b.downlink(l, whole, message)
				}
			})
		}
		passed = 0
		for _, a := range []*association{b.e.association, b.links[0].association, b.links[1].association} {
			b.each(a.out, func(_, _ []byte) { passed++ })
			b.server.queued.Add(-int64(len(a.out)))
			a.out = a.out[:0]
		}
		b.done()
	}
	call()
	if want := 6 * len(b.links); passed != want || len(b.e.ues) != len(b.links) {
		t.Errorf("%d messages passed, want %d; %d connections, want the same as before", passed, want, len(b.e.ues))
	}
	if n := testing.AllocsPerRun(500, call); n != 0 {
		t.Errorf("%v allocations for %d messages", n, passed)
	}
}

func BenchmarkUplink(bench *testing.B) {
	b := newBench(bench)
	up := frame.Append(nil, frame.UE, b.cell.AppendUplink(nil, connectionIDs(0), make([]byte, 40)))
	bench.ReportAllocs()
	for bench.Loop() {
		b.begin()
		b.each(up, func(whole, message []byte) { b.uplink(b.e, whole, message) })
		a := b.links[0].association
		b.server.queued.Add(-int64(len(a.out)))
		a.out = a.out[:0]
		b.done()
	}
}
