package meter

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/table"
)

const (
	start    = 1000 * time.Hour
	lifetime = 32 * time.Second
)

func newTable(t testing.TB, names ...string) *table.Table {
	t.Helper()
	var all []vitrine.Instance
	for i, name := range names {
		all = append(all, vitrine.Instance{Name: name, Type: "session", Weight: 1,
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 5060)})
	}
	made, err := table.New(1, []string{"registration", "session"}, all)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func registered(t testing.TB, m *Meter, names ...string) *table.Table {
	t.Helper()
	made := newTable(t, names...)
	if err := m.Register(made); err != nil {
		t.Fatal(err)
	}
	return made
}

func of(m *Meter, name string) Instance {
	for _, in := range m.Instances() {
		if in.Name == name {
			return in
		}
	}
	return Instance{}
}

func hash(i int) uint64 { return table.Key(fmt.Appendf(nil, "%d", i)) }

// TestLife checks that a transaction is in flight from its first request to its final answer,
// whichever workers handle the messages and their retransmissions.
func TestLife(t *testing.T) {
	m := New(1000, lifetime)
	made := registered(t, m, "a", "b")
	one, two := m.Worker(), m.Worker()
	a := made.ByName("a")
	one.Begin(start, a, hash(1))
	one.Begin(start+500*time.Millisecond, a, hash(1)) // a retransmission
	one.Sent(a)
	if got := of(m, "a"); got.InFlight != 1 || got.Begun != 1 || got.Messages != 3 {
		t.Errorf("%+v", got)
	}
	if got := m.InFlight(); len(got) != 2 || got["a"] != 1 || got["b"] != 0 {
		t.Errorf("%v in flight, want one at a", got)
	}
	latency, ok := two.End(start+800*time.Millisecond, hash(1), Succeeded)
	if !ok || latency < 799*time.Millisecond || latency > 801*time.Millisecond {
		t.Errorf("%s, %v", latency, ok)
	}
	if _, ok := one.End(start+900*time.Millisecond, hash(1), Succeeded); ok {
		t.Error("a retransmitted answer was counted again")
	}
	if _, ok := one.End(start, hash(2), Failed); ok {
		t.Error("an answer without a request was counted")
	}
	got := of(m, "a")
	if got.InFlight != 0 || got.Ended["succeeded"] != 1 || got.Latency != latency || of(m, "b").Begun != 0 {
		t.Errorf("%+v", got)
	}
	two.Fail(a.Type, Overloaded)
	one.Fail(NoType, Malformed)
	types := m.Types()
	if len(types) != 3 || types[1].Failures["overloaded"] != 1 || types[2].Failures["malformed"] != 1 || types[2].Name != "" || types[1].Total != latency {
		t.Errorf("%+v", types)
	}
	if got.Latencies.Count() != 1 || got.Latencies.Quantile(1) < latency || got.Latencies.Quantile(1) > latency*9/8 {
		t.Errorf("the histogram has %d latencies up to %s, want one latency of %s", got.Latencies.Count(), got.Latencies.Quantile(1), latency)
	}
	for i, n := range types[1].Latency {
		if want := uint64(0); i == 11 { // up to 1 s
			if n != 1 {
				t.Errorf("bucket %d has %d latencies, want 1", i, n)
			}
		} else if n != want {
			t.Errorf("bucket %d has the wrong count %d", i, n)
		}
	}
	one.Dialog(a, true)
	two.Dialog(a, false)
	if got := of(m, "a"); got.DialogsBegun != 1 || got.DialogsEnded != 1 {
		t.Errorf("%+v", got)
	}
	one.Sample(a.Type, latency)
	if n := m.Samples()["session"]; n.Count != 1 || n.Total != latency.Truncate(time.Microsecond) {
		t.Errorf("%+v", n)
	}
}

