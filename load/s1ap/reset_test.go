package s1ap

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/tcpfd"
	"vitrine/load"
	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/s1"
	"vitrine/reference/epc/ue"
	"vitrine/wire/nas"
	wire "vitrine/wire/s1ap"
)

// A desk is an engine with one eNodeB, whose association ends in the test.
type desk struct {
	*engine
	t      *testing.T
	at     *association
	mme    int // the test's end
	reader s1.Reader
}

func newDesk(t *testing.T, retries string) *desk {
	t.Helper()
	p, err := Decode(map[string]string{"scenario": ServiceRequest, "retries": retries, "users": "8", "timeout": "1s"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(load.Trial{Rate: 1, Duration: 10, Targets: []string{"127.0.0.1:1"}}, p)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{engine: e, t: t, at: e.associations[0], mme: fds[1]}
	t.Cleanup(func() {
		if d.at.state != down {
			unix.Close(fds[0])
		}
		unix.Close(fds[1])
		unix.Close(e.poll)
	})
	d.at.fd, d.at.state = fds[0], ready
	d.clock = func() time.Duration { return d.now }
	return d
}

// begin begins a call of a UE with keys and takes it to a step.
func (d *desk) begin(n int, kind procedure, s step) *user {
	d.t.Helper()
	u := &d.users[n]
	d.authenticate(u)
	d.call(u, kind, d.at, 0)
	u.ids.MME, u.step = uint32(100+n), s
	return u
}

// authenticate gives a UE the keys of a challenge, as an MME does.
func (d *desk) authenticate(u *user) {
	d.t.Helper()
	imsi := d.params.imsi(int(u.index))
	v, err := aka.SecretOf(imsi.String()).Vector([16]byte{1}, 1, d.params.network)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, event, err := u.Receive(nil, (&nas.AuthenticationRequest{KSI: 1, RAND: v.RAND[:], AUTN: v.AUTN[:]}).Append(nil)); err != nil || event != ue.Asked {
		d.t.Fatalf("got event %d, error %v", event, err)
	}
	keys, err := aka.NewProtection(v.KASME, aka.AES, aka.AES)
	if err != nil {
		d.t.Fatal(err)
	}
	command := nas.SecurityModeCommand{Cipher: 2, Integrity: 2, KSI: 1, Capability: []byte{0xa0, 0x20}}
	b := command.Append(nas.AppendFrame(nil, nas.ProtectedNewContext, 0))
	mac, err := keys.MAC(0, aka.Downlink, nas.FrameCovered(b, 0))
	if err != nil {
		d.t.Fatal(err)
	}
	nas.SetMAC(b, 0, mac)
	if _, event, err := u.Receive(nil, b); err != nil || event != ue.None && event != ue.Asked {
		d.t.Fatalf("got event %d, error %v", event, err)
	}
}

// received returns the message that the eNodeB has sent, if any.
func (d *desk) received() (*wire.Message, bool) {
	d.t.Helper()
	d.flush(d.at)
	for {
		raw, err := d.reader.Next()
		if err != nil {
			d.t.Fatal(err)
		}
		if raw != nil {
			m := new(wire.Message)
			if err := m.Parse(append([]byte(nil), raw...)); err != nil {
				d.t.Fatal(err)
			}
			return m, true
		}
		n, errno := tcpfd.Receive(d.mme, d.reader.Room())
		if errno != 0 {
			return nil, false
		}
		d.reader.Received(n)
	}
}

// skip reads and drops all messages that the eNodeB has sent so far, and returns their number.
func (d *desk) skip() (n int) {
	for ; ; n++ {
		if _, more := d.received(); !more {
			return n
		}
	}
}

// reset sends a Reset of connections, or of all.
func (d *desk) reset(some ...wire.Connection) {
	var cell enb.Cell
	d.message(d.at, cell.AppendReset(nil, wire.CauseIntervention, some...))
}

// TestResetIsAcknowledgedInItsOrder resets connections by one identifier, by both, and one
// connection that does not exist.
func TestResetIsAcknowledgedInItsOrder(t *testing.T) {
	d := newDesk(t, "0")
	a, b, c := d.begin(0, service, toServe), d.begin(1, service, toServe), d.begin(2, service, toServe)
	d.skip()
	named := []wire.Connection{
		{MME: b.ids.MME, HasMME: true}, {ENB: 77, HasENB: true}, {ENB: a.ids.ENB, MME: a.ids.MME, HasENB: true, HasMME: true},
	}
	d.reset(named...)
	m, ok := d.received()
	if !ok || m.Kind != wire.Successful || m.Procedure != wire.Reset {
		t.Fatalf("%+v, %v", m, ok)
	}
	v, _ := m.Find(wire.ResetConnections)
	it := wire.ParseConnections(v)
	for i := 0; it.Next(); i++ {
		if i >= len(named) || it.Connection != named[i] {
			t.Errorf("connection %d: got %+v", i, it.Connection)
		}
	}
	if a.at != nil || b.at != nil || c.at != d.at || a.alive || b.alive || !c.alive || d.resets != 2 {
		t.Errorf("reset %d connections: %+v, %+v, %+v", d.resets, a.at, b.at, c.at)
	}
	d.reset()
	if m, ok := d.received(); !ok || m.Procedure != wire.Reset || c.at != nil || d.resets != 3 {
		t.Errorf("reset of all connections: got %+v, %d reset", m, d.resets)
	}
}

// TestResetUEsAreIdleAndContinue resets a UE in each step of each kind of call. The UE must stay
// attached unless it attaches or detaches. With retries, its call must begin again. A call that
// would have ended with the release must succeed.
func TestResetUEsAreIdleAndContinue(t *testing.T) {
	for _, c := range []struct {
		kind               procedure
		step               step
		succeeds, attached bool
	}{
		{attach, toAttach, false, false}, {attachDetach, toLeave, false, false}, {attachDetach, toDetach, false, false},
		{attachDetach, toRelease, true, false}, {attachIdle, toAttach, false, false}, {attachIdle, toLeave, true, true},
		{attachIdle, toRelease, true, true}, {service, toServe, false, true}, {service, toLeave, true, true}, {service, toRelease, true, true},
		{update, toUpdate, false, true}, {update, toRelease, true, true}, {detach, toDetach, false, false}, {detach, toRelease, true, false},
		{dedicated, toActivate, false, true}, {dedicated, toDeactivate, false, true}, {handoverX2, toSwitch, false, true},
		{handoverS1, toMove, false, true}, {handoverS1, toArrive, false, true},
	} {
		for _, retries := range []string{"0", "1"} {
			t.Run(fmt.Sprintf("%v in step %d with %s retries", c.kind, c.step, retries), func(t *testing.T) {
				d := newDesk(t, retries)
				u := d.begin(0, c.kind, c.step)
				if c.step == toMove {
					u.next, u.nextIDs = d.at, u.newIDs()
				}
				d.skip()
				old := u.ids.ENB
				d.reset(wire.Connection{ENB: old, HasENB: true})
				d.received() // the acknowledgement
				again, sent := d.received()
				count := d.counts[c.kind]
				switch {
				case c.succeeds:
					if u.alive || count.succeeded != 1 || u.attached != c.attached || sent {
						t.Errorf("the procedure did not succeed: %+v, attached %v", count, u.attached)
					}
				case retries == "0":
					if u.alive || count.failed != 1 || u.attached != c.attached || sent {
						t.Errorf("the procedure did not fail: %+v, attached %v", count, u.attached)
					}
				default:
					if !u.alive || !sent || again.Procedure != wire.InitialUEMessage || u.ids.ENB == old || d.retried != 1 {
						t.Errorf("the procedure was not retried: %+v", again)
					}
				}
				if u.next != nil || !u.alive && u.at != nil {
					t.Error("the UE is still connected")
				}
			})
		}
	}
}

// TestLostAssociationEndsAStay ends the association of a UE that stays connected. The procedure of
// its call took one second, and the stay is not part of the latency. The call is in flight until the
// stay ends.
func TestLostAssociationEndsAStay(t *testing.T) {
	d := newDesk(t, "1")
	u := d.begin(0, service, toLeave)
	u.since, d.now = time.Second, 4*time.Second
	d.drop(d.at)
	report, err := d.record.Report(time.Now())
	if err != nil || u.alive || !u.attached || d.counts[service].succeeded != 1 || report.Answered != 4 {
		t.Errorf("the call ended after %v s: %+v, error %v", report.Answered, d.counts[service], err)
	}
	histogram, err := report.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if latency := time.Duration(histogram.Max()).Round(10 * time.Millisecond); latency != time.Second {
		t.Errorf("the call succeeded with a latency of %v", latency)
	}
	if before, after := report.InFlight[39], report.InFlight[40]; before != 1 || after != 0 {
		t.Errorf("%d calls in flight before the end of the stay, %d at its end", before, after)
	}
}

// TestCallThatIsRetriedDuringItsStayHasTimeForAnother resets a UE that stays connected before it
// detaches. The call must not time out before it has had the time of a new call.
func TestCallThatIsRetriedDuringItsStayHasTimeForAnother(t *testing.T) {
	d := newDesk(t, "1") // with a timeout of one second
	u := d.begin(0, attachDetach, toLeave)
	u.since, d.now = 500*time.Millisecond, 900*time.Millisecond
	d.reset(wire.Connection{ENB: u.ids.ENB, HasENB: true})
	d.now = 1800 * time.Millisecond
	d.alarms()
	if !u.alive || u.stayed != 400*time.Millisecond {
		t.Errorf("the call is alive: %v; its UE stayed %v", u.alive, u.stayed)
	}
	d.now = 1900 * time.Millisecond
	d.alarms()
	if u.alive || d.counts[attachDetach].failed != 1 {
		t.Errorf("the call did not time out: %+v", d.counts[attachDetach])
	}
}

// TestSetupFailureWithTimeToWait refuses the eNodeB for a time, as a director does while it reaches no MME.
// The eNodeB must try again after that time. Without Time To Wait the trial must end with an error.
func TestSetupFailureWithTimeToWait(t *testing.T) {
	failure := func(more func(b []byte) []byte) []byte {
		b := wire.AppendHeader(nil, wire.Unsuccessful, wire.S1Setup, wire.Reject)
		return wire.End(more(wire.AppendCause(b, wire.Ignore, wire.CauseOverload)), 0)
	}
	d := newDesk(t, "0")
	d.at.state, d.now = settingUp, 7*time.Second
	const v5s = 2
	d.message(d.at, failure(func(b []byte) []byte { return wire.AppendEnum(b, wire.TimeToWait, wire.Ignore, v5s) }))
	if d.refused != "" || d.at.state != down || d.at.again != 12*time.Second || !strings.Contains(d.outcome(), "1 S1 Setups postponed") {
		t.Errorf("refused for 5 s: got error %q, state %d, next attempt at %v,%s", d.refused, d.at.state, d.at.again, d.outcome())
	}
	d = newDesk(t, "0")
	d.at.state = settingUp
	d.message(d.at, failure(func(b []byte) []byte { return b }))
	if !strings.Contains(d.refused, "refuses the eNodeBs") {
		t.Errorf("refused for ever: got error %q", d.refused)
	}
}

// TestMalformedResetChangesNothing sends Resets without a type, and one acknowledgement.
func TestMalformedResetChangesNothing(t *testing.T) {
	d := newDesk(t, "0")
	u := d.begin(0, service, toServe)
	d.skip()
	header := func(k wire.Kind) []byte { return wire.AppendHeader(nil, k, wire.Reset, wire.Reject) }
	d.message(d.at, wire.End(header(wire.Initiating), 0))
	d.message(d.at, wire.End(wire.AppendReset(header(wire.Successful)), 0))
	if m, sent := d.received(); sent || !u.alive || d.malformed != 2 {
		t.Errorf("got %+v, %d malformed messages", m, d.malformed)
	}
}

// TestReleaseByTheIdentifierOfTheMME releases a connection by a command without the eNodeB's
// identifier, as an MME may (TS 36.413 clause 8.3.3.2). The confirmation must have both.
func TestReleaseByTheIdentifierOfTheMME(t *testing.T) {
	d := newDesk(t, "0")
	d.begin(0, service, toServe)
	u := d.begin(1, service, toRelease)
	d.skip()
	want := enb.IDs{MME: 101, ENB: u.ids.ENB}
	b := wire.AppendHeader(nil, wire.Initiating, wire.UEContextRelease, wire.Reject)
	b = wire.AppendElement(b, wire.UEIDs, wire.Reject, []byte{0x40, 101}) // the second alternative, of one octet
	d.message(d.at, wire.End(b, 0))
	if u.alive || !u.attached || d.counts[service].succeeded != 1 || d.open != 1 {
		t.Errorf("the call did not end with the release: %+v, %d open", d.counts[service], d.open)
	}
	m, ok := d.received()
	if !ok || m.Kind != wire.Successful || m.Procedure != wire.UEContextRelease {
		t.Fatalf("got %+v, %v", m, ok)
	}
	v, _ := m.Find(wire.ENBUEID)
	if id, ok := wire.ParseENBUEID(v); !ok || id != want.ENB {
		t.Errorf("the confirmation has eNB UE S1AP ID %d, want %d", id, want.ENB)
	}
	v, _ = m.Find(wire.MMEUEID)
	if id, ok := wire.ParseMMEUEID(v); !ok || id != want.MME {
		t.Errorf("the confirmation has MME UE S1AP ID %d, want %d", id, want.MME)
	}
}

// TestPathSwitchNamesTheUEAgain answers a Path Switch Request with another MME UE S1AP ID, as an MME may
// (TS 36.413 clause 8.4.4.2). Later messages must carry that ID.
func TestPathSwitchNamesTheUEAgain(t *testing.T) {
	d := newDesk(t, "0")
	u := d.begin(0, handoverX2, toSwitch)
	u.next, u.nextIDs = d.at, u.newIDs()
	u.nextIDs.MME = u.ids.MME
	const renamed = 4711
	b := wire.AppendHeader(nil, wire.Successful, wire.PathSwitchRequest, wire.Reject)
	b = wire.AppendMMEUEID(b, wire.MMEUEID, wire.Ignore, renamed)
	b = wire.AppendENBUEID(b, wire.Ignore, u.nextIDs.ENB)
	want := u.nextIDs.ENB
	d.message(d.at, wire.End(b, 0))
	if u.ids.MME != renamed || u.ids.ENB != want || u.next != nil {
		t.Errorf("after the acknowledgement the UE is %+v", u.ids)
	}
}
