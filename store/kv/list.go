package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"vitrine/store"
)

// Limits of one list or batch.
const (
	listRecords = 1000
	listBytes   = 4 << 20
	keyBytes    = 256 << 10 // of a list without values: JSON may take six bytes for one of a key
	batchBytes  = 4 << 20
)

// An Entry is a record in a list, an event, or an op of a batch.
type Entry struct {
	Key         string     `json:"key"`
	ETag        string     `json:"etag,omitempty"`
	Expires     *time.Time `json:"expires,omitempty"`
	ContentType string     `json:"content_type,omitempty"`
	Value       []byte     `json:"value,omitempty"` // base64
}

func entry(r *store.Record, values bool) Entry {
	e := Entry{Key: r.Key.Name, ETag: etag(r.Version), ContentType: string(r.Meta)}
	if !r.Expires.IsZero() {
		at := r.Expires.UTC()
		e.Expires = &at
	}
	if values {
		e.Value = r.Value
	}
	return e
}

// A List is the answer to GET /kv.
type List struct {
	Records []Entry `json:"records"`
	Next    string  `json:"next,omitempty"` // after= of the next page
}

// list answers GET of Root: ?prefix= &after= &limit= &values=true.
func (a *API) list(w http.ResponseWriter, r *http.Request, space string) error {
	given := r.URL.Query()
	limit := 100
	if s := given.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > listRecords {
			return badRequest("limit takes 1 to " + strconv.Itoa(listRecords))
		}
		limit = n
	}
	values, err := parseFlag(given.Get("values"))
	if err != nil {
		return err
	}
	q := store.Query{Space: space, Prefix: given.Get("prefix"), After: given.Get("after"), Limit: limit + 1}
	if err := errors.Join(checkText("prefix", q.Prefix), checkText("after", q.After)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), a.config.ListTime, &store.Late{After: a.config.ListTime})
	defer cancel()
	l := List{Records: []Entry{}}
	room := listBytes
	if !values {
		room = keyBytes
	}
	for record, err := range a.config.Engine.Scan(ctx, q) {
		if err != nil && (len(l.Records) == 0 || !isLate(err)) {
			return err
		}
		if err != nil || len(l.Records) == limit || room <= 0 {
			l.Next = l.Records[len(l.Records)-1].Key
			break
		}
		e := entry(record, values)
		if values {
			e.Value = append([]byte(nil), e.Value...)
		}
		room -= len(e.Key) + len(e.Value) + len(e.ContentType)
		l.Records = append(l.Records, e)
	}
	return answer(w, http.StatusOK, l)
}

func isLate(err error) bool {
	var late *store.Late
	return errors.As(err, &late)
}

func parseFlag(s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, badRequest("a flag takes true or false")
	}
	return v, nil
}

func answer(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
	return nil
}

// A Batch is the body of POST /kv. It is atomic if the engine promises that.
type Batch struct {
	Ops batchOps `json:"ops"`
}

// batchOps decodes ops one by one, and at most store.MaxOps. The smallest ops take 40 times the memory
// of their text, so a whole body of them must not be decoded.
type batchOps []BatchOp

// UnmarshalJSON implements json.Unmarshaler.
func (o *batchOps) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return errors.New("ops takes an array")
	}
	*o = nil
	for d.More() {
		if len(*o) == store.MaxOps {
			return &store.TooLarge{What: "ops", Size: store.MaxOps + 1, Limit: store.MaxOps}
		}
		var op BatchOp
		if err := d.Decode(&op); err != nil {
			return err
		}
		*o = append(*o, op)
	}
	return nil
}

// A BatchOp is one change of a Batch.
type BatchOp struct {
	Op          string `json:"op"` // put, delete, check
	Key         string `json:"key"`
	Value       []byte `json:"value,omitempty"` // base64
	ContentType string `json:"content_type,omitempty"`
	TTL         string `json:"ttl,omitempty"`
	IfMatch     string `json:"if_match,omitempty"`      // * or an ETag
	IfNoneMatch string `json:"if_none_match,omitempty"` // *
}

// BatchResults is the answer to a successful Batch.
type BatchResults struct {
	Results []BatchResult `json:"results"`
}

// A BatchResult is the result of the op at the same index.
type BatchResult struct {
	ETag    string `json:"etag,omitempty"`
	Existed bool   `json:"existed"`
}

// batch answers POST of Root.
func (a *API) batch(w http.ResponseWriter, r *http.Request, space string) error {
	body, err := a.read(w, r, batchBytes)
	if err != nil {
		return err
	}
	defer bodies.Put(body)
	if !utf8.Valid(*body) { // else decoding would change a key
		return badRequest("the body must be UTF-8")
	}
	var b Batch
	var large *store.TooLarge
	switch err := json.Unmarshal(*body, &b); {
	case errors.As(err, &large):
		return large
	case err != nil:
		return badRequest("the body is not a batch: " + err.Error())
	}
	ops := make([]store.Op, len(b.Ops))
	for i := range b.Ops {
		if err := a.batchOp(&ops[i], &b.Ops[i]); err != nil {
			return err
		}
	}
	if err := a.config.Engine.Write(r.Context(), space, ops...); err != nil {
		return err
	}
	results := BatchResults{Results: make([]BatchResult, len(ops))}
	for i, o := range ops {
		results.Results[i].Existed = o.Existed
		if o.Version != 0 && o.Action != store.Delete {
			results.Results[i].ETag = etag(o.Version)
		}
	}
	return answer(w, http.StatusOK, results)
}

func (a *API) batchOp(o *store.Op, b *BatchOp) (err error) {
	switch b.Op {
	case "put":
		o.Action = store.Put
	case "delete":
		o.Action = store.Delete
	case "check":
		o.Action = store.Check
	default:
		return badRequest("op takes put, delete or check")
	}
	if len(b.Value) > a.config.MaxValue {
		return &store.TooLarge{What: "value", Size: len(b.Value), Limit: a.config.MaxValue}
	}
	if len(b.ContentType) > maxType {
		return &store.TooLarge{What: "content_type", Size: len(b.ContentType), Limit: maxType}
	}
	o.Name, o.Value, o.Meta = b.Key, b.Value, []byte(b.ContentType)
	if o.Expires, err = a.parseExpiry(b.TTL); err != nil {
		return err
	}
	o.If, err = parseCondition(b.IfMatch, b.IfNoneMatch)
	return err
}
