package mme

import "time"

// timers holds the contexts whose timer runs, in a heap by expiry time. Each
// context has one timer, so the heap is never larger than the table of contexts.
// Setting a running timer moves it. The heap allocates only to grow.
type timers struct {
	heap []*ue
}

// idleWait is how long a worker without timers sleeps.
const idleWait = time.Hour

// next returns the time until the next expiry.
func (t *timers) next(now time.Duration) time.Duration {
	if len(t.heap) == 0 {
		return idleWait
	}
	return max(t.heap[0].wake-now, 0)
}

// due stops and returns a context whose timer has expired, or nil.
func (t *timers) due(now time.Duration) *ue {
	if len(t.heap) == 0 || t.heap[0].wake > now {
		return nil
	}
	u := t.heap[0]
	t.stop(u)
	return u
}

// set starts a context's timer, or moves it if it runs. The timer expires at
// wake.
func (t *timers) set(u *ue, wake time.Duration) {
	if u.slot == 0 {
		t.heap = append(t.heap, u)
		u.slot = len(t.heap)
	}
	u.wake = wake
	t.fix(u.slot - 1)
}

// stop stops a context's timer, if it runs.
func (t *timers) stop(u *ue) {
	if u.slot == 0 {
		return
	}
	i, last := u.slot-1, len(t.heap)-1
	u.slot = 0
	moved := t.heap[last]
	t.heap[last] = nil
	t.heap = t.heap[:last]
	if i != last {
		t.heap[i] = moved
		moved.slot = i + 1
		t.fix(i)
	}
}

// fix restores the heap order for the context at i.
func (t *timers) fix(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].wake <= t.heap[i].wake {
			break
		}
		t.swap(i, parent)
		i = parent
	}
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			return
		}
		if right := child + 1; right < len(t.heap) && t.heap[right].wake < t.heap[child].wake {
			child = right
		}
		if t.heap[i].wake <= t.heap[child].wake {
			return
		}
		t.swap(i, child)
		i = child
	}
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].slot, t.heap[j].slot = i+1, j+1
}
