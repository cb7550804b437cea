package load

import (
	"context"
	"runtime"
	"time"
)

const (
	// lead is the time between an engine's being ready and its first call.
	lead = 20 * time.Millisecond
	// grace is how long after the window calls that are behind their schedule are
	// still begun; later ones count as not offered.
	grace = 100 * time.Millisecond
)

// An Agenda hands out the calls of a schedule as they fall due, and counts them
// as scheduled. It allocates nothing and is for one goroutine.
type Agenda struct {
	schedule *Schedule
	record   *Recorder
	due      time.Duration // of the next call
	more     bool          // there is a next call

	begun  int
	behind time.Duration
}

// NewAgenda makes the agenda of a trial whose calls the recorder counts.
func NewAgenda(s *Schedule, r *Recorder) *Agenda {
	a := &Agenda{schedule: s, record: r}
	a.due, a.more = s.Next()
	return a
}

// Next is when the next call is due; false: there is none.
func (a *Agenda) Next() (due time.Duration, more bool) { return a.due, a.more }

// Begun is how many calls were handed out, those of the warm-up too.
func (a *Agenda) Begun() int { return a.begun }

// Behind is the most that a call was handed out after it was due.
func (a *Agenda) Behind() time.Duration { return a.behind }

// Expire drops the calls that are left when the window has been over for longer
// than an engine may be behind. They count as scheduled.
func (a *Agenda) Expire(now time.Duration) bool {
	if now <= a.schedule.end+grace {
		return false
	}
	for ; a.more; a.due, a.more = a.schedule.Next() {
		a.record.Scheduled(a.due)
	}
	return true
}

// Begin hands out the next call; false: none is due yet.
func (a *Agenda) Begin(now time.Duration) (due time.Duration, ok bool) {
	if !a.more || a.due > now {
		return 0, false
	}
	due = a.due
	a.record.Scheduled(due)
	a.behind = max(a.behind, now-due)
	a.begun++
	a.due, a.more = a.schedule.Next()
	return due, true
}

// Play has an engine play the agenda on one thread and says when the window
// began: play gets that time and returns when all calls have ended. When ctx
// ends first, Play calls stop, after which play must return soon, and returns
// ctx's error.
func (a *Agenda) Play(ctx context.Context, play func(start time.Time), stop func()) (start time.Time, err error) {
	// One goroutine does everything: others would only spin beside it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer context.AfterFunc(ctx, stop)()
	start = time.Now().Add(lead - a.due)
	play(start)
	return start, ctx.Err()
}
