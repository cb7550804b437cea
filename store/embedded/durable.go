package embedded

import (
	"context"
	"sync"
	"sync/atomic"
)

// durable holds the revision up to which all writes are synced, and wakes the goroutines
// that wait for a later one.
type durable struct {
	at    atomic.Uint64
	mu    sync.Mutex
	asked bool          // a goroutine waits on moved
	moved chan struct{} // closed when at moves, or when it can no longer move
	err   error         // why at can no longer move
}

func (d *durable) init() { d.moved = make(chan struct{}) }

func (d *durable) reach(revision uint64) {
	d.at.Store(revision)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked && d.err == nil {
		close(d.moved)
		d.moved = make(chan struct{})
		d.asked = false
	}
}

func (d *durable) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
		close(d.moved)
	}
}

// wait returns once all writes up to revision are synced.
func (d *durable) wait(ctx context.Context, revision uint64) error {
	for d.at.Load() < revision {
		d.mu.Lock()
		err, moved := d.err, d.moved
		d.asked = true
		d.mu.Unlock()
		if d.at.Load() >= revision {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
