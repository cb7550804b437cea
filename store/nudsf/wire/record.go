package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Tags are the searchable properties of a record or timer: names with one or more distinct values
// each.
type Tags map[string][]string

// Meta is RecordMeta, TS 29.598 clause 6.1.6.2.3.
type Meta struct {
	TTL               *time.Time `json:"ttl,omitempty"`               // when the record expires
	CallbackReference string     `json:"callbackReference,omitempty"` // notified of the expiry
	Tags              Tags       `json:"tags,omitempty"`
}

// A Block is an opaque part of a record.
type Block struct {
	ID          string // Content-Id
	ContentType string // empty: application/octet-stream
	Encoding    string // Content-Transfer-Encoding: stored and returned, never decoded; empty: binary
	Content     []byte
}

// A Record is meta and blocks, TS 29.598 clause 6.1.6.2.2.
type Record struct {
	Meta   Meta
	Blocks []Block
}

// Limits bounds what a request may hold, in bytes and counts. Zero does not mean "no limit".
type Limits struct {
	Blocks     int // blocks of a record
	BlockBytes int // bytes of one block
	Bytes      int // bytes of all blocks of a record
	Tags       int // name and value pairs of a record or timer
	TagBytes   int // bytes of a tag's name and one value
	ID         int // bytes of the ID of a record, block, subscription or timer
	Depth      int // nesting of conditions in a filter
	Units      int // comparisons, conditions and IDs in a filter
	Patches    int // items of a patch
}

// DefaultLimits are within the limits of every engine.
func DefaultLimits() Limits {
	return Limits{
		Blocks: 64, BlockBytes: 512 << 10, Bytes: 768 << 10, Tags: 60, TagBytes: 500, ID: 512,
		Depth: 8, Units: 128, Patches: 64,
	}
}

// ParseMeta parses RecordMeta. The error is a *Problem.
func ParseMeta(data []byte, l Limits) (Meta, error) {
	var m Meta
	if len(bytes.TrimSpace(data)) == 0 {
		return m, nil // "mandatory but can be empty"
	}
	if err := decode(data, &m); err != nil {
		return Meta{}, BadParam(CauseMessageFormat, "meta", "%v", err)
	}
	if m.TTL != nil && m.TTL.IsZero() {
		return Meta{}, BadParam(CauseOptionalIncorrect, "/ttl", "is not a date and time of RFC 3339")
	}
	if err := m.Tags.Check("/tags", l); err != nil {
		return Meta{}, err
	}
	return m, nil
}

// Check returns an error unless the tags are within the limits: each has at least one value, no
// value twice, no control characters in names, no NUL. The error is a *Problem.
func (t Tags) Check(at string, l Limits) error {
	pairs := 0
	for name, values := range t {
		here := at + "/" + pointerToken(name)
		if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, isControl) {
			return BadParam(CauseOptionalIncorrect, at, "the tag name %q is empty or holds control characters", name)
		}
		if len(values) == 0 {
			return BadParam(CauseOptionalIncorrect, here, "needs at least one value")
		}
		if pairs += len(values); pairs > l.Tags {
			return BadParam(CauseOptionalIncorrect, at, "more than %d tag values", l.Tags)
		}
		for i, v := range values {
			if len(name)+len(v) > l.TagBytes {
				return BadParam(CauseOptionalIncorrect, here, "name and value are over %d bytes", l.TagBytes)
			}
			if strings.IndexByte(v, 0) >= 0 {
				return BadParam(CauseOptionalIncorrect, here, "a value holds a NUL")
			}
			for _, before := range values[:i] {
				if v == before {
					return BadParam(CauseOptionalIncorrect, here, "the value %q is there twice", v)
				}
			}
		}
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// pointerToken escapes a member name for a JSON pointer (RFC 6901).
func pointerToken(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// CheckID returns an error unless the ID of a record, block, subscription or timer is valid. The
// error is a *Problem.
func CheckID(what, id string, l Limits) error {
	switch {
	case id == "":
		return BadParam(CauseIEMissing, what, "is empty")
	case len(id) > l.ID:
		return BadParam(CauseIEIncorrect, what, "is over %d bytes", l.ID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, isControl):
		return BadParam(CauseIEIncorrect, what, "holds control characters or is not UTF-8")
	}
	return nil
}

// decode reads exactly one JSON value. It ignores unknown members, because later releases add some
// (TS 29.500 clause 6.6.2).
func decode(data []byte, into any) error {
	return decodeWith(json.NewDecoder(bytes.NewReader(data)), into)
}

// decodeStrict is like decode but rejects unknown members.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return decodeWith(d, into)
}

func decodeWith(d *json.Decoder, into any) error {
	if err := d.Decode(into); err != nil {
		return err
	}
	end := d.InputOffset()
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // More is false at a bracket that nothing opened
		return fmt.Errorf("something follows the JSON value at byte %d", end)
	}
	return nil
}

// jsonBlock is a block in a search result with records. The content is base64.
type jsonBlock struct {
	ID          string `json:"Content-Id"`
	ContentType string `json:"Content-Type,omitempty"`
	Encoding    string `json:"Content-Transfer-Encoding,omitempty"`
	Content     []byte `json:"content"`
}

type jsonRecord struct {
	Meta   Meta        `json:"meta"`
	Blocks []jsonBlock `json:"blocks,omitempty"`
}

// MarshalJSON encodes a record in the form of search results (retrieve-records).
func (r Record) MarshalJSON() ([]byte, error) {
	j := jsonRecord{Meta: r.Meta}
	for _, b := range r.Blocks {
		j.Blocks = append(j.Blocks, jsonBlock(b))
	}
	return json.Marshal(j)
}

// UnmarshalJSON decodes a record of a search result.
func (r *Record) UnmarshalJSON(data []byte) error {
	var j jsonRecord
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*r = Record{Meta: j.Meta}
	for _, b := range j.Blocks {
		r.Blocks = append(r.Blocks, Block(b))
	}
	return nil
}

// A SearchResult is RecordSearchResult, TS 29.598 clause 6.1.6.2.6.
type SearchResult struct {
	Count           int               `json:"count"`
	References      []string          `json:"references,omitempty"` // URIs of records; empty with count-indicator
	MatchingRecords map[string]Record `json:"matchingRecords,omitempty"`
}

// A RecordIDList lists the IDs of the records that a bulk deletion deleted.
type RecordIDList struct {
	RecordIDList []string `json:"recordIdList"`
	Incomplete   bool     `json:"incomplete,omitempty"` // more records may match; not in TS 29.598, whose consumers ignore it (TS 29.500 clause 6.6.2)
}
