package rest

import (
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
