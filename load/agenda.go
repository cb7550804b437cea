package load

import (
	"context"
	"time"
)

// lead is the time from the call of Play to the first due call or, if no call is due before the
// window, to the start of the window.
const lead = 20 * time.Millisecond

// An Agenda returns the calls of a schedule when they are due, and counts them as scheduled. It
// does not allocate. Only one goroutine may use it.
type Agenda struct {
	schedule *Schedule
	record   *Recorder
	due      time.Duration // due time of the next call
	more     bool          // there is a next call

	begun int
}

// NewAgenda returns the agenda of a schedule. The agenda counts the scheduled calls in r.
func NewAgenda(s *Schedule, r *Recorder) *Agenda {
	a := &Agenda{schedule: s, record: r}
	a.due, a.more = s.Next()
	return a
}

// Next returns the due time of the next call. more is false if no call is left.
func (a *Agenda) Next() (due time.Duration, more bool) { return a.due, a.more }

// Begun returns the number of calls that Begin has returned, including the warm-up.
func (a *Agenda) Begun() int { return a.begun }

// Behind returns the longest delay of a call of the window after its due time.
func (a *Agenda) Behind() time.Duration { return a.record.late }

// Expire drops the remaining calls if they are too late (Recorder.TooLate), and reports whether it
// did. Dropped calls count as scheduled.
func (a *Agenda) Expire(now time.Duration) bool {
	if !a.record.TooLate(now) {
		return false
	}
	for ; a.more; a.due, a.more = a.schedule.Next() {
		a.record.Scheduled(a.due)
	}
	return true
}

// Begin returns the next call. ok is false if no call is due yet.
func (a *Agenda) Begin(now time.Duration) (due time.Duration, ok bool) {
	if !a.more || a.due > now {
		return 0, false
	}
	due = a.due
	a.record.Scheduled(due)
	a.record.Begun(due, now)
	a.begun++
	a.due, a.more = a.schedule.Next()
	return due, true
}

// Play runs play and returns the start of the window. play gets that start, and returns when all
// calls have ended. If ctx ends first, Play calls stop and returns ctx's error. After stop, play
// must return soon.
func (a *Agenda) Play(ctx context.Context, play func(start time.Time), stop func()) (start time.Time, err error) {
	defer context.AfterFunc(ctx, stop)()
	start = time.Now().Add(lead - min(a.due, 0)) // the window never begins before this process
	play(start)
	return start, ctx.Err()
}
