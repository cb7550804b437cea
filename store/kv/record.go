package kv

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"vitrine/store"
)

// records are reused, with their memory if it is small.
var records = sync.Pool{New: func() any { return new(store.Record) }}

const keepBytes = 64 << 10

func release(r *store.Record) {
	if cap(r.Scratch()) <= keepBytes {
		records.Put(r)
	}
}

// The values of headers are shared by all answers, so that an answer allocates none. Nobody changes them.
var sandbox, noSniff = []string{"sandbox"}, []string{"nosniff"}

// get answers GET and HEAD of a key.
func (a *API) get(w http.ResponseWriter, r *http.Request, key store.Key) error {
	record := records.Get().(*store.Record)
	defer release(record)
	if err := a.config.Engine.Get(r.Context(), key, record); err != nil {
		return err
	}
	h := w.Header()
	tag := etag(record.Version)
	h["Etag"] = []string{tag}
	if !record.Expires.IsZero() {
		h.Set("Expires", record.Expires.UTC().Format(http.TimeFormat))
	}
	// RFC 9110 section 13.2.2: If-Match comes first.
	if match := r.Header.Get("If-Match"); match != "" && !containsTag(match, tag) {
		return &Error{Status: http.StatusPreconditionFailed, Title: "the condition does not hold", ETag: tag}
	}
	if none := r.Header.Get("If-None-Match"); none != "" && (containsTag(none, tag) || containsTag(none, "W/"+tag)) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h["Content-Type"] = []string{contentType(record)}
	if len(record.Meta) > 0 { // the writer chose it: a browser must not run the value as a page of this store
		h["Content-Security-Policy"], h["X-Content-Type-Options"] = sandbox, noSniff
	}
	h["Content-Length"] = []string{strconv.Itoa(len(record.Value))}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(record.Value)
	}
	return nil
}

func contentType(r *store.Record) string {
	if len(r.Meta) == 0 {
		return "application/octet-stream"
	}
	return string(r.Meta)
}

// containsTag reports whether a list of entity tags contains this one or is "*". With a strong tag
// that is the strong comparison of If-Match (RFC 9110 section 13.1.1). The weak comparison of
// If-None-Match (section 13.1.2) also accepts the tag's weak form.
func containsTag(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if one == "*" || one == tag {
			return true
		}
	}
	return false
}

// put answers PUT of a key.
func (a *API) put(w http.ResponseWriter, r *http.Request, key store.Key) error {
	ttl := ""
	if r.URL.RawQuery != "" {
		ttl = r.URL.Query().Get("ttl")
	}
	o := store.Op{Action: store.Put, Name: key.Name}
	var err error
	if o.Expires, err = a.parseExpiry(ttl); err != nil {
		return err
	}
	if o.If, err = parseCondition(r.Header.Get("If-Match"), r.Header.Get("If-None-Match")); err != nil {
		return err
	}
	if kind := r.Header.Get("Content-Type"); kind != "" && kind != "application/octet-stream" {
		if len(kind) > maxType {
			return badRequest("Content-Type is over " + strconv.Itoa(maxType) + " bytes")
		}
		o.Meta = []byte(kind)
	}
	body, err := a.read(w, r, a.config.MaxValue)
	if err != nil {
		return err
	}
	defer bodies.Put(body)
	o.Value = *body
	ops := []store.Op{o}
	if err := a.config.Engine.Write(r.Context(), key.Space, ops...); err != nil {
		return err
	}
	w.Header()["Etag"] = []string{etag(ops[0].Version)}
	if ops[0].Existed {
		w.WriteHeader(http.StatusNoContent)
	} else {
		w.WriteHeader(http.StatusCreated)
	}
	return nil
}

var bodies = sync.Pool{New: func() any { return new([]byte) }}

// read reads the whole body, at most limit bytes.
func (a *API) read(w http.ResponseWriter, r *http.Request, limit int) (*[]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, &http.MaxBytesError{Limit: int64(limit)}
	}
	body := bodies.Get().(*[]byte)
	if cap(*body) > keepBytes {
		*body = nil
	}
	b := (*body)[:0]
	if n := int(r.ContentLength); n >= 0 {
		if cap(b) < n {
			b = make([]byte, 0, n)
		}
		b = b[:n]
		*body = b
		if _, err := io.ReadFull(r.Body, b); err != nil {
			return nil, cutShort(err)
		}
		return body, nil
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	*body = b
	if err != nil {
		return nil, cutShort(err)
	}
	return body, nil
}

func cutShort(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return badRequest("the body ended early")
}

// remove answers DELETE of a key.
func (a *API) remove(w http.ResponseWriter, r *http.Request, key store.Key) error {
	c, err := parseCondition(r.Header.Get("If-Match"), r.Header.Get("If-None-Match"))
	if err != nil {
		return err
	}
	ops := []store.Op{{Action: store.Delete, Name: key.Name, If: c}}
	if err := a.config.Engine.Write(r.Context(), key.Space, ops...); err != nil {
		return err
	}
	if !ops[0].Existed {
		return store.ErrNotFound
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
