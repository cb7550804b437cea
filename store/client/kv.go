package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"

	"vitrine/store/nudsf/wire"
)

// KV is the plain API for one space.
type KV struct {
	client *Client
	space  string
}

// KV returns the plain API for a space; "" is the default space.
func (c *Client) KV(space string) *KV { return &KV{c, space} }

// A Value is the value of a key.
type Value struct {
	Data        []byte
	ContentType string
	ETag        string
	Expires     time.Time // zero: never
}

// An Entry is a key in a list or a watch.
type Entry struct {
	Key         string     `json:"key"`
	ETag        string     `json:"etag,omitempty"`
	Expires     *time.Time `json:"expires,omitempty"`
	ContentType string     `json:"content_type,omitempty"`
	Value       []byte     `json:"value,omitempty"`
}

func (k *KV) path(key string, query url.Values) string {
	path := "/kv"
	if key != "" {
		path += "/" + url.PathEscape(key)
	}
	if k.space != "" {
		query.Set("space", k.space)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// Get reads a value; see NotFound and ErrNotModified.
func (k *KV) Get(ctx context.Context, key string, conditions Conditions) (*Value, error) {
	r, err := k.client.do(ctx, request{method: "GET", path: k.path(key, url.Values{}), conditions: conditions})
	if err != nil {
		return nil, err
	}
	v := &Value{Data: r.body, ContentType: r.header.Get("Content-Type"), ETag: r.etag()}
	if text := r.header.Get("Expires"); text != "" {
		if v.Expires, err = time.Parse(time.RFC1123, text); err != nil {
			return nil, fmt.Errorf("store: header Expires: %w", err)
		}
	}
	return v, nil
}

// Put creates or replaces a value and returns its entity tag. ttl 0 means forever.
func (k *KV) Put(ctx context.Context, key string, data []byte, contentType string, ttl time.Duration, conditions Conditions) (etag string, err error) {
	query := url.Values{}
	if ttl > 0 {
		query.Set("ttl", ttl.String())
	}
	r, err := k.client.do(ctx, request{method: "PUT", path: k.path(key, query), contentType: contentType, body: data, conditions: conditions})
	if err != nil {
		return "", err
	}
	return r.etag(), nil
}

// Delete removes a value; see NotFound.
func (k *KV) Delete(ctx context.Context, key string, conditions Conditions) error {
	_, err := k.client.do(ctx, request{method: "DELETE", path: k.path(key, url.Values{}), conditions: conditions})
	return err
}

// A Change is one operation of a batch.
type Change struct {
	Op          string `json:"op"` // put, delete, check
	Key         string `json:"key"`
	Value       []byte `json:"value,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	TTL         string `json:"ttl,omitempty"` // seconds, or a duration like 90s
	IfMatch     string `json:"if_match,omitempty"`
	IfNoneMatch string `json:"if_none_match,omitempty"`
}

// A Result is the result of one operation of a batch.
type Result struct {
	ETag    string `json:"etag,omitempty"`
	Existed bool   `json:"existed"`
}

// Batch applies all changes or none. Unmet reports an error because a condition does not hold.
func (k *KV) Batch(ctx context.Context, changes ...Change) ([]Result, error) {
	body, err := marshal(map[string]any{"ops": changes})
	if err != nil {
		return nil, err
	}
	r, err := k.client.do(ctx, request{method: "POST", path: k.path("", url.Values{}), contentType: wire.TypeJSON, body: body})
	if err != nil {
		return nil, err
	}
	answer, err := parse[struct {
		Results []Result `json:"results"`
	}](r)
	return answer.Results, err
}

// A Page is a part of a list.
type Page struct {
	Records []Entry `json:"records"`
	Next    string  `json:"next"` // where the next page begins; "": there is none
}

// Page reads one page of the keys that begin with prefix, in order, from the first key
// beyond after. A page has limit keys or fewer. limit 0 means the store's default.
func (k *KV) Page(ctx context.Context, prefix, after string, limit int, values bool) (Page, error) {
	query := url.Values{"prefix": {prefix}, "values": {strconv.FormatBool(values)}}
	if after != "" {
		query.Set("after", after)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	r, err := k.client.do(ctx, request{method: "GET", path: k.path("", query)})
	if err != nil {
		return Page{}, err
	}
	return parse[Page](r)
}

// List yields the keys that begin with prefix, in order. It reads page by page.
func (k *KV) List(ctx context.Context, prefix string, values bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for after := ""; ; {
			page, err := k.Page(ctx, prefix, after, 0, values)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page.Records {
				if !yield(e, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			after = page.Next
		}
	}
}

// An Event is one event of a watch.
type Event struct {
	Name    string // started, written, deleted, expired
	Version uint64 // a watch that starts from this version misses no later event
	Entry   Entry
}

// maxEvent bounds the text of one event, in bytes: a value of 1 MiB in base64, and its key.
const maxEvent = 2 << 20

// Watch yields the changes after version from (0: now) of keys that begin with prefix. It
// ends with ctx's error, or with an *Error of status 410 if the store no longer keeps those
// changes. After a 410, watch from 0, and call List once the event "started" has come.
func (k *KV) Watch(ctx context.Context, prefix string, from uint64, values bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		query := url.Values{"prefix": {prefix}, "values": {strconv.FormatBool(values)}}
		if from > 0 {
			query.Set("from", strconv.FormatUint(from, 10))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		response, err := k.client.open(ctx, request{method: "GET", path: k.path("", query), accept: "text/event-stream"})
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, maxEvent)
		for {
			e, err := readEvent(lines)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// errEnded means that the store ended the watch.
var errEnded = errors.New("store: the watch has ended")

// readEvent reads one server-sent event. It skips comments.
func readEvent(lines *bufio.Scanner) (Event, error) {
	var e Event
	var data string
	for lines.Scan() {
		line := lines.Text()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && e.Name != "":
			return e, e.parse(data)
		case name == "event":
			e.Name = value
		case name == "data":
			data += value
		case name == "id":
			version, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return e, fmt.Errorf("store: event with id %q", value)
			}
			e.Version = version
		}
	}
	if err := lines.Err(); err != nil {
		return e, fmt.Errorf("store: watch: %w", err)
	}
	return e, errEnded
}

func (e *Event) parse(data string) error {
	if e.Name == "end" {
		var p wire.Problem
		if err := json.Unmarshal([]byte(data), &p); err != nil {
			return errEnded
		}
		return &Error{Status: p.Status, Problem: p}
	}
	if data == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(data), &e.Entry); err != nil {
		return fmt.Errorf("store: event %s: %w", e.Name, err)
	}
	return nil
}
