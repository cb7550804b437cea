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
	for t, err := range a.timers(ctx, hold, space, c) {
		if err != nil {
			return wire.TimerIDList{}, err
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

// timers yields the selected timers of a storage.
func (a *API) timers(ctx context.Context, hold *rest.Hold, space string, c *choice) func(yield func(*timer, error) bool) {
	return func(yield func(*timer, error) bool) {
		for r, err := range rest.Records(ctx, a.Engine, hold, space, kindTimer, &c.filter) {
			if err != nil {
				yield(nil, fmt.Errorf("search %s: %w", space, err))
				return
			}
			t, err := load(r)
			if err == nil && !a.passes(c, t) {
				continue
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
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
	deleted := rest.NewIDs(hold)
	err := a.deleteEach(ctx, hold, space, c, deleted)
	incomplete, err := rest.Ended(deleted, rest.Cut(ctx, err))
	return wire.TimerIDList{TimerIDs: deleted.List, Incomplete: incomplete}, err
}

// deleteEach deletes the selected timers, several per write where possible, and adds their IDs to
// deleted. It checks a timer again if it changes meanwhile.
func (a *API) deleteEach(ctx context.Context, hold *rest.Hold, space string, c *choice, deleted *rest.IDs) error {
	var ids []string
	var ops []store.Op
	flush := func() error {
		done, err := a.deleteBatch(ctx, space, c, ids, ops)
		deleted.Add(done...)
		ids, ops = ids[:0], ops[:0]
		return err
	}
	for t, err := range a.timers(ctx, hold, space, c) {
		if err != nil {
			return err
		}
		if full := deleted.Reserve(t.id); full != nil {
			if err := flush(); err != nil {
				return err
			}
			return full
		}
		ids = append(ids, t.id)
		ops = append(ops, store.Op{Action: store.Delete, Name: kindTimer + t.id, If: store.Condition{Version: t.version}})
		if len(ops) == store.MaxOps {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// errKept means that the timer is no longer selected.
var errKept = errors.New("timer: not to be deleted")

func (a *API) deleteBatch(ctx context.Context, space string, c *choice, ids []string, ops []store.Op) ([]string, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	err := a.Engine.Write(ctx, space, ops...)
	if !store.Apart(err) {
		if err != nil {
			ids = nil
		}
		return ids, err
	}
	var deleted []string
	for _, id := range ids {
		_, err := a.change(ctx, place{space, id}, func(before *timer) (*timer, error) {
			if !a.passes(c, before) {
				return nil, errKept
			}
			return nil, nil
		})
		switch {
		case err == nil:
			deleted = append(deleted, id)
		case !errors.Is(err, errKept):
			return deleted, err
		}
	}
	return deleted, nil
}
