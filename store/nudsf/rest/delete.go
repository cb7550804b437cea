package rest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"vitrine/store"
	"vitrine/store/nudsf/wire"
)

// maxPending bounds the memory of the records that one write deletes, in bytes.
const maxPending = 8 << 20

// ErrKept means that a record is absent, or no longer to be deleted.
var ErrKept = errors.New("rest: not to be deleted")

// A Deletion deletes the records of a space that match a filter, several per write where possible.
type Deletion struct {
	Engine store.Engine
	Hold   *Hold
	Space  string
	Prefix string // of the names of the records
	Filter *wire.Filter

	// Select reports whether to delete a record that matches. It returns what Notify needs, in memory of
	// its own; nil: Notify is not called.
	Select func(r *store.Record) (bool, *wire.Record, error)
	// Notify is called after the deletion of a record that has not changed since Select.
	Notify func(id string, r *wire.Record)
	// Single deletes a record on its own, with all notifications, or returns ErrKept.
	Single func(id string) error

	deleted *IDs
	ids     []string // of the records in the next write
	records []*wire.Record
	ops     []store.Op
	held    int // bytes of records
}

// Run deletes until it reaches a bound, and returns the IDs of the deleted records. incomplete means
// that more records may match.
func (d *Deletion) Run(ctx context.Context) (ids []string, incomplete bool, err error) {
	d.deleted = NewIDs(d.Hold)
	incomplete, err = ended(d.deleted, cut(ctx, d.each(ctx)))
	return d.deleted.List, incomplete, err
}

func (d *Deletion) each(ctx context.Context) error {
	for r, err := range Records(ctx, d.Engine, d.Hold, d.Space, d.Prefix, d.Filter) {
		if err != nil {
			return fmt.Errorf("search %s: %w", d.Space, err)
		}
		selected, record, err := d.Select(r)
		if err != nil {
			return err
		}
		if !selected {
			continue
		}
		full := d.add(r, record)
		if full != nil || len(d.ops) == store.MaxOps || d.held >= maxPending {
			if err := d.flush(ctx); err != nil {
				return err
			}
		}
		if full != nil {
			return full
		}
	}
	return d.flush(ctx)
}

// add adds a record to the next write. It returns an error if there is no room for the record.
func (d *Deletion) add(r *store.Record, record *wire.Record) error {
	id := strings.TrimPrefix(r.Key.Name, d.Prefix)
	if err := d.deleted.Reserve(id); err != nil {
		return err
	}
	if record != nil {
		if err := d.Hold.Take(r.Held()); err != nil {
			return err
		}
		d.held += r.Held()
	}
	d.ids, d.records = append(d.ids, id), append(d.records, record)
	d.ops = append(d.ops, store.Op{Action: store.Delete, Name: r.Key.Name, If: store.Condition{Version: r.Version}})
	return nil
}

// flush deletes the records that wait. If one of them has changed, or the write is too large, it deletes
// them one by one.
func (d *Deletion) flush(ctx context.Context) error {
	if len(d.ops) == 0 {
		return nil
	}
	err := d.Engine.Write(ctx, d.Space, d.ops...)
	if err != nil && !store.Apart(err) {
		return err
	}
	for i, id := range d.ids {
		if err != nil {
			single := d.Single(id)
			if errors.Is(single, ErrKept) {
				continue
			}
			if single != nil {
				return single
			}
		} else if d.records[i] != nil {
			d.Notify(id, d.records[i])
		}
		d.deleted.Add(id)
	}
	d.Hold.Give(d.held)
	d.ids, d.records, d.ops, d.held = nil, nil, nil, 0
	return nil
}
