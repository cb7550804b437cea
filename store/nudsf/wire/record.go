package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Tags are the searchable properties of a record or a timer: names with one or
// more distinct values each.
type Tags map[string][]string

// Meta is RecordMeta, TS 29.598 clause 6.1.6.2.3.
type Meta struct {
	TTL               *time.Time `json:"ttl,omitempty"`               // when the record expires
	CallbackReference string     `json:"callbackReference,omitempty"` // told of the expiry
	Tags              Tags       `json:"tags,omitempty"`
}

// A Block is one opaque part of a record.
type Block struct {
	ID          string // Content-Id
	ContentType string // empty: application/octet-stream
	Encoding    string // Content-Transfer-Encoding, kept and given back, never decoded; empty: binary
	Content     []byte
}

// A Record is meta and blocks, TS 29.598 clause 6.1.6.2.2.
type Record struct {
	Meta   Meta
	Blocks []Block
}

// Limits on what a request may hold. Bytes and counts; 0 is not "no limit".
type Limits struct {
	Blocks     int // of a record
	BlockBytes int // of one block
	Bytes      int // of a record, all in all
	Tags       int // name and value pairs of a record or a timer
	TagBytes   int // a tag's name and one value of it
	ID         int // of a record, a block, a subscription, a timer
	Depth      int // of a filter: conditions within conditions
	Units      int // of a filter: comparisons, conditions and identities in all
	Patches    int // items of one patch
}

// DefaultLimits are within what every engine of the store takes.
func DefaultLimits() Limits {
	return Limits{
		Blocks: 64, BlockBytes: 512 << 10, Bytes: 768 << 10, Tags: 60, TagBytes: 500, ID: 512,
		Depth: 8, Units: 128, Patches: 64,
	}
}

// ParseMeta reads RecordMeta. The error is a *Problem.
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

// Check says whether the tags are within the limits: at least one value each,
// no value twice, no control characters in names, no NUL. The error is a *Problem.
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

// CheckID says whether an identity of a record, block, subscription or timer may be
// used. The error is a *Problem.
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

// decode reads exactly one JSON value. Members that are not known are left out, as
// later releases add some (TS 29.500 clause 6.6.2).
func decode(data []byte, into any) error {
	return decodeWith(json.NewDecoder(bytes.NewReader(data)), into)
}

// decodeStrict refuses members that are not known.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return decodeWith(d, into)
}

func decodeWith(d *json.Decoder, into any) error {
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("something follows the JSON value at byte %d", d.InputOffset())
	}
	return nil
}

// jsonBlock is a block in a search result that holds records; the content is base64.
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

// MarshalJSON gives a record as search results hold it (retrieve-records).
func (r Record) MarshalJSON() ([]byte, error) {
	j := jsonRecord{Meta: r.Meta}
	for _, b := range r.Blocks {
		j.Blocks = append(j.Blocks, jsonBlock(b))
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads a record out of a search result.
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
	References      []string          `json:"references,omitempty"` // URIs of records; none with count-indicator
	MatchingRecords map[string]Record `json:"matchingRecords,omitempty"`
}

// A RecordIDList names records: what a bulk deletion has deleted.
type RecordIDList struct {
	RecordIDList []string `json:"recordIdList"`
}
