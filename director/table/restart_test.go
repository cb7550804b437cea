package table

import (
	"testing"
	"time"
)

// TestRestart: without memory, unknown keys that the last change moved go by the
// table before it until its transition is over, and then by the one in force.
func TestRestart(t *testing.T) {
	instances := registrations(5, same)
	previous, current := build(t, instances[:4]), build(t, instances)
	const age = 10 * time.Second
	e := Restore(Transition, start, current, previous, age, nil)
	s := NewSteering(e, 1<<16)
	if e.View().Previous(start) != previous || e.View().Previous(start+Transition-age) != nil {
		t.Error("the table before counts for too short or too long")
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
				t.Fatalf("an unknown key goes to %s, and to %s before", got, previous.Instance(i).Name)
			}
		}
	}
	if n := s.Stats(); n.Unknown != uint64(unknown) || unknown == 0 {
		t.Errorf("%+v; %d keys moved", n, unknown)
	}
	for _, k := range ks {
		j, _ := current.Pick(0, k, 0, nil)
		if got := choose(t, s, start+Transition-age, k); got != current.Instance(j).Name {
			t.Fatalf("after the transition a key goes to %s", got)
		}
	}
	// A change meanwhile: what is known stays, the unknown still goes by the
	// table before the restart.
	e = Restore(Transition, start, current, previous, age, nil)
	s = NewSteering(e, 1<<16)
	for _, k := range ks[:5000] {
		choose(t, s, start, k)
	}
	publish(t, e, start+second, 3, registrations(6, same))
	for _, k := range ks {
		i, _ := previous.Pick(0, k, 0, nil)
		if got := choose(t, s, start+2*second, k); got != previous.Instance(i).Name {
			t.Fatalf("a key goes to %s, and to %s before", got, previous.Instance(i).Name)
		}
	}
}

// TestRestartLate: a change that is longer ago than a transition, or none.
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
				t.Fatalf("a key goes to %s", got)
			}
		}
	}
	// A clock that went back makes the change be in the future: it was just now.
	e := Restore(Transition, start, current, previous, -time.Hour, nil)
	if e.View().Previous(start) != previous || e.View().Previous(start+Transition) != nil {
		t.Error("a jump of the clock prolongs the transition")
	}
}
