package report

import (
	"fmt"
	"testing"
	"time"

	"vitrine"
	"vitrine/result"
)

// TestCurvesDiffer checks that no two curves of a figure look alike: eight variants of one size, and the
// first instances of ten components.
func TestCurvesDiffer(t *testing.T) {
	var datas []*result.Data
	use := map[string]vitrine.Use{}
	for i := range 10 {
		name := fmt.Sprintf("part%d", i)
		use[name+"-1"] = vitrine.Use{Component: name}
	}
	for i := range 8 {
		o := vitrine.Outcome{Key: vitrine.Key{Seq: 1, Attempt: 1, Subject: "fr1s", Repeat: 1, Rate: 100}, Duration: time.Second,
			Scheduled: 100, Offered: 100, Succeeded: 100, Use: use, Valid: true}
		datas = append(datas, &result.Data{Dir: fmt.Sprintf("run%d", i), Outcomes: []vitrine.Outcome{o}})
	}
	s, err := newSet(datas)
	if err != nil {
		t.Fatal(err)
	}
	looks := map[string]bool{}
	for _, c := range s.curves() {
		looks[fmt.Sprintf("%s %T %v", c.tone.name, c.glyph, c.dash)] = true
	}
	if len(looks) != 8 {
		t.Errorf("eight variants have the looks %v", looks)
	}
	clear(looks)
	for _, name := range s.components {
		x := series{instance: name + "-1", component: name}
		looks[fmt.Sprintf("%s %v", s.seriesTone(x).name, s.seriesDash(x, 0))] = true
	}
	if len(looks) != 10 {
		t.Errorf("ten components have the looks %v", looks)
	}
}

// TestCallsOfAnIncompleteSecond checks that the last half second of a window is shown at its rate.
func TestCallsOfAnIncompleteSecond(t *testing.T) {
	m := moment{outcome: &vitrine.Outcome{Duration: 1500 * time.Millisecond, Seconds: []vitrine.Second{
		{Scheduled: 500, Succeeded: 400}, {Scheduled: 250, Succeeded: 200},
	}}}
	due, succeeded := m.calls()
	if len(due) != 4 || len(succeeded) != 4 || due[3].X != 1.5 || m.mostCalls() != 500 {
		t.Fatalf("got %v due, %v succeeded, at most %g", due, succeeded, m.mostCalls())
	}
	for i := range due {
		if due[i].Y != 500 || succeeded[i].Y != 400 {
			t.Errorf("at %g s: got %g due and %g succeeded, want 500 and 400", due[i].X, due[i].Y, succeeded[i].Y)
		}
	}
}
