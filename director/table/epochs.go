package table

import (
	"sync"
	"sync/atomic"
	"time"
)

// Transition is the longest time for which a transaction can have messages: 64 x T1, the
// longest of RFC 3261's timers B, F, H and J, with T1 of 500 ms.
const Transition = 64 * 500 * time.Millisecond

// generations is how many changes a Steering can tell apart. An entry of its memory can
// be two transitions old. So a transition may have paces changes, which is less than
// half.
const (
	generations = 256
	paces       = 120
)

// A View is the state that workers steer by at one moment. It is immutable.
type View struct {
	Table  *Table
	Health *Health

	generation uint8
	changed    [generations]time.Duration // when each generation began

	previous       *Table        // after a restart: the table in force before; else nil
	previousHealth *Health       // its health
	until          time.Duration // when previous stops to apply; 0: no such restart
}

// Previous returns the table in force before a restart during a transition, as long as it
// applies; else nil. It applies to unknown keys that the new table moves.
func (v *View) Previous(now time.Duration) *Table {
	if v.previous == nil || now >= v.until {
		return nil
	}
	return v.previous
}

// Straggling reports whether there may still be transactions that began by the table before
// a restart.
func (e *Epochs) Straggling(now time.Duration) bool {
	v := e.view.Load()
	return v.until > 0 && now < v.until+e.transition
}

// Epochs publishes tables and health to the workers. Times are monotonic and from the
// same clock as those given to Steering.
type Epochs struct {
	transition time.Duration
	view       atomic.Pointer[View]
	mu         sync.Mutex // one publication at a time
}

// NewEpochs publishes the first table as of now.
func NewEpochs(transition, now time.Duration, t *Table, condition func(*Target) Condition) *Epochs {
	e := &Epochs{transition: transition}
	e.view.Store(&View{Table: t, Health: t.Health(condition), changed: [generations]time.Duration{now}})
	return e
}

// Restore publishes the first table after a restart. The change from previous to t was age
// ago. The memory of keys is lost. So keys that the change moved go by the previous table
// until the transition is over. Keys that went there stay there for another transition.
func Restore(transition, now time.Duration, t, previous *Table, age time.Duration, condition func(*Target) Condition) *Epochs {
	e := NewEpochs(transition, now, t, condition)
	age = max(age, 0)
	if age >= transition || previous == nil {
		return e
	}
	v := *e.view.Load()
	v.previous, v.previousHealth = previous, previous.Health(condition)
	v.until = now - age + transition
	// Generation 0 is for keys that go by the previous table. Their next change is
	// generation 1, at until, so a transaction that begins shortly before until stays, too.
	// Generation 2 is for keys that go by t.
	v.generation = 2
	v.changed[0], v.changed[1], v.changed[2] = now-age, v.until, now-age
	e.view.Store(&v)
	return e
}

// View returns the view in force.
func (e *Epochs) View() *View { return e.view.Load() }

// Transition returns how long a key that a change moves stays at its old instance.
func (e *Epochs) Transition() time.Duration { return e.transition }

// Pace returns the minimum time between two publications.
func (e *Epochs) Pace() time.Duration { return e.transition / paces }

// Wait returns how long Publish would make the caller wait.
func (e *Epochs) Wait(now time.Duration) time.Duration {
	v := e.view.Load()
	return max(0, v.changed[v.generation]+e.Pace()-now)
}

// Publish puts a table and its health in force: another epoch's table, or the same table
// with other health. If the last publication is younger than Pace, Publish does nothing
// and returns how long to wait. Otherwise it returns 0.
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
