package flex

import (
	"context"
	"errors"
	"fmt"

	"vitrine/flex/decide"
)

// endLeases ends the measurement of a type when one of its instances has died. During a lease no replacement
// starts, and a director keeps the dead instance until its health checks fail. endLeases cancels this
// orchestrator's own measurement. It releases the lease of another one, which then cannot be renewed and ends.
func (o *Orchestrator) endLeases(ctx context.Context) {
	for _, d := range o.died {
		if o.isMeasured(d.Type) {
			o.measuring.cancel(errors.New("an instance of the type died: " + d.Reason))
		} else if t := o.types[d.Type]; t != nil && t.leased {
			t.died = d.Reason
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	for i, d := range o.Directors {
		for _, l := range o.directors[i].leases {
			t := o.types[l.Type]
			if t == nil || t.died == "" {
				continue
			}
			at := o.File.Directors[i].Control
			if _, err := d.Release(ctx, l.Type, l.Token); err != nil {
				o.Log.Warn("cannot release a lease at a director; retrying", "director", at, "type", l.Type, "error", err)
				continue
			}
			o.events.add(Event{Kind: EventMeasured, Type: l.Type, Cause: decide.CauseFailed, Reason: fmt.Sprintf("the lease of %s ends at director %s, because an instance of the type died: %s", l.Holder, at, t.died)})
		}
	}
}
