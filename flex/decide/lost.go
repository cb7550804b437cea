package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// This file handles lost instances: all directors find them away, although their members run. A lost
// instance hangs, or the network between the directors and the host is broken. Only other instances can tell.

// isReached reports whether an Active instance shows that the directors reach the type: a transaction has
// just succeeded, or an instance has stayed up for long since the last one was lost. A new instance counts as
// up until the directors have checked it, so that it is up shows nothing.
func (f *fleet) isReached(now time.Time) bool {
	last := slices.MinFunc(f.lost, byAway)
	return f.served || !f.eldest.IsZero() && now.Sub(f.eldest) >= longEnough && last.Away >= longEnough
}

func byAway(a, b *Instance) int { return cmp.Compare(a.Away, b.Away) }

// miss counts the loss of an instance that became active after the last failure as a failure. So instances
// that are lost one after the other back off, as those that die do.
func (f *fleet) miss(now time.Time) {
	for _, in := range f.lost {
		if in.Since.After(f.mem.Failed) {
			f.mem.Failures++
			f.mem.Failed, f.mem.Died = now, in.Name+" is away at all directors"
		}
	}
}

func bySince(a, b *Instance) int { return a.Since.Compare(b.Since) }

// retire drains the instance that has been lost for longest, and reports whether it did. Its replacement comes
// first, if the limits have room for both. While it may be the network that is broken, retire drains only
// instances on trial, which became active after another one was lost. Otherwise they would fill the limits.
func (d *decision) retire(f *fleet) bool {
	if len(f.lost) == 0 || !f.Known || f.Leased || f.started > 0 || f.serving() > f.states[Active] {
		return false
	}
	first := slices.MaxFunc(f.lost, byAway)
	in, why := first, "they reach others of its type"
	if f.cutOff {
		in, why = slices.MaxFunc(f.lost, bySince), "another one was away before it became active"
		if in == first || d.Now.Sub(in.Since) >= first.Away {
			return false
		}
	}
	if in.Away < longEnough {
		return false
	}
	d.actions = append(d.actions, Action{Kind: Drain, Type: f.Name, Instance: in.Name, Cause: CauseAway,
		Reason: fmt.Sprintf("all directors have found it away for %v, and %s", in.Away.Round(tick), why)})
	return true
}
