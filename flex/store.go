package flex

import (
	"context"
	"slices"
	"strings"
	"time"
)

// storeEvery is the time between two queries of the store.
const storeEvery = 5 * time.Second

// A storeWatch is the last answer of the store.
type storeWatch struct {
	asked time.Time
	past  []string // operations that exceed their latency threshold
}

// watchStore adds an alert when operations of the store become too slow, with advice, and an
// event when they recover.
func (o *Orchestrator) watchStore(ctx context.Context, now time.Time) {
	if o.Store == nil || now.Sub(o.store.asked) < storeEvery {
		return
	}
	o.store.asked = now
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	past, err := o.Store(ctx)
	o.note("the store", err)
	if err != nil {
		return
	}
	slices.Sort(past)
	switch {
	case slices.Equal(past, o.store.past):
	case len(past) > 0:
		o.events.add(Event{Kind: EventAlert, Cause: "store", Reason: "the store is past its threshold for " + strings.Join(past, ", ") +
			": too many operations are slow. Add a member to its Redis Cluster or etcd cluster; an embedded store needs more CPU or a faster disk. More instances would make it worse"})
	default:
		o.events.add(Event{Kind: EventBack, Cause: "store", Reason: "the store is within its threshold again"})
	}
	o.store.past = past
}
