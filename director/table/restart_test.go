package table

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestRestart checks steering after a restart without a memory. Until the transition is over,
// unknown keys that the last change moved go by the previous table. Afterwards they go by the
// current table.
func TestRestart(t *testing.T) {
	instances := registrations(5, same)
	previous, current := build(t, instances[:4]), build(t, instances)
	const age = 10 * time.Second
	e := Restore(Transition, start, current, previous, age, nil)
	s := NewSteering(e, 1<<16)
	if e.View().Previous(start) != previous || e.View().Previous(start+Transition-age) != nil {
		t.Error("the previous table applies for the wrong time")
	}
	ks := keys(10000)
	unknown := 0
	for _, k := range ks {
		i, _ := previous.Pick(0, k, 0, nil)
		j, _ := current.Pick(0, k, 0, nil)
		if previous.Instance(i).Name != current.Instance(j).Name {
			unknown++
		}
		for _, at := range []time.Duration{0, second, 20 * second} {
			if got := choose(t, s, start+at, k); got != previous.Instance(i).Name {
				t.Fatalf("an unknown key goes to %s, want %s as before the restart", got, previous.Instance(i).Name)
			}
		}
	}
	if n := s.Counters(); n.Unknown != uint64(unknown) || unknown == 0 {
		t.Errorf("counters %+v, want %d unknown keys, at least one", n, unknown)
	}
	// When the transition is over, transactions that began by the previous table stay at their
	// instances until they end. Others go by the current table.
	over := start + Transition - age
	for _, k := range ks {
		i, _ := previous.Pick(0, k, 0, nil)
		if got := choose(t, s, over+second, k); got != previous.Instance(i).Name {
			t.Fatalf("during its transaction a key goes to %s, want %s as before the restart", got, previous.Instance(i).Name)
		}
	}
	for _, k := range keys(20000)[10000:] {
		j, _ := current.Pick(0, k, 0, nil)
		if got := choose(t, s, over, k); got != current.Instance(j).Name {
			t.Fatalf("after the transition a key goes to %s, want its instance in the current table", got)
		}
	}
	for _, k := range ks {
		j, _ := current.Pick(0, k, 0, nil)
		if got := choose(t, s, over+Transition, k); got != current.Instance(j).Name {
			t.Fatalf("one transition later a key goes to %s, want its instance in the current table", got)
		}
	}
	// After another change, known keys stay, and unknown keys still go by the table
	// before the restart.
	e = Restore(Transition, start, current, previous, age, nil)
	s = NewSteering(e, 1<<16)
	for _, k := range ks[:5000] {
		choose(t, s, start, k)
	}
	publish(t, e, start+second, 3, registrations(6, same))
	for _, k := range ks {
		i, _ := previous.Pick(0, k, 0, nil)
		if got := choose(t, s, start+2*second, k); got != previous.Instance(i).Name {
			t.Fatalf("a key goes to %s, want %s as before the restart", got, previous.Instance(i).Name)
		}
	}
}

// TestRestartTwice checks a hand-over after a restart without a memory. Keys that are still unknown
// go by the table from before that restart.
func TestRestartTwice(t *testing.T) {
	instances := registrations(5, same)
	previous, current := build(t, instances[:4]), build(t, instances)
	ks := keys(2000)
	first := Restore(Transition, start, current, previous, second, nil)
	s := NewSteering(first, 1<<14)
	for _, k := range ks[:1000] {
		choose(t, s, start, k)
	}
	var passed bytes.Buffer
	if err := errors.Join(first.Carry(&passed), s.Carry(start+second, &passed)); err != nil {
		t.Fatal(err)
	}
	next := Restore(Transition, start+second, current, previous, 2*second, nil)
	memory := NewSteering(next, 1<<14)
	if err := next.TakeOver(&passed, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.TakeOver(&passed); err != nil {
		t.Fatal(err)
	}
	for _, k := range ks {
		i, _ := previous.Pick(0, k, 0, nil)
		if got := choose(t, memory, start+2*second, k); got != previous.Instance(i).Name {
			t.Fatalf("an unknown key goes to %s, want %s as before the restart", got, previous.Instance(i).Name)
		}
	}
	over := start + Transition - second
	if !next.Straggling(over) || !next.Straggling(over+Transition-1) || next.Straggling(over+Transition) {
		t.Error("Straggling is true for the wrong time")
	}
}

// TestRestartLate restarts after the transition has ended, or without a change. All keys must go by
// the current table.
func TestRestartLate(t *testing.T) {
	instances := registrations(5, same)
	previous, current := build(t, instances[:4]), build(t, instances)
	for _, e := range []*Epochs{
		Restore(Transition, start, current, previous, Transition, nil),
		Restore(Transition, start, current, nil, 0, nil),
	} {
		s := NewSteering(e, 8)
		for _, k := range keys(100) {
			j, _ := current.Pick(0, k, 0, nil)
			if got := choose(t, s, start, k); got != current.Instance(j).Name {
				t.Fatalf("a key goes to %s, want its instance in the current table", got)
			}
		}
	}
	// If the clock was put back, the change lies in the future and counts as if it were now.
	e := Restore(Transition, start, current, previous, -time.Hour, nil)
	if e.View().Previous(start) != previous || e.View().Previous(start+Transition) != nil {
		t.Error("a jump of the clock changes the length of the transition")
	}
}