// TestSentAgain checks that the retransmission of an ended transaction and its answer do not count
// until a lifetime is over, even in the next process.
func TestSentAgain(t *testing.T) {
	m := New(1000, lifetime)
	a := registered(t, m, "a").ByName("a")
	w := m.Worker()
	again := func(m *Meter, w *Worker, now time.Duration) {
		t.Helper()
		w.Begin(now, a, hash(1))
		if _, ok := w.End(now, hash(1), Succeeded); ok {
			t.Error("a retransmitted answer ended a transaction")
		}
		if got := of(m, "a"); got.Begun != 1 || got.InFlight != 0 || got.Ended["succeeded"] != 1 {
			t.Errorf("%+v", got)
		}
	}
	w.Begin(start, a, hash(1))
	w.End(start+time.Second, hash(1), Succeeded)
	again(m, w, start+2*time.Second)
	var passed bytes.Buffer
	if err := m.Carry(&passed); err != nil {
		t.Fatal(err)
	}
	next := New(1000, lifetime)
	registered(t, next, "a")
	worker := next.Worker()
	if err := next.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	again(next, worker, start+3*time.Second)
	next.Expire(start + lifetime + time.Second)
	worker.Begin(start+lifetime+time.Second, a, hash(1))
	if got := of(next, "a"); got.Begun != 2 || got.InFlight != 1 {
		t.Errorf("after the lifetime of a transaction: %+v", got)
	}
}

// TestEndedMakesRoom checks that ended transactions are forgotten before transactions in flight.
func TestEndedMakesRoom(t *testing.T) {
	m := New(8, lifetime) // one line
	a := registered(t, m, "a").ByName("a")
	w := m.Worker()
	for i := range 7 {
		w.Begin(start, a, hash(i))
	}
	for i := 100; i < 200; i++ {
		w.Begin(start+time.Second, a, hash(i))
		w.End(start+time.Second, hash(i), Succeeded)
	}
	if got := of(m, "a"); got.InFlight != 7 || got.Untimed != 0 || got.Ended["succeeded"] != 100 {
		t.Errorf("%+v", got)
	}
}

// TestExpire checks that a transaction without an answer ends as unanswered and counts as timed out.
// With a provisional response it ends as proceeding.
func TestExpire(t *testing.T) {
	m := New(1000, lifetime)
	made := registered(t, m, "a")
	w := m.Worker()
	for i := range 10 {
		w.Begin(start+time.Duration(i)*time.Second, made.ByName("a"), hash(i))
	}
	if latency, first := w.Hear(start+time.Second, hash(0)); !first || latency < 999*time.Millisecond || latency > 1001*time.Millisecond {
		t.Errorf("first response: got latency %s, first %v", latency, first)
	}
	if _, first := w.Hear(start+time.Second, hash(0)); first {
		t.Error("a second response counts as the first")
	}
	if _, first := w.Hear(start+time.Second, hash(10)); first {
		t.Error("a response without a request counts as the first")
	}
	w.Begin(start+time.Second, made.ByName("a"), hash(0)) // a retransmission
	m.Expire(start + lifetime + 4500*time.Millisecond)
	if got := of(m, "a"); got.InFlight != 5 || got.Proceeding != 0 || got.Ended["unanswered"] != 4 || got.Ended["proceeding"] != 1 {
		t.Errorf("%+v", got)
	}
	if s := m.Samples()["session"]; s.Count != 0 || s.Timeouts != 4 {
		t.Errorf("got %+v, want 4 timeouts: one of the 5 expired transactions was ringing", s)
	}
}

