package message

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
)

// state adds the access of an HTTP request to a store. It knows the APIs of Vitrine's own
// store and of Nudsf_DataRepository (TS 29.598).
func (s *slot) state(method, target []byte) {
	path, query, _ := bytes.Cut(target, []byte("?"))
	var storage, key []byte
	if string(method) == "POST" && string(path) == "/kv" {
		s.batched, s.space = true, spaceOf(query)
		return
	}
	if rest, ok := bytes.CutPrefix(path, []byte("/kv/")); ok {
		key, s.space = rest, spaceOf(query)
	} else if rest, ok := bytes.CutPrefix(path, []byte("/nudsf-dr/")); ok {
		if i := bytes.Index(rest, []byte("/records/")); i >= 0 {
			_, storage, _ = bytes.Cut(rest[:i+1], []byte("/")) // REALM/STORAGE/, behind the version
			key = rest[i+len("/records/"):]
			if i := bytes.IndexByte(key, '/'); i >= 0 { // its meta data or a block of it
				key = key[:i]
			}
		}
	}
	if len(key) == 0 {
		return
	}
	write := true
	switch string(method) {
	case "GET", "HEAD", "OPTIONS":
		write = false
	}
	from := len(s.text)
	s.text = appendDecoded(s.text, storage)
	behind := len(s.text) - from
	s.text = appendDecoded(s.text, key)
	a := s.access(from, write)
	if a == nil {
		return
	}
	for len(query) > 0 {
		var name, value []byte
		name, value, query = parameter(query)
		if string(name) == "ttl" {
			a.Lifetime = lifetime(value)
		}
	}
	s.scan(a.Key.Text[min(behind, len(a.Key.Text)):]) // the storage is the same for all users
}

// spaceOf returns a hash of the namespace that a query of Vitrine's store names, or 0 if it names none.
func spaceOf(query []byte) uint64 {
	for len(query) > 0 {
		var name, value []byte
		if name, value, query = parameter(query); string(name) == "space" && len(value) > 0 {
			return hashOf(value)
		}
	}
	return 0
}

// access adds an access. Its key is the text appended since from, in the scope of the store's name: a
// store may have several addresses, and several stores may share one. access returns nil if the key is
// empty or the message has too many identifiers or accesses.
func (s *slot) access(from int, write bool) *Access {
	id := s.identify(Key, xxhash.Sum64String(s.m.To)+s.space, from)
	if id == nil || len(s.m.Access) == maxIdentifiers {
		return nil
	}
	s.m.Access = append(s.m.Access, Access{Store: s.m.To, Key: *id, Write: write})
	return &s.m.Access[len(s.m.Access)-1]
}

// batch adds the accesses of a batch of Vitrine's store: POST /kv with a list of changes
// (docs/store.md). A body that was cut off after maxScan bytes counts up to there.
func (s *slot) batch(body []byte) {
	d := json.NewDecoder(bytes.NewReader(body))
	for t, err := d.Token(); t != json.Delim('['); t, err = d.Token() { // before the changes
		if err != nil {
			return
		}
	}
	for d.More() {
		var c change
		err := c.read(d)
		if c.key != "" {
			from := len(s.text)
			s.text = append(s.text, c.key...)
			if a := s.access(from, c.op != "check"); a != nil {
				a.Bytes, a.Lifetime = base64.StdEncoding.DecodedLen(len(c.value)), lifetime([]byte(c.ttl))
			}
		}
		if err != nil {
			return
		}
	}
}

// A change is an element of a batch.
type change struct{ op, key, value, ttl string }

// read reads a change. After an error, such as the end of a body that was cut off, the
// fields before it are set.
func (c *change) read(d *json.Decoder) error {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, errChange)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		value, err := d.Token()
		if err != nil {
			return err
		}
		text, _ := value.(string)
		switch name {
		case "op":
			c.op = text
		case "key":
			c.key = text
		case "value":
			c.value = text
		case "ttl":
			c.ttl = text
		}
	}
	_, err := d.Token()
	return err
}

var errChange = errors.New("message: a change of a batch is no object")

// lifetime reads a ttl of Vitrine's store: seconds, or a duration such as 90s. It returns 0
// for a text that is neither, and for a negative duration, which the store refuses.
func lifetime(text []byte) time.Duration {
	if seconds, ok := parseDigits(text); ok {
		return time.Duration(min(seconds, math.MaxInt32)) * time.Second
	}
	d, _ := time.ParseDuration(string(text)) // 0 with an error; the string allocates
	return max(d, 0)
}
