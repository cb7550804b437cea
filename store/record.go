package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
)

// Engines store a record as: format (1 byte), expiry (8 bytes, big endian, Unix milliseconds, 0 for
// never), tags (count, then name and value of each), meta, value. Count and lengths are uvarints;
// the value has no length and takes the rest. Each engine stores the version in its own way.
const recordFormat = 1

// Scratch returns the record's own buffer, emptied. An engine appends the encoded record to it and
// hands it back with Keep.
func (r *Record) Scratch() []byte { return r.buffer[:0] }

// Keep stores the buffer for the next Scratch.
func (r *Record) Keep(b []byte) { r.buffer = b }

// EncodedSize returns an upper bound of the length of AppendRecord's result, in bytes.
func EncodedSize(o *Op) int {
	n := 1 + 8 + (2+2*len(o.Tags))*binary.MaxVarintLen32 + len(o.Meta) + len(o.Value)
	for _, t := range o.Tags {
		n += len(t.Name) + len(t.Value)
	}
	return n
}

// tagBytes is the memory of a Tag besides its text: two string headers.
const tagBytes = 32

// Held returns about how many bytes of memory a decoded record takes: the encoded record, in which
// Meta and Value lie, and the tags.
func (r *Record) Held() int {
	n := len(r.Key.Space) + len(r.Key.Name) + EncodedSize(&Op{Tags: r.Tags, Meta: r.Meta, Value: r.Value})
	for _, t := range r.Tags {
		n += tagBytes + len(t.Name) + len(t.Value)
	}
	return n
}

// AppendRecord appends the encoded record that a Put stores.
func AppendRecord(b []byte, o *Op) []byte {
	b = append(b, recordFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(Milliseconds(o.Expires)))
	b = binary.AppendUvarint(b, uint64(len(o.Tags)))
	for _, t := range o.Tags {
		b = appendText(b, t.Name)
		b = appendText(b, t.Value)
	}
	b = binary.AppendUvarint(b, uint64(len(o.Meta)))
	b = append(b, o.Meta...)
	return append(b, o.Value...)
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Milliseconds returns an expiry in Unix milliseconds, rounded up; 0 for never.
func Milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

// AtMilliseconds is the inverse of Milliseconds.
func AtMilliseconds(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Decode reads an encoded record. Value and Meta then point into b. Decode leaves Key and Version
// unchanged.
func (r *Record) Decode(b []byte) error {
	if len(b) < 10 || b[0] != recordFormat {
		return r.malformed(b)
	}
	r.Expires = AtMilliseconds(int64(binary.BigEndian.Uint64(b[1:])))
	at := b[9:]
	count, at, ok := uvarint(at)
	if !ok || count > MaxTags {
		return r.malformed(b)
	}
	r.Tags = slices.Grow(r.Tags[:0], int(count))
	for range count {
		var name, value []byte
		if name, at, ok = text(at); !ok {
			return r.malformed(b)
		}
		if value, at, ok = text(at); !ok {
			return r.malformed(b)
		}
		r.Tags = append(r.Tags, Tag{Name: string(name), Value: string(value)})
	}
	if r.Meta, at, ok = text(at); !ok {
		return r.malformed(b)
	}
	r.Value = at
	return nil
}

func (r *Record) malformed(b []byte) error {
	return fmt.Errorf("store: record %s in %s is not in a format this version reads (%d bytes): was it written by a newer one?", r.Key.Name, r.Key.Space, len(b))
}

func uvarint(b []byte) (uint64, []byte, bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > math.MaxInt32 {
		return 0, b, false
	}
	return v, b[n:], true
}

func text(b []byte) (s, rest []byte, ok bool) {
	n, b, ok := uvarint(b)
	if !ok || n > uint64(len(b)) {
		return nil, b, false
	}
	return b[:n:n], b[n:], true
}
