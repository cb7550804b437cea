package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAgenda checks that Begin returns calls once they are due. Calls that remain long after the
// window count as scheduled but not as offered.
func TestAgenda(t *testing.T) {
	trial := Trial{Rate: 10, Duration: 1}
	r := NewRecorder(trial.Duration)
	a := NewAgenda(trial.Schedule(Paced), r)
	for i := range 3 {
		if due, ok := a.Begin(200 * time.Millisecond); !ok || due != time.Duration(i)*100*time.Millisecond {
			t.Errorf("call %d: got due time %v, %v", i, due, ok)
		}
	}
	if _, ok := a.Begin(200 * time.Millisecond); ok || a.Begun() != 3 || a.Behind() != 200*time.Millisecond {
		t.Errorf("got %d begun calls, at most %v late, another call: %v", a.Begun(), a.Behind(), ok)
	}
	if r.TooLate(time.Second+grace) || a.Expire(time.Second+grace) {
		t.Error("Expire dropped the remaining calls within the grace period")
	}
	if !r.TooLate(time.Second+grace+1) || !a.Expire(time.Second+grace+1) {
		t.Error("Expire did not drop the remaining calls after the grace period")
	}
	if _, more := a.Next(); more || a.Begun() != 3 {
		t.Errorf("got another call: %v; %d begun", more, a.Begun())
	}
	if report, err := r.Report(time.Now()); err != nil || report.Scheduled != 10 || report.Offered != 0 || report.Late != 0.2 {
		t.Errorf("scheduled %d, offered %d, %v s late, %v; want 10, 0 and 0.2 s", report.Scheduled, report.Offered, report.Late, err)
	}
}

// TestLateCallsOfTheWarmUpDoNotCount checks that only calls of the window say how late the generator was.
func TestLateCallsOfTheWarmUpDoNotCount(t *testing.T) {
	r := NewRecorder(1)
	for due, at := range map[time.Duration]time.Duration{-time.Second: 0, 0: 500 * ms, 900 * ms: 901 * ms, time.Second: 2 * time.Second} {
		r.Begun(due, at)
	}
	report, err := r.Report(time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if report.Late != 0.5 {
		t.Errorf("%v s late, want 0.5 s", report.Late)
	}
}

// TestWindowDoesNotBeginInThePast checks that the window begins after the call of Play, even if
// its first call is due seconds later.
func TestWindowDoesNotBeginInThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trial := Trial{Rate: 0.1, Duration: 1000, Seed: 1}
		a := NewAgenda(trial.Schedule(Poisson), NewRecorder(trial.Duration))
		if first, more := a.Next(); !more || first <= lead {
			t.Fatalf("the first call is due at %v, want more than %v", first, lead)
		}
		begin := time.Now()
		if start, err := a.Play(t.Context(), func(time.Time) {}, func() {}); err != nil || start.Sub(begin) != lead {
			t.Errorf("the window begins %v after the call, want %v: %v", start.Sub(begin), lead, err)
		}
	})
}

func TestAgendaPlays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trial := Trial{Rate: 10, Duration: 1, Warmup: 2}
		a := NewAgenda(trial.Schedule(Paced), NewRecorder(trial.Duration))
		first, _ := a.Next()
		begin := time.Now()
		start, err := a.Play(t.Context(), func(time.Time) {}, func() { t.Error("the agenda was stopped") })
		if err != nil || start.Add(first).Sub(begin) != lead {
			t.Errorf("the first call is due %v after the start: %v", start.Add(first).Sub(begin), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		if _, err := a.Play(ctx, func(time.Time) { cancel(); <-stopped }, func() { close(stopped) }); !errors.Is(err, context.Canceled) {
			t.Errorf("after an interrupt: got %v", err)
		}
	})
}
