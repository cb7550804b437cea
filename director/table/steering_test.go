package table

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"vitrine"
)

const second = time.Second

// start is the time at which tests begin. It is not 0, because real clocks are not.
const start = 1000 * time.Hour

func steering(t testing.TB, instances []Instance, limit int) (*Epochs, *Steering) {
	t.Helper()
	e := NewEpochs(Transition, start, build(t, instances), nil)
	return e, NewSteering(e, limit)
}

func choose(t testing.TB, s *Steering, now time.Duration, key uint64) string {
	t.Helper()
	at, ok := s.Choose(now, 0, key, 0)
	if !ok {
		return ""
	}
	return at.Name
}

// chosen returns the instance of each key.
func chosen(t *testing.T, s *Steering, now time.Duration, keys []uint64) map[uint64]string {
	t.Helper()
	at := map[uint64]string{}
	for _, k := range keys {
		at[k] = choose(t, s, now, k)
	}
	return at
}

func publish(t testing.TB, e *Epochs, now time.Duration, epoch uint64, instances []Instance) {
	t.Helper()
	table, err := New(epoch, types, instances)
	if err != nil {
		t.Fatal(err)
	}
	if wait := e.Publish(now, table, nil); wait != 0 {
		t.Fatalf("the publication has to wait %s, want 0", wait)
	}
}

// TestNoKeyMovesTwice adds an instance. Known keys that belong to the new instance must stay until
// the transition is over, and then move once. New keys must go to the new instance at once.
func TestNoKeyMovesTwice(t *testing.T) {
	instances := registrations(5, same)
	e, s := steering(t, instances[:4], 1<<18)
	ks := keys(20000)
	old, fresh := ks[:10000], ks[10000:]
	before := map[uint64]string{}
	for _, k := range old {
		before[k] = choose(t, s, start+second, k)
	}
	changed := start + 5*second
	publish(t, e, changed, 2, instances)
	after := e.View().Table
	for _, k := range fresh {
		i, _ := after.Pick(0, k, 0, nil)
		if got := choose(t, s, changed+second, k); got != after.Instance(i).Name {
			t.Fatalf("a new key goes to %s, want %s", got, after.Instance(i).Name)
		}
	}
	kept := 0
	for now := changed; now < changed+Transition; now += 4 * second {
		for _, k := range old {
			if got := choose(t, s, now, k); got != before[k] {
				t.Fatalf("after %s a key moved from %s to %s", now-changed, before[k], got)
			}
		}
	}
	for _, k := range old {
		i, _ := after.Pick(0, k, 0, nil)
		if want := after.Instance(i).Name; want != before[k] {
			kept++
		}
	}
	if kept < 1500 || kept > 2500 {
		t.Fatalf("%d of 10000 keys move to the fifth instance, want about 2000", kept)
	}
	if n := s.Counters(); n.Kept != uint64(kept*8) || n.Forgotten != 0 || n.Moved != 0 {
		t.Errorf("counters %+v with %d kept keys that were looked up 8 times", n, kept)
	}
	for range 2 {
		for _, k := range old {
			i, _ := after.Pick(0, k, 0, nil)
			if got := choose(t, s, changed+Transition, k); got != after.Instance(i).Name {
				t.Fatalf("after the transition a key goes to %s, want its instance in the new table", got)
			}
		}
	}
	if n := s.Counters(); n.Moved != uint64(kept) || n.Gone != 0 {
		t.Errorf("counters %+v after the transition of %d keys", n, kept)
	}
}

// TestQuietKey checks that a key counts as new if it was last seen more than a transition before
// the change.
func TestQuietKey(t *testing.T) {
	instances := registrations(8, same)
	e, s := steering(t, instances[:4], 1<<14)
	ks := keys(2000)
	for _, k := range ks {
		choose(t, s, start, k)
	}
	changed := start + Transition + 2*second
	publish(t, e, changed, 2, instances)
	for _, k := range ks {
		i, _ := e.View().Table.Pick(0, k, 0, nil)
		if got := choose(t, s, changed+second, k); got != e.View().Table.Instance(i).Name {
			t.Fatalf("a key that was idle for long stays at %s", got)
		}
	}
}

