package timer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"vitrine/store"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// maxFound bounds the timers of one search.
const maxFound = 100_000

// A choice selects timers: those that match the filter, or only the expired ones among them.
type choice struct {
	filter  wire.Filter
	expired bool
}

func (a *API) readChoice(r *http.Request) (c choice, chosen bool, err error) {
	q := rest.ReadQuery(r)
	filter := q.Filter("filter", a.Limits)
	_, c.expired = q.Text("expired-filter") // of type NullValue, so only its presence counts
	c.filter = wire.All()
	if filter != nil {
		c.filter = *filter
	}
	return c, filter != nil || c.expired, q.Err()
}

// passes reports whether the choice selects a timer. It never selects a timer past its end.
func (a *API) passes(c *choice, t *timer) bool {
	now := a.Clock()
	return t != nil && !t.ended(now) && (!c.expired || !now.Before(t.Expires)) && c.filter.Matches(t.id, t.MetaTags)
}

func (a *API) searchTimers(w http.ResponseWriter, r *http.Request) error {
	space, err := a.Storages.Space(service, r)
	if err != nil {
		return err
	}
	c, _, err := a.readChoice(r)
	if err != nil {
		return err
	}
	ctx, hold, end := a.Begin(r)
	defer end()
	list, err := rest.Long(w, func() (wire.TimerIDList, error) { return a.found(ctx, hold, space, &c) })
	if err != nil {
		return err
	}
	return sendIDs(w, list)
}

// found returns the IDs of the selected timers, or an error if there are too many for an answer.
func (a *API) found(ctx context.Context, hold *rest.Hold, space string, c *choice) (wire.TimerIDList, error) {
	ids := rest.NewIDs(hold)
	for r, err := range rest.Records(ctx, a.Engine, hold, space, kindTimer, &c.filter) {
		if err != nil {
			return wire.TimerIDList{}, fmt.Errorf("search %s: %w", space, err)
		}
		t, err := load(r)
		if err != nil {
			return wire.TimerIDList{}, err
		}
		if !a.passes(c, t) {
			continue
		}
		full := ids.Reserve(t.id)
		if len(ids.List) == maxFound || errors.Is(full, rest.ErrEnough) {
			return wire.TimerIDList{}, wire.NewProblem(http.StatusForbidden, wire.CauseQueryIncorrect,
				"more than %d timers, or their IDs take more than %d MiB: narrow the filter", maxFound, rest.MaxAnswer>>20)
		}
		if full != nil {
			return wire.TimerIDList{}, full
		}
		ids.Add(t.id)
	}
	return wire.TimerIDList{TimerIDs: ids.List}, nil
}

func sendIDs(w http.ResponseWriter, list wire.TimerIDList) error {
	if len(list.TimerIDs) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return rest.JSON(w, http.StatusOK, list)
}

func (a *API) deleteTimers(w http.ResponseWriter, r *http.Request) error {
	space, err := a.Storages.Space(service, r)
	if err != nil {
		return err
	}
	c, chosen, err := a.readChoice(r)
	if err != nil {
		return err
	}
	if !chosen {
		return wire.BadParam(wire.CauseQueryMissing, "filter", "or expired-filter is needed; GTE of the empty tag and value matches everything")
	}
	ctx, hold, end := a.Begin(r)
	defer end()
	list, err := rest.Long(w, func() (wire.TimerIDList, error) { return a.deleteChosen(ctx, hold, space, &c) })
	if err != nil {
		return err
	}
	return sendIDs(w, list)
}

// deleteChosen deletes the selected timers, until it reaches a bound.
func (a *API) deleteChosen(ctx context.Context, hold *rest.Hold, space string, c *choice) (wire.TimerIDList, error) {
	d := rest.Deletion{Engine: a.Engine, Hold: hold, Space: space, Prefix: kindTimer, Filter: &c.filter}
	d.Select = func(r *store.Record) (bool, *wire.Record, error) {
		t, err := load(r)
		return err == nil && a.passes(c, t), nil, err
	}
	d.Single = func(id string) error {
		_, err := a.change(ctx, place{space, id}, func(before *timer) (*timer, error) {
			if !a.passes(c, before) {
				return nil, rest.ErrKept
			}
			return nil, nil
		})
		return err
	}
	ids, incomplete, err := d.Run(ctx)
	return wire.TimerIDList{TimerIDs: ids, Incomplete: incomplete}, err
}
