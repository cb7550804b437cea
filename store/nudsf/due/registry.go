package due

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vitrine/store"
)

// registry is the space that lists the spaces with due records.
const registry = "nudsf"

// A service registers a space in use again after renewAfter. A space without due records, which
// no service has registered for forgetAfter, is taken off the registry. The difference is time
// for the write that follows a registration.
const renewAfter, forgetAfter = 5 * time.Minute, 15 * time.Minute

// ErrSpaces means that the limit on storages with due records is reached.
var ErrSpaces = errors.New("due: too many storages have timers, times to live or subscriptions: delete some; a storage without them counts for up to 75 minutes more")

// Register notes durably that a space ("service/realm/storage") has due records. Call it before each
// write of such a record.
func (a *Agenda) Register(ctx context.Context, space string) error {
	now := a.Clock()
	a.mu.Lock()
	p, known := a.spaces[space]
	full := len(a.spaces) >= a.Spaces
	a.mu.Unlock()
	switch {
	case known && now.Sub(p.named).Abs() < renewAfter:
		return nil
	case !known && full:
		return ErrSpaces
	}
	if err := a.Engine.Write(ctx, registry, store.Op{Action: store.Put, Name: space, Meta: []byte(stamp(now))}); err != nil {
		return fmt.Errorf("register storage %s: %w", space, err)
	}
	a.addSpace(space, now)
	a.wakeUp()
	return nil
}

// addSpace adds a space that was registered at a time.
func (a *Agenda) addSpace(space string, named time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.spaces[space]
	p.named = named
	a.spaces[space] = p
}

// forget takes a space off the registry if it has no due records and no service has registered it
// lately, and reports whether it did. The space then does not count against Spaces any more.
func (a *Agenda) forget(ctx context.Context, space string) (gone bool, err error) {
	before := a.Clock().Add(-forgetAfter)
	a.mu.Lock()
	named := a.spaces[space].named
	a.mu.Unlock()
	if named.After(before) {
		return false, nil
	}
	var r store.Record
	err = a.Engine.Get(ctx, store.Key{Space: registry, Name: space}, &r)
	switch at := parse(string(r.Meta)); {
	case errors.Is(err, store.ErrNotFound): // another service has taken it off
	case err != nil:
		return false, err
	case at.After(before):
		a.addSpace(space, at)
		return false, nil
	default:
		if gone, err = a.unregister(ctx, space, r.Version); err != nil || !gone {
			return false, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if gone = !a.spaces[space].named.After(before); gone {
		delete(a.spaces, space)
	}
	return gone, nil
}

// unregister deletes the registration with a version, unless the space has due records. It reports
// whether the registration is gone.
func (a *Agenda) unregister(ctx context.Context, space string, version uint64) (gone bool, err error) {
	inUse := false
	for _, err := range a.Engine.Scan(ctx, store.Query{Space: space, Limit: 1, Match: &store.Match{Tag: tagDue, Op: store.GreaterOrEqual}}) {
		if err != nil {
			return false, err
		}
		inUse = true
	}
	if inUse {
		return false, nil
	}
	err = a.Engine.Write(ctx, registry, store.Op{Action: store.Delete, Name: space, If: store.Condition{Version: version}})
	if _, ok := errors.AsType[*store.Conflict](err); ok { // a service has registered it meanwhile
		return false, nil
	}
	return err == nil, err
}

// load reads the registered spaces.
func (a *Agenda) load(ctx context.Context) error {
	for r, err := range a.Engine.Scan(ctx, store.Query{Space: registry}) {
		if err != nil {
			return fmt.Errorf("read the storages with something due: %w", err)
		}
		a.addSpace(r.Key.Name, parse(string(r.Meta)))
	}
	return nil
}
