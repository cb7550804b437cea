package substrate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A Roster holds a Substrate's instances by name. The zero value is empty.
type Roster struct {
	Limit int // how many Close removes at a time; 0: all

	mu        sync.Mutex
	closed    bool
	instances map[string]Instance
}

// Admit reserves the name for an instance that is about to be made. It fails after Close
// and when the name is in use.
func (r *Roster) Admit(name string, in Instance) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errors.New("the substrate is closed")
	case r.instances[name] != nil:
		return errors.New("the name is in use")
	case r.instances == nil:
		r.instances = make(map[string]Instance)
	}
	r.instances[name] = in
	return nil
}

// Forget releases the name of a removed instance. It is idempotent: if another instance
// holds the name by now, that instance keeps it.
func (r *Roster) Forget(name string, in Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[name] == in {
		delete(r.instances, name)
	}
}

// All returns the instances in no particular order.
func (r *Roster) All() []Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.instances))
}

// Close admits no more instances and removes all of them; each one must call Forget. A
// failure to remove one instance does not stop the removal of the others.
func (r *Roster) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	all := r.All()
	failures := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(cmp.Or(r.Limit, -1))
	for i, in := range all {
		group.Go(func() error {
			failures[i] = in.Remove(ctx)
			return nil
		})
	}
	_ = group.Wait() // failures holds every error, not only the first
	return errors.Join(failures...)
}