// TestDraining checks that a draining instance keeps its transactions and gets no new ones. If it
// is also unhealthy, it must get no transactions at all.
func TestDraining(t *testing.T) {
	instances := registrations(3, same)
	e, s := steering(t, instances, 1<<14)
	ks := keys(3000)
	before := map[uint64]string{}
	for _, k := range ks[:1500] {
		before[k] = choose(t, s, start, k)
	}
	instances[0].State = vitrine.Draining
	publish(t, e, start+second, 2, instances)
	for _, k := range ks[:1500] {
		if got := choose(t, s, start+2*second, k); got != before[k] {
			t.Fatalf("an old key moved from %s to %s", before[k], got)
		}
	}
	for _, k := range ks[1500:] {
		if got := choose(t, s, start+2*second, k); got == "reg-1" {
			t.Fatal("a new key goes to the draining instance")
		}
	}
	e.Publish(start+3*second, e.View().Table, func(at *Target) Condition {
		if at.Name == "reg-1" {
			return Away
		}
		return Up
	})
	gone := 0
	for _, k := range ks[:1500] {
		got := choose(t, s, start+4*second, k)
		if got == "reg-1" {
			t.Fatal("a key goes to an unhealthy instance")
		}
		if before[k] == "reg-1" {
			gone++
		} else if got != before[k] {
			t.Fatalf("a key of a healthy instance moved from %s to %s", before[k], got)
		}
	}
	if n := s.Counters(); n.Gone != uint64(gone) || gone == 0 {
		t.Errorf("counters %+v, want %d keys gone, at least one", n, gone)
	}
}

// TestAllDraining checks that known keys still reach their draining instances if all instances
// drain.
func TestAllDraining(t *testing.T) {
	instances := registrations(2, same)
	e, s := steering(t, instances, 1<<12)
	before := choose(t, s, start, 42)
	for i := range instances {
		instances[i].State = vitrine.Draining
	}
	publish(t, e, start+second, 2, instances)
	if got := choose(t, s, start+2*second, 42); got != before {
		t.Errorf("the old key goes to %q, want %s", got, before)
	}
	if got := choose(t, s, start+2*second, 43); got != "" {
		t.Errorf("a new key goes to %s, want no instance", got)
	}
	if n := s.Counters(); n.None != 1 || n.Kept != 1 {
		t.Errorf("%+v", n)
	}
}

// TestResume checks that a request that names its instance goes there, unless the instance drains
// and does not keep its dialogs. A retransmission must still reach the draining instance.
func TestResume(t *testing.T) {
	instances := registrations(3, same)
	e, s := steering(t, instances, 1<<12)
	id := e.View().Table.ByName("reg-2").ID
	var key uint64
	for key = range uint64(1000) { // find a key that the table would send elsewhere
		if i, _ := e.View().Table.Pick(0, key, 0, nil); e.View().Table.Instance(i).Name == "reg-1" {
			break
		}
	}
	resume := func(now time.Duration, key uint64, dialogs bool) string {
		at, ok := s.Resume(now, 0, id, key, 0, dialogs)
		if !ok {
			return ""
		}
		return at.Name
	}
	if got := resume(start, key, false); got != "reg-2" {
		t.Errorf("the request in a dialog goes to %s, want reg-2", got)
	}
	if got := choose(t, s, start, key); got != "reg-1" {
		t.Errorf("a dialog at another instance moved its key to %s", got)
	}
	instances[1].State = vitrine.Draining
	publish(t, e, start+second, 2, instances)
	if got := resume(start+2*second, key, false); got != "reg-2" {
		t.Errorf("the retransmitted request goes to %s, want the draining reg-2", got)
	}
	if got := resume(start+2*second, key+1, false); got == "reg-2" {
		t.Error("a new request goes to a draining instance")
	}
	if got := resume(start+2*second, key+1, true); got != "reg-2" {
		t.Errorf("the request in a dialog goes to %s, want reg-2, which keeps dialogs", got)
	}
	if got := resume(start+second+Transition, key, false); got == "reg-2" {
		t.Error("a request goes to a draining instance after the transition")
	}
	if at, ok := s.Follow(start+second+Transition, 0, id, key, 0); !ok || at.Name == "reg-2" {
		t.Error("a message does not follow the request that has moved from the draining instance")
	}
	if at, ok := s.Follow(start+second+Transition, 0, id, key+2, 0); !ok || at.Name != "reg-2" {
		t.Error("a message whose request was forgotten does not go to its draining instance")
	}
	if _, ok := s.Resume(start, 0, 1, key, 0, true); !ok {
		t.Error("a request for a removed instance found no instance")
	}
}

// TestHealthComesBack checks that a transaction that began while its first choice was unhealthy
// does not move when that instance recovers.
func TestHealthComesBack(t *testing.T) {
	instances := registrations(4, same)
	e, s := steering(t, instances, 1<<14)
	away := func(at *Target) Condition {
		if at.Name == "reg-1" {
			return Away
		}
		return Up
	}
	e.Publish(start+second, e.View().Table, away)
	ks := keys(2000)
	before := map[uint64]string{}
	for _, k := range ks {
		before[k] = choose(t, s, start+2*second, k)
		if before[k] == "reg-1" {
			t.Fatal("a key goes to an unhealthy instance")
		}
	}
	e.Publish(start+3*second, e.View().Table, nil)
	for _, k := range ks {
		if got := choose(t, s, start+4*second, k); got != before[k] {
			t.Fatalf("a key moved from %s to %s when an instance recovered", before[k], got)
		}
	}
	back := 0
	for _, k := range keys(4000)[2000:] {
		if choose(t, s, start+4*second, k) == "reg-1" {
			back++
		}
	}
	if back < 300 {
		t.Errorf("%d of 2000 new keys go to the recovered instance, want at least 300", back)
	}
}

