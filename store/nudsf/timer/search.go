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

// maxFound bounds the timers of one search or one deletion.
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
	at, err := a.Storages.Of(service, r)
	if err != nil {
		return err
	}
	c, _, err := a.readChoice(r)
	if err != nil {
		return err
	}
	ids, err := rest.Long(w, func() ([]string, error) { return a.found(r.Context(), at.Space(), &c) })
	if err != nil {
		return err
	}
	return sendIDs(w, ids)
}

// found returns the IDs of the selected timers.
func (a *API) found(ctx context.Context, space string, c *choice) (ids []string, err error) {
	for t, err := range a.timers(ctx, space, c) {
		if err != nil {
			return nil, err
		}
		if len(ids) == maxFound {
			return nil, wire.NewProblem(http.StatusForbidden, wire.CauseQueryIncorrect, "more than %d timers: narrow the filter", maxFound)
		}
		ids = append(ids, t.id)
	}
	return ids, nil
}

func sendIDs(w http.ResponseWriter, ids []string) error {
	if len(ids) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return rest.JSON(w, http.StatusOK, wire.TimerIDList{TimerIDs: ids})
}

// timers yields the selected timers of a storage.
func (a *API) timers(ctx context.Context, space string, c *choice) func(yield func(*timer, error) bool) {
	return func(yield func(*timer, error) bool) {
		for r, err := range rest.Records(ctx, a.Engine, space, kindTimer, &c.filter) {
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
	at, err := a.Storages.Of(service, r)
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
	ids, err := rest.Long(w, func() ([]string, error) { return a.deleteChosen(r.Context(), at.Space(), &c) })
	if err != nil {
		return err
	}
	return sendIDs(w, ids)
}

// deleteChosen deletes the selected timers, several per write where possible. It checks a timer
// again if it changes meanwhile.
func (a *API) deleteChosen(ctx context.Context, space string, c *choice) (deleted []string, err error) {
	var ids []string
	var ops []store.Op
	flush := func() error {
		done, err := a.deleteBatch(ctx, space, c, ids, ops)
		deleted = append(deleted, done...)
		ids, ops = nil, nil
		return err
	}
	for t, err := range a.timers(ctx, space, c) {
		if err != nil {
			return deleted, err
		}
		ids = append(ids, t.id)
		ops = append(ops, store.Op{Action: store.Delete, Name: kindTimer + t.id, If: store.Condition{Version: t.version}})
		if len(ops) == store.MaxOps {
			if err := flush(); err != nil {
				return deleted, err
			}
		}
		if len(deleted) >= maxFound {
			break
		}
	}
	return deleted, flush()
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
