package nudsf

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// An entry is a record as the engine keeps it. The engine's tags hold its tags, the engine's value
// holds its blocks one after the other, and the header holds the rest.
type entry struct {
	wire.Record
	header  header
	version uint64
}

// A header is kept as JSON in the engine's meta.
type header struct {
	TTL      *time.Time    `json:"ttl,omitempty"`
	Callback string        `json:"callback,omitempty"`
	Modified int64         `json:"modified"` // Unix seconds
	Blocks   []blockHeader `json:"blocks,omitempty"`
}

type blockHeader struct {
	ID       string `json:"id"`
	Type     string `json:"type,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	Size     int    `json:"size"`
	Tag      string `json:"tag"`      // entity tag, quoted
	Modified int64  `json:"modified"` // 0 until op stores the block
}

// load decodes a stored record. The blocks point into r.
func load(r *store.Record) (*entry, error) {
	e := &entry{version: r.Version}
	if err := json.Unmarshal(r.Meta, &e.header); err != nil {
		return nil, fmt.Errorf("record %s in %s: header: %w", r.Key.Name, r.Key.Space, err)
	}
	e.Meta = wire.Meta{TTL: e.header.TTL, CallbackReference: e.header.Callback, Tags: rest.Tags(r)}
	at := 0
	for _, b := range e.header.Blocks {
		if b.Size < 0 || b.Size > len(r.Value)-at {
			return nil, fmt.Errorf("record %s in %s: block %s is cut short", r.Key.Name, r.Key.Space, b.ID)
		}
		e.Blocks = append(e.Blocks, wire.Block{ID: b.ID, ContentType: b.Type, Encoding: b.Encoding, Content: r.Value[at : at+b.Size]})
		at += b.Size
	}
	return e, nil
}

// newEntry returns an entry for a record that a consumer sent.
func newEntry(r wire.Record) *entry {
	e := &entry{Record: r}
	for range r.Blocks {
		e.header.Blocks = append(e.header.Blocks, blockHeader{Tag: newTag()})
	}
	return e
}

// newTag returns an entity tag for a block, which has no version of its own.
func newTag() string { return `"` + rand.Text() + `"` }

// changedAt returns the time of a change: now, or a second after the last change if the clock was set
// back since. Otherwise If-Modified-Since would hide the change from a client that read the last state.
func changedAt(now, last time.Time) time.Time {
	if now.Unix() < last.Unix() {
		return last.Add(time.Second)
	}
	return now
}

// op returns the Op that stores the entry, modified at a time from changedAt.
func (e *entry) op(id string, modified time.Time) (store.Op, error) {
	h := &e.header
	h.TTL, h.Callback, h.Modified = e.Meta.TTL, e.Meta.CallbackReference, modified.Unix()
	for i, b := range e.Blocks {
		h.Blocks[i].ID, h.Blocks[i].Type, h.Blocks[i].Encoding, h.Blocks[i].Size = b.ID, b.ContentType, b.Encoding, len(b.Content)
		if h.Blocks[i].Modified == 0 {
			h.Blocks[i].Modified = h.Modified
		}
	}
	meta, err := json.Marshal(h)
	if err != nil {
		return store.Op{}, fmt.Errorf("write header of record %s: %w", id, err)
	}
	op := store.Op{Action: store.Put, Name: kindRecord + id, Meta: meta, Tags: rest.Index(e.Meta.Tags)}
	if len(e.Blocks) == 1 {
		op.Value = e.Blocks[0].Content
	} else if len(e.Blocks) > 1 {
		op.Value = make([]byte, 0, contentBytes(e.Blocks))
		for _, b := range e.Blocks {
			op.Value = append(op.Value, b.Content...)
		}
	}
	if e.Meta.TTL != nil {
		op.Tags = append(op.Tags, due.At(*e.Meta.TTL))
	}
	return op, nil
}

// etag returns the record's entity tag; "" if there is no record.
func (e *entry) etag() string {
	if e == nil {
		return ""
	}
	return wire.ETag(e.version)
}

// modified returns the time of the last change; zero if there is no record.
func (e *entry) modified() time.Time {
	if e == nil {
		return time.Time{}
	}
	return time.Unix(e.header.Modified, 0)
}

// expired reports whether the record has expired. Consumers do not see an expired record.
func (e *entry) expired(now time.Time) bool { return e.Meta.TTL != nil && !now.Before(*e.Meta.TTL) }

// block returns the index of a block, or -1.
func (e *entry) block(id string) int {
	for i := range e.Blocks {
		if e.Blocks[i].ID == id {
			return i
		}
	}
	return -1
}

// blockTag returns a block's entity tag; "" if i is -1.
func (e *entry) blockTag(i int) string {
	if i < 0 {
		return ""
	}
	return e.header.Blocks[i].Tag
}