// TestMemoryIsBounded checks that a full memory forgets keys, counts them, and does not grow.
func TestMemoryIsBounded(t *testing.T) {
	instances := registrations(4, same)
	_, s := steering(t, instances, 1000)
	if room := len(s.buckets) * len(bucket{}); room != 1000 {
		t.Errorf("memory has room for %d keys, want 1000", room)
	}
	for _, k := range keys(3000) {
		choose(t, s, start, k)
	}
	if n := s.Counters().Forgotten; n < 2000 || n > 2300 {
		t.Errorf("forgot %d of 3000 keys in a memory of 1000, want about 2000", n)
	}
	for _, k := range keys(6000)[3000:] { // forgetting a key older than a transition is no loss
		choose(t, s, start+Transition+2*second, k)
	}
	if n := s.Counters().Forgotten; n < 4000 || n > 4700 {
		t.Errorf("forgot %d keys, want about 4500: keys idle for a transition do not count", n)
	}
}

// TestManyEpochs checks that the messages of a transaction stay at one instance while epochs change
// as fast as allowed.
func TestManyEpochs(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	instances := registrations(10, same)
	e, s := steering(t, instances, 1<<16)
	type call struct {
		key   uint64
		at    string
		until time.Duration
	}
	var calls []call
	tables := make([]*Table, 8)
	for i := range tables {
		instances[random.IntN(len(instances))].Weight = 50 + 100*random.Float64()
		tables[i] = build(t, instances)
	}
	next := uint64(0)
	now := start
	for epoch := range 900 {
		now += e.Pace()
		table := tables[random.IntN(len(tables))]
		if early := e.Publish(now-1, table, nil); early != 1 {
			t.Fatalf("a publication 1 ns too early has to wait %s, want 1ns", early)
		}
		if wait := e.Publish(now, table, nil); wait != 0 {
			t.Fatal(wait)
		}
		for range 20 {
			next++
			k := Key([]byte{byte(next), byte(next >> 8), byte(next >> 16)})
			// The transaction ends within a transition after the first change that
			// follows its begin.
			calls = append(calls, call{k, choose(t, s, now, k), now + e.Pace() + time.Duration(random.Int64N(int64(Transition)))})
		}
		open := calls[:0]
		for _, c := range calls {
			if now >= c.until {
				continue
			}
			if random.IntN(20) == 0 {
				if got := choose(t, s, now, c.key); got != c.at {
					t.Fatalf("epoch %d: a transaction moved from %s to %s, %s before its end", epoch, c.at, got, c.until-now)
				}
			}
			open = append(open, c)
		}
		calls = open
	}
	if n := s.Counters(); n.Kept == 0 || n.Forgotten > 0 {
		t.Errorf("%+v", n)
	}
}

