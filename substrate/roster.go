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

// A Roster is a Substrate's instances by their names. The zero value has none.
type Roster struct {
	Limit int // how many Close removes at a time; 0: all

	mu        sync.Mutex
	closed    bool
	instances map[string]Instance
}

// Admit takes the name for an instance that is about to be made; after Close, and
// where there is one of the name, that is an error.
func (r *Roster) Admit(name string, in Instance) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errors.New("the substrate is closed")
	case r.instances[name] != nil:
		return errors.New("there is one of that name")
	case r.instances == nil:
		r.instances = make(map[string]Instance)
	}
	r.instances[name] = in
	return nil
}

// Forget gives the name of a removed instance back. Idempotent: one that has the
// name by now keeps it.
func (r *Roster) Forget(name string, in Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[name] == in {
		delete(r.instances, name)
	}
}

// All lists the instances.
func (r *Roster) All() []Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.instances))
}

// Close admits no more, and removes all, which each forget themselves. What
// cannot be removed does not keep the others.
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
	_ = group.Wait() // every failure is kept, not the first alone
	return errors.Join(failures...)
}
