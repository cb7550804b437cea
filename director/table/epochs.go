package table

import (
	"sync"
	"sync/atomic"
	"time"
)

// Transition is how long a transaction can still have messages: 64 x T1, the
// longest wait of RFC 3261's timers B, F, H and J with T1 of 500 ms.
const Transition = 64 * 500 * time.Millisecond

// generations is how many changes a Steering can tell apart. An entry of its
// memory can be two transitions old, so that there may be paces changes in one.
const (
	generations = 256
	paces       = 120
)

// A View is what workers steer by at one moment. It is never changed.
type View struct {
	Table  *Table
	Health *Health

	generation uint8
	changed    [generations]time.Duration // when each generation began

	previous       *Table        // after a restart: what was in force before; else nil
	previousHealth *Health       //
	until          time.Duration // and until when it counts, or did; 0: no such restart
}

// Previous is the table that unknown keys go by where the new one moves them,
// after a restart amid a transition; else nil.
func (v *View) Previous(now time.Duration) *Table {
	if v.previous == nil || now >= v.until {
		return nil
	}
	return v.previous
}

// Straggling says whether transactions may be left that began by the table before
// a restart.
func (e *Epochs) Straggling(now time.Duration) bool {
	v := e.view.Load()
	return v.until > 0 && now < v.until+e.transition
}

// Epochs publishes tables and health to the workers. Times are monotonic and
// from the same clock as those that Steering is given.
type Epochs struct {
	transition time.Duration
	view       atomic.Pointer[View]
	mu         sync.Mutex // one publication at a time
}

// NewEpochs publishes a first table, as of now: nothing moved.
func NewEpochs(transition, now time.Duration, t *Table, condition func(*Target) Condition) *Epochs {
	e := &Epochs{transition: transition}
	e.view.Store(&View{Table: t, Health: t.Health(condition), changed: [generations]time.Duration{now}})
	return e
}

// Restore publishes the first table after a restart that came age after the
// change from previous to t. As nothing is known of the keys that were seen,
// those that the change moved go by the previous table until the transition is
// over, and those that did, stay there for a transition more.
func Restore(transition, now time.Duration, t, previous *Table, age time.Duration, condition func(*Target) Condition) *Epochs {
	e := NewEpochs(transition, now, t, condition)
	age = max(age, 0)
	if age >= transition || previous == nil {
		return e
	}
	v := *e.view.Load()
	v.previous, v.previousHealth = previous, previous.Health(condition)
	v.until = now - age + transition
	// Generation 0 is of what goes by the previous table: for that the change is
	// when it counts no more, so that a transaction which begins shortly before
	// stays, too. 1 began then, and 2 is of what goes by t.
	v.generation = 2
	v.changed[0], v.changed[1], v.changed[2] = now-age, v.until, now-age
	e.view.Store(&v)
	return e
}

// View is what is in force.
func (e *Epochs) View() *View { return e.view.Load() }

// Transition is the time for which a key that moved stays where it was.
func (e *Epochs) Transition() time.Duration { return e.transition }

// Pace is the least time between two publications.
func (e *Epochs) Pace() time.Duration { return e.transition / paces }

// Wait is how long Publish would have the caller wait.
func (e *Epochs) Wait(now time.Duration) time.Duration {
	v := e.view.Load()
	return max(0, v.changed[v.generation]+e.Pace()-now)
}

// Publish puts a table and its health in force: another epoch's, or the same
// table with other health. When the one in force is younger than Pace it does
// nothing and returns how long to wait; else it returns 0.
func (e *Epochs) Publish(now time.Duration, t *Table, condition func(*Target) Condition) (wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if wait := e.Wait(now); wait > 0 {
		return wait
	}
	v := *e.view.Load()
	v.Table, v.Health = t, t.Health(condition)
	v.generation++
	v.changed[v.generation] = now
	if v.previous != nil && now >= v.until {
		v.previous, v.previousHealth = nil, nil
	} else if v.previous != nil {
		v.previousHealth = v.previous.Health(condition)
	}
	e.view.Store(&v)
	return 0
}