// TestCarry checks that keys stay at their instances across a hand-over.
func TestCarry(t *testing.T) {
	instances := registrations(5, same)
	e, s := steering(t, instances[:4], 1<<15)
	ks := keys(5000)
	before := chosen(t, s, start+second, ks)
	publish(t, e, start+2*second, 1, instances)
	var passed bytes.Buffer
	if err := e.Carry(&passed); err != nil {
		t.Fatal(err)
	}
	if err := s.Carry(start+3*second, &passed); err != nil {
		t.Fatal(err)
	}
	next := Restore(Transition, start+3*second, build(t, instances), build(t, instances[:4]), second, nil)
	memory := NewSteering(next, 1<<15)
	whole := passed.Bytes()
	if err := next.TakeOver(&passed, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := memory.TakeOver(&passed); err != nil || n != len(ks) {
		t.Fatalf("took over %d of %d keys: %v", n, len(ks), err)
	}
	for _, k := range ks {
		if got := choose(t, memory, start+4*second, k); got != before[k] {
			t.Fatalf("a key moved from %s to %s", before[k], got)
		}
	}
	for _, k := range keys(6000)[5000:] {
		i, _ := next.View().Table.Pick(0, k, 0, nil)
		if got := choose(t, memory, start+4*second, k); got != next.View().Table.Instance(i).Name {
			t.Fatalf("a new key goes to %s, want its instance in the new table", got)
		}
	}
	if n := memory.Counters(); n.Unknown != 0 || n.Kept == 0 {
		t.Errorf("%+v", n)
	}
	for _, cut := range []int{0, 10, len(whole) - 5} {
		in := bytes.NewReader(whole[:cut])
		err := next.TakeOver(in, nil)
		if err == nil {
			_, err = NewSteering(next, 1<<15).TakeOver(in)
		}
		if err == nil {
			t.Errorf("TakeOver accepted %d of %d bytes", cut, len(whole))
		}
	}
}

// TestCarryElsewhere checks that a memory of another size or transition takes over keys, even from
// several memories.
func TestCarryElsewhere(t *testing.T) {
	instances := registrations(5, same)
	e, one := steering(t, instances[:4], 1<<15)
	two := NewSteering(e, 1<<15)
	ks := keys(5000)
	before := map[uint64]string{}
	for i, k := range ks {
		before[k] = choose(t, []*Steering{one, two}[i%2], start+second, k)
	}
	publish(t, e, start+2*second, 1, instances)
	for _, c := range []struct {
		limit      int
		transition time.Duration
	}{{1 << 15, Transition}, {1<<16 + 800, Transition}, {1 << 16, 2 * Transition}, {20000, Transition}, {1 << 16, Transition / 4}} {
		var passed bytes.Buffer
		next := Restore(c.transition, start+3*second, build(t, instances), build(t, instances[:4]), second, nil)
		memory := NewSteering(next, c.limit)
		if err := errors.Join(e.Carry(&passed), one.Carry(start+3*second, &passed), two.Carry(start+3*second, &passed)); err != nil {
			t.Fatal(err)
		}
		err := next.TakeOver(&passed, nil)
		n, err1 := memory.TakeOver(&passed)
		more, err2 := memory.TakeOver(&passed)
		if err := errors.Join(err, err1, err2); err != nil || n+more < len(ks)*99/100 || passed.Len() != 0 {
			t.Errorf("%+v: took over %d of %d keys, %d bytes left: %v", c, n+more, len(ks), passed.Len(), err)
		}
		strayed := 0
		for _, k := range ks {
			if choose(t, memory, start+4*second, k) != before[k] {
				strayed++
			}
		}
		if strayed > len(ks)-n-more {
			t.Errorf("%+v: %d keys moved, and %d were taken over", c, strayed, n+more)
		}
	}
}

// TestCarryToAnotherEpoch checks a hand-over to a process with another table. Known keys must stay
// until a transition is over, and then move.
func TestCarryToAnotherEpoch(t *testing.T) {
	instances := registrations(5, same)
	e, s := steering(t, instances[:4], 1<<15)
	ks := keys(1000)
	before := chosen(t, s, start+second, ks)
	current, err := New(2, types, instances)
	if err != nil {
		t.Fatal(err)
	}
	next := Restore(Transition, start+2*second, current, build(t, instances[:4]), 0, nil)
	memory := NewSteering(next, 1<<15)
	var passed bytes.Buffer
	if err := errors.Join(e.Carry(&passed), s.Carry(start+2*second, &passed), next.TakeOver(&passed, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	over := start + 2*second + Transition
	for now := start + 2*second; now < over; now += 10 * second {
		for _, k := range ks {
			if got := choose(t, memory, now, k); got != before[k] {
				t.Fatalf("a key moved from %s to %s", before[k], got)
			}
		}
	}
	for _, k := range ks {
		i, _ := current.Pick(0, k, 0, nil)
		if got := choose(t, memory, over, k); got != current.Instance(i).Name {
			t.Fatalf("a key still goes to %s after the transition", got)
		}
	}
}

// TestNoAllocation checks that steering a message never allocates.
func TestNoAllocation(t *testing.T) {
	instances := registrations(1000, same)
	e := Restore(Transition, start, build(t, instances), build(t, instances[:900]), second, func(at *Target) Condition {
		if at.Index%3 == 0 {
			return Away
		}
		return Up
	})
	s := NewSteering(e, 1<<12)
	ks := keys(1 << 14)
	i := 0
	id := e.View().Table.Target(1).ID
	const messages = 20000
	if n := testing.AllocsPerRun(1, func() {
		for range messages {
			k := ks[i&(1<<14-1)]
			s.Choose(start+time.Duration(i)*time.Millisecond, 0, k, RegionOf("eu"))
			s.Resume(start+time.Duration(i)*time.Millisecond, 0, id, k, 0, i&1 == 0)
			i++
		}
	}); n > 2 {
		t.Errorf("%v allocations for %d messages", n, messages)
	}
}

func BenchmarkChoose(b *testing.B) {
	instances := registrations(4, same)
	_, s := steering(b, instances, 1<<18)
	ks := keys(50000)
	now := start
	for i := 0; b.Loop(); i++ {
		now += time.Microsecond
		s.Choose(now, 0, ks[i%50000], 0)
	}
}
