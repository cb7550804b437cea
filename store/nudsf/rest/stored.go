package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"vitrine/store"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/wire"
)

// Put returns the Op that stores a value and its meta, both as JSON. what names the value in
// errors.
func Put(what, name string, value, meta any) (store.Op, error) {
	op := store.Op{Action: store.Put, Name: name}
	var err1, err2 error
	op.Value, err1 = json.Marshal(value)
	op.Meta, err2 = json.Marshal(meta)
	if err := errors.Join(err1, err2); err != nil {
		return store.Op{}, fmt.Errorf("write %s: %w", what, err)
	}
	return op, nil
}

// Load decodes what Put stored. what names the value in errors.
func Load(what string, r *store.Record, value, meta any) error {
	if err := errors.Join(json.Unmarshal(r.Value, value), json.Unmarshal(r.Meta, meta)); err != nil {
		return fmt.Errorf("%s in %s: %w", what, r.Key.Space, err)
	}
	return nil
}

// Read decodes a stored record with load. It returns the zero value if there is no such record. kind
// and id name the record in errors.
func Read[T any](ctx context.Context, engine store.Engine, key store.Key, kind, id string, load func(*store.Record) (T, error)) (T, error) {
	var r store.Record
	var none T
	err := engine.Get(ctx, key, &r)
	if errors.Is(err, store.ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %s %s: %w", kind, id, err)
	}
	return load(&r)
}

// maxAttempts bounds the attempts of a change while others change the same record.
const maxAttempts = 16

// Retry calls attempt again while it returns a *store.Conflict, and at most maxAttempts times.
func Retry(attempt func() error) error {
	for range maxAttempts {
		err := attempt()
		if _, ok := errors.AsType[*store.Conflict](err); !ok {
			return err
		}
	}
	return &store.Conflict{}
}

// Tags returns a record's tags as the consumer set them.
func Tags(r *store.Record) wire.Tags {
	var tags wire.Tags
	for _, t := range r.Tags {
		if due.Is(t) {
			continue
		}
		if tags == nil {
			tags = wire.Tags{}
		}
		tags[t.Name] = append(tags[t.Name], t.Value)
	}
	return tags
}

// Index converts a consumer's tags to engine tags.
func Index(tags wire.Tags) []store.Tag {
	var index []store.Tag
	for name, values := range tags {
		for _, v := range values {
			index = append(index, store.Tag{Name: name, Value: v})
		}
	}
	return index
}
