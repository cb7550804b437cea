package flex

import (
	"slices"
	"time"

	"vitrine/director/client"
	"vitrine/flex/decide"
)

// away is the Health of an instance that a director sends nothing.
const away = "away"

// succeeds reports whether a transaction at the instance has just succeeded. Then it does not hang: directors in
// panic send to instances that their checks find away.
func (in *instance) succeeds() bool {
	late := in.lately()
	return late.Completed() > late.Failures()
}

// readHealth updates since when all directors have found an instance away; found says that they do now. While one of
// them does not answer, a lost instance stays lost, and the time of another one begins anew: the network may be broken
// for the others only.
func (o *Orchestrator) readHealth(in *instance, at time.Time, found bool) {
	was := in.Lost > 0
	switch {
	case !o.allAnswered():
		if !was {
			in.away = time.Time{}
		}
		return
	case !found:
		in.away, in.Lost = time.Time{}, 0
	case in.away.IsZero():
		in.away = at
	case at.Sub(in.away) >= decide.AwayAfter:
		in.Lost = at.Sub(in.away).Seconds()
	}
	is := in.Lost > 0
	if is == was {
		return
	}
	o.changed = true
	up := func(v *client.Instance) bool { return v != nil && v.Health != away }
	switch {
	case is:
		o.event(in, EventAway, "", "all directors find it away: "+in.views[0].Reason+"; it counts as no capacity")
	case slices.ContainsFunc(in.views, up): // otherwise it has left the directors
		o.event(in, EventBack, "", "a director finds it up again")
	}
}
