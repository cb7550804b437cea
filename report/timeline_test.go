package report

import (
	"testing"
	"time"

	"vitrine"
)

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