// TestHear checks that the latency of a transaction ends with the first response that Hear notes, and
// that the transaction counts as proceeding until its final answer, even in the next process.
func TestHear(t *testing.T) {
	m := New(1000, lifetime)
	a := registered(t, m, "a").ByName("a")
	one, two := m.Worker(), m.Worker()
	for i := range 3 {
		one.Begin(start, a, hash(i))
	}
	for i := range 2 {
		two.Hear(start+10*time.Millisecond, hash(i))
		two.Hear(start+20*time.Millisecond, hash(i))
	}
	one.End(start+5*time.Second, hash(0), Succeeded)
	one.End(start+5*time.Second, hash(2), Succeeded)
	got := of(m, "a")
	if got.InFlight != 1 || got.Proceeding != 1 || got.Latencies.Count() != 3 || got.Latencies.Quantile(0.6) > 12*time.Millisecond || got.Latencies.Quantile(1) < 4*time.Second {
		t.Errorf("%+v, want one transaction in flight that proceeds, two latencies of 10ms and one of 5s", got)
	}
	if got.Latency < 5018*time.Millisecond || got.Latency > 5022*time.Millisecond || m.Types()[1].Total != got.Latency {
		t.Errorf("got latencies of %s in all, and of %s for the type, want 5.02s", got.Latency, m.Types()[1].Total)
	}
	var passed bytes.Buffer
	if err := m.Carry(&passed); err != nil {
		t.Fatal(err)
	}
	next := New(1000, lifetime)
	registered(t, next, "b", "a")
	w := next.Worker()
	if err := next.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	if got := of(next, "a"); got.InFlight != 1 || got.Proceeding != 1 {
		t.Errorf("after a hand-over: %+v", got)
	}
	w.End(start+6*time.Second, hash(1), Declined)
	if got := of(next, "a"); got.InFlight != 0 || got.Proceeding != 0 || got.Latencies.Count() != 3 {
		t.Errorf("after the last answer: %+v", got)
	}
}

// TestForgottenDoNotProceed checks that a transaction that made room for another no longer proceeds.
func TestForgottenDoNotProceed(t *testing.T) {
	m := New(8, lifetime) // one line
	a := registered(t, m, "a").ByName("a")
	w := m.Worker()
	for i := range 8 {
		w.Begin(start, a, hash(i))
		w.Hear(start, hash(i))
	}
	for i := range 5 {
		w.Begin(start+time.Second, a, hash(100+i))
	}
	if got := of(m, "a"); got.InFlight != 8 || got.Proceeding != 3 || got.Untimed != 5 {
		t.Errorf("%+v", got)
	}
}

// TestLongestLifetime checks that transactions of the longest lifetime are timed and expire.
func TestLongestLifetime(t *testing.T) {
	m := New(1000, MaxLifetime)
	a := registered(t, m, "a").ByName("a")
	w := m.Worker()
	w.Begin(start, a, hash(1))
	w.Begin(start, a, hash(2))
	if took, ok := w.End(start+MaxLifetime, hash(1), Succeeded); !ok || took < MaxLifetime-time.Millisecond {
		t.Errorf("got latency %s, %v, want %s", took, ok, MaxLifetime)
	}
	m.Expire(start + MaxLifetime + 2*time.Second)
	if got := of(m, "a"); got.InFlight != 0 || got.Ended["unanswered"] != 1 {
		t.Errorf("%+v", got)
	}
}

// TestSamplesGrow checks that samples of removed instances still count, because the gate uses the
// growth of the counts.
func TestSamplesGrow(t *testing.T) {
	m := New(1000, lifetime)
	made := registered(t, m, "a", "b")
	w := m.Worker()
	for i, name := range []string{"a", "b"} {
		w.Begin(start, made.ByName(name), hash(i))
		w.Sample(made.ByName(name).Type, time.Second)
	}
	before := m.Samples()["session"]
	registered(t, m, "b")
	if got := m.Samples()["session"]; got != before || got.Count != 2 {
		t.Errorf("after an instance was removed: %+v, want %+v", got, before)
	}
}

