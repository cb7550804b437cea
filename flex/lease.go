package flex

import (
	"context"
	"errors"
	"fmt"

	"vitrine/flex/decide"
)

// endLeases ends the measurements of types of which an instance has died. During a lease, the directors keep
// the dead instance while they do not find it away, and no replacement starts. endLeases cancels this
// orchestrator's measurement. It releases the lease of any other one, whose holder ends when it cannot renew it.
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