// TestRemovedInstanceStillFails checks that a type counts the transactions that fail after the removal of their
// instance, also in the next process.
func TestRemovedInstanceStillFails(t *testing.T) {
	m := New(1000, lifetime)
	a := registered(t, m, "a", "b").ByName("a")
	w := m.Worker()
	for i := range 5 {
		w.Begin(start, a, hash(i))
	}
	registered(t, m, "b")
	for i, outcome := range []Outcome{Succeeded, Declined, Failed, Busy} {
		w.End(start+time.Second, hash(i), outcome)
	}
	m.Expire(start + lifetime + time.Second)
	var passed bytes.Buffer
	if err := m.Carry(&passed); err != nil {
		t.Fatal(err)
	}
	next := New(1000, lifetime)
	registered(t, next, "b")
	next.Worker()
	if err := next.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"failed": 1, "busy": 1, "unanswered": 1}
	for _, m := range []*Meter{m, next} {
		if got := m.Types()[1].Failed; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// TestQuiet checks that an instance is quiet after a lifetime without a request.
func TestQuiet(t *testing.T) {
	m := New(1000, lifetime)
	a := registered(t, m, "a").ByName("a")
	w := m.Worker()
	w.Sent(a)
	for now := start; now < start+2*lifetime; now += lifetime / 8 {
		m.Expire(now)
		if now == start+lifetime/2 {
			w.Sent(a)
		}
		// Expire looks lifetime/8 after the last message.
		if got := of(m, "a"); got.Quiet != (now >= start+lifetime/2+lifetime/8+lifetime) {
			t.Errorf("got quiet %v at %s after the last but one message", got.Quiet, now-start)
		}
	}
	w.Sent(a)
	if of(m, "a").Quiet {
		t.Error("the instance is quiet although it was just sent a message")
	}
}

// TestBounded checks that transactions beyond the limit are forgotten and counted, and do
// not stay in flight.
func TestBounded(t *testing.T) {
	m := New(64, lifetime)
	made := registered(t, m, "a")
	w := m.Worker()
	for i := range 1000 {
		w.Begin(start+time.Duration(i)*time.Millisecond, made.ByName("a"), hash(i))
	}
	got := of(m, "a")
	if got.Begun != 1000 || got.InFlight > 64 || got.Untimed < 936 || got.InFlight+got.Untimed != 1000 {
		t.Errorf("%+v", got)
	}
}

// TestRegister checks that an instance that stays keeps its counts, and that a removed instance is
// not listed. An instance that comes back has its old counts but no dialogs.
func TestRegister(t *testing.T) {
	m := New(8, lifetime)
	made := registered(t, m, "a", "b")
	w := m.Worker()
	w.Begin(start, made.ByName("b"), 1)
	w.Dialog(made.ByName("a"), true)
	w.Dialog(made.ByName("b"), true)
	made = registered(t, m, "a", "c")
	if got := of(m, "b"); got.Name != "" {
		t.Errorf("the removed instance is still reported: %+v", got)
	}
	w.Begin(start, made.ByName("c"), 2)
	registered(t, m, "b", "c")
	if of(m, "b").Begun != 1 || of(m, "c").Begun != 1 {
		t.Errorf("%+v", m.Instances())
	}
	registered(t, m, "a", "b", "c")
	if a, b := of(m, "a"), of(m, "b"); a.Dialogs != 0 || b.Dialogs != 0 {
		t.Errorf("a removed instance has its old dialogs again: %+v, %+v", a, b)
	}
	w.Dialog(made.ByName("c"), true)
	registered(t, m, "a", "c")
	if c := of(m, "c"); c.Dialogs != 1 {
		t.Errorf("the remaining instance lost its dialogs: %+v", c)
	}
	for round := range 6 { // more names than slots: those that were removed first lose their slots
		var names []string
		for i := range 3500 {
			names = append(names, fmt.Sprintf("i-%d-%d", round, i))
		}
		made = registered(t, m, names...)
		w.Begin(start, made.ByName(names[0]), uint64(round)+10)
		if got := of(m, names[0]); got.Begun != 1 {
			t.Fatalf("round %d: got %+v", round, got)
		}
	}
}

// TestDialogCountsDoNotJump removes an instance, of whose dialogs more ended here than began. When the
// instance comes back, the counts of begins and ends must be as before, but it has no dialogs. That must
// also hold in the next process, and for an instance that comes back there.
func TestDialogCountsDoNotJump(t *testing.T) {
	m := New(8, lifetime)
	made := registered(t, m, "a", "b")
	one, two := m.Worker(), m.Worker()
	one.Dialog(made.ByName("a"), true)
	for range 3 {
		two.Dialog(made.ByName("a"), false)
	}
	registered(t, m, "b")
	made = registered(t, m, "a", "b")
	if got := of(m, "a"); got.DialogsBegun != 1 || got.DialogsEnded != 3 || got.Dialogs != 0 {
		t.Errorf("%+v", got)
	}
	one.Dialog(made.ByName("a"), true)
	one.Dialog(made.ByName("b"), true)
	registered(t, m, "a")
	var passed bytes.Buffer
	if err := m.Carry(&passed); err != nil {
		t.Fatal(err)
	}
	next := New(8, lifetime)
	registered(t, next, "a", "b")
	next.Worker()
	if err := next.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	if got := of(next, "a"); got.DialogsBegun != 2 || got.DialogsEnded != 3 || got.Dialogs != 1 {
		t.Errorf("after a hand-over: %+v", got)
	}
	if got := of(next, "b"); got.DialogsBegun != 1 || got.Dialogs != 0 {
		t.Errorf("an instance that comes back after a hand-over: %+v", got)
	}
}

// TestRemovedInstancesAreForgotten checks that the memory of counts stays bounded if each instance has a
// new name, and that an instance does not inherit the counts of a forgotten one. Once no slot is unused,
// a single removed instance is forgotten, and then one that leaves now.
func TestRemovedInstancesAreForgotten(t *testing.T) {
	const each, rounds = 200, 25
	m := New(8, lifetime)
	w := m.Worker()
	for round := range rounds {
		var names []string
		for i := range each {
			names = append(names, fmt.Sprintf("i-%d-%d", round, i))
		}
		made := registered(t, m, names...)
		for _, name := range names {
			w.Sent(made.ByName(name))
			if n := m.Instance("session", name).Messages; n != 1 {
				t.Fatalf("instance %s has %d messages, want 1", name, n)
			}
		}
	}
	if most := maxRemoved + 2*each + 1; m.next > most || len(m.slots) > most {
		t.Errorf("after %d names there are %d slots and %d names, want at most %d", rounds*each, m.next, len(m.slots), most)
	}
	want, leaving := m.removed[0], m.removed[1:2:2]
	last := leaving[0]
	m.removed, m.next = m.removed[:1:1], maxSlots
	if got := m.assign(owner{"session", "last but one"}, &leaving); got != want {
		t.Errorf("got slot %d, want slot %d of the removed instance", got, want)
	}
	if got := m.assign(owner{"session", "last"}, &leaving); got != last || len(leaving) > 0 {
		t.Errorf("got slot %d, want slot %d of the instance that leaves", got, last)
	}
}

// many returns a table of n instances, in as many types as they need.
func many(t testing.TB, prefix string, n int) *table.Table {
	t.Helper()
	types := []string{"a", "b", "c", "d"}
	all := make([]vitrine.Instance, n)
	for i := range all {
		all[i] = vitrine.Instance{Name: fmt.Sprintf("%s-%d", prefix, i), Type: types[i/table.MaxInstances], Weight: 1,
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 5060)}
	}
	made, err := table.New(1, types, all)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestReplaceAll checks that all instances can be replaced by as many with new names, although both
// together are too many. A new instance must not look quiet because the one that had its slot was. A
// table that has too many instances must change nothing.
func TestReplaceAll(t *testing.T) {
	const n = 9000
	m := New(8, lifetime)
	w := m.Worker()
	for _, prefix := range []string{"old", "new"} {
		made := many(t, prefix, n)
		if err := m.Register(made); err != nil {
			t.Fatal(err)
		}
		slots := map[uint16]bool{}
		for i := range int32(n) {
			slots[made.Target(i).Slot] = true
			w.Sent(made.Target(i))
		}
		if len(slots) != n {
			t.Errorf("%d instances share %d slots", n, len(slots))
		}
		for _, in := range m.Instances() {
			if in.Messages != 1 || in.Quiet {
				t.Fatalf("instance %s has %d messages, want 1, and is quiet: %v", in.Name, in.Messages, in.Quiet)
			}
		}
		m.Expire(start)
		m.Expire(start + lifetime)
	}
	if err := m.Register(many(t, "more", MaxInstances+1)); err == nil {
		t.Errorf("no error for %d instances", MaxInstances+1)
	}
	if got := m.Instances(); len(got) != n || got[0].Name != "new-0" {
		t.Errorf("after too many instances there are %d, want the %d before", len(got), n)
	}
	made := many(t, "new", n+1)
	if err := m.Register(made); err != nil {
		t.Fatal(err)
	}
	last := made.ByName(fmt.Sprintf("new-%d", n))
	w.Sent(last)
	if got := m.Instance(last.TypeName(), last.Name); got.Messages != 1 {
		t.Errorf("a new instance has %d messages, want 1", got.Messages)
	}
}

// TestWorkersTogether checks that no transaction is lost if workers concurrently begin and end each
// other's transactions.
func TestWorkersTogether(t *testing.T) {
	const each, workers = 20000, 4
	m := New(1<<18, lifetime)
	made := registered(t, m, "a", "b", "c")
	all := make([]*Worker, workers)
	for i := range all {
		all[i] = m.Worker()
	}
	var wait sync.WaitGroup
	next := newTable(t, "a", "b", "c", "d")
	for n, w := range all {
		wait.Go(func() {
			for i := range each {
				w.Begin(start, made.Target(int32(i%3)), hash(n*each+i))
				w.End(start, hash(n*each+i), Succeeded)
			}
		})
	}
	wait.Go(func() {
		for i := range 20 {
			if i == 10 {
				wait.Go(func() { // while the counts are read
					if err := m.Register(next); err != nil {
						t.Error(err)
					}
				})
			}
			m.Expire(start)
			for _, in := range m.Instances() {
				if in.InFlight > each*workers { // counts change while they are read
					t.Errorf("%d transactions in flight, more than were begun", in.InFlight)
				}
			}
		}
	})
	wait.Wait()
	total := uint64(0)
	for _, in := range m.Instances() {
		total += in.Ended["succeeded"]
		if in.InFlight > 1 {
			t.Errorf("%+v", in)
		}
	}
	if total < each*workers-5 { // two hashes may count as one
		t.Errorf("%d of %d transactions ended", total, each*workers)
	}
}

// TestCarry checks that a hand-over carries counts and transactions in flight.
func TestCarry(t *testing.T) {
	m := New(1000, lifetime)
	made := registered(t, m, "a", "b", "gone")
	one, two := m.Worker(), m.Worker()
	for i := range 100 {
		one.Begin(start, made.ByName("b"), hash(i))
	}
	two.End(start+time.Second, hash(0), Declined)
	two.Dialog(made.ByName("a"), true)
	two.Fail(0, NoInstance)
	two.Fail(0, NoRoom)
	one.Begin(start, made.ByName("gone"), hash(1000))
	var passed bytes.Buffer
	if err := m.Carry(&passed); err != nil {
		t.Fatal(err)
	}
	next := New(1000, lifetime)
	registered(t, next, "c", "b", "a")
	w := next.Worker()
	next.SetDialogs(map[string]int64{"a": 7}) // older than the counts
	if err := next.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	got := of(next, "b")
	if got.InFlight != 99 || got.Begun != 100 || got.Ended["declined"] != 1 || got.Latencies.Count() != 1 || of(next, "a").DialogsBegun != 1 {
		t.Errorf("%+v", got)
	}
	if n := of(next, "a").Dialogs; n != 1 {
		t.Errorf("got %d dialogs, want 1", n)
	}
	if failures := next.Types()[0].Failures; failures["no_instance"] != 1 || failures["no_room"] != 1 {
		t.Errorf("got the failures %v, want one without instance and one without room", failures)
	}
	if latency, ok := w.End(start+2*time.Second, hash(7), Succeeded); !ok || latency < 1999*time.Millisecond || latency > 2001*time.Millisecond {
		t.Errorf("%s, %v", latency, ok)
	}
	if got := of(next, "b"); got.InFlight != 98 {
		t.Errorf("%+v", got)
	}
	if err := next.TakeOver(bytes.NewReader([]byte("not this"))); err == nil {
		t.Error("TakeOver accepted invalid data")
	}
}

// TestCarryToOtherTypes checks that the counts of a type follow its name if the next process has the
// types in another order.
func TestCarryToOtherTypes(t *testing.T) {
	m, next := New(64, lifetime), New(64, lifetime)
	registered(t, m, "a")
	w := m.Worker()
	w.Fail(0, Looped) // registration
	w.Fail(1, NoInstance)
	w.Fail(NoType, Malformed)
	var passed bytes.Buffer
	if err := m.Carry(&passed); err != nil {
		t.Fatal(err)
	}
	other, err := table.New(1, []string{"session", "message"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Register(other); err != nil {
		t.Fatal(err)
	}
	next.Worker()
	if err := next.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]uint64{{"no_instance": 1}, {}, {"malformed": 1}} { // session, message, no type
		for cause, n := range next.Types()[i].Failures {
			if n != want[cause] {
				t.Errorf("type %d: got %d failures by %s, want %d", i, n, cause, want[cause])
			}
		}
	}
}

// TestCarryManyWorkers checks that the hand-over of many workers' counts adds all of them up, and
// allocates nothing for each of their instances: no message is served meanwhile.
func TestCarryManyWorkers(t *testing.T) {
	const workers, instances = 16, 200
	m, next := New(64, lifetime), New(64, lifetime)
	names := make([]string, instances)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	made := registered(t, m, names...)
	registered(t, next, names...)
	next.Worker()
	for range workers {
		w := m.Worker()
		for _, name := range names {
			w.Sent(made.ByName(name))
		}
	}
	var passed bytes.Buffer
	if n := testing.AllocsPerRun(1, func() {
		passed.Reset()
		if err := m.Carry(&passed); err != nil {
			t.Fatal(err)
		}
	}); n > workers*instances {
		t.Errorf("%v allocations for %d workers and %d instances", n, workers, instances)
	}
	if err := next.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	for _, in := range next.Instances() {
		if in.Messages != workers {
			t.Errorf("instance %s: %d messages, want %d", in.Name, in.Messages, workers)
		}
	}
}

func TestProbe(t *testing.T) {
	m := New(100, lifetime)
	made := registered(t, m, "a")
	m.Worker()
	p := m.Probe()
	p.Begin(start, made.ByName("a"), 5)
	p.Fail(0, NoInstance)
	if got := of(m, "a"); got.Begun != 0 || got.InFlight != 0 || m.Types()[0].Failures["no_instance"] != 0 {
		t.Errorf("a probe was counted: %+v", got)
	}
}

func TestNoAllocation(t *testing.T) {
	m := New(1<<12, lifetime)
	made := registered(t, m, "a", "b")
	w := m.Worker()
	at := made.ByName("a")
	i := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		i++
		h := i * 0x9e3779b97f4a7c15
		w.Begin(start, at, h)
		w.Sent(at)
		w.End(start+time.Millisecond, h, Succeeded)
		w.Fail(at.Type, Looped)
		w.Dialog(at, true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTransaction(b *testing.B) {
	m := New(1<<18, lifetime)
	made := registered(b, m, "a", "b", "c", "d")
	w := m.Worker()
	for i := uint64(0); b.Loop(); i++ {
		h := i * 0x9e3779b97f4a7c15
		w.Begin(start, made.Target(int32(i&3)), h)
		w.End(start, h, Succeeded)
	}
}
