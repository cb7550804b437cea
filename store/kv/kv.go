// Package kv is the plain API of the store. It serves one record under /kv/{key} with GET, PUT and
// DELETE, time to live, compare-and-set by ETag, batches, lists, and watches by server-sent events.
// openapi.yaml describes it.
package kv

import (
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"vitrine/store"
)

// Root is the path of the API.
const Root = "/kv"

// OpenAPI describes the API: OpenAPI 3.1, YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config of an API.
type Config struct {
	Engine   store.Engine
	Now      func() time.Time // ttl counts from this time
	MaxValue int              // bytes of a value; 0: store.MaxValue less room for its content type
	MaxTTL   time.Duration    // 0: 10 years
	ListTime time.Duration    // the longest duration of a list; 0: 30 s
	Silence  time.Duration    // interval of comments in a watch, which detect a lost client; 0: 15 s
	Log      *slog.Logger     // nil: none
	Failed   func(status int) // called for each answer of status 500 or more; nil: none
}

// API is the handler of everything below Root.
type API struct{ config Config }

// maxType bounds the Content-Type of a value, in bytes.
const maxType = 256

// New returns the API.
func New(c Config) *API {
	if c.MaxValue <= 0 || c.MaxValue > store.MaxValue-maxType {
		c.MaxValue = store.MaxValue - maxType
	}
	if c.MaxTTL <= 0 {
		c.MaxTTL = 10 * 365 * 24 * time.Hour
	}
	if c.ListTime <= 0 {
		c.ListTime = 30 * time.Second
	}
	if c.Silence <= 0 {
		c.Silence = 15 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Failed == nil {
		c.Failed = func(int) {}
	}
	return &API{config: c}
}

// Operation returns the name of a request's operation for metrics, for example "kv get". For a
// watch it is "", because a watch has no latency.
func Operation(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watches(r):
			return ""
		case len(r.URL.Path) <= len(Root)+1:
			return "kv list"
		}
		return "kv get"
	case http.MethodPut:
		return "kv put"
	case http.MethodDelete:
		return "kv delete"
	case http.MethodPost:
		return "kv batch"
	}
	return "kv other"
}

// Quick reports whether a request reads or changes one key. Such a request has a short
// answer soon, if the engine's records are on this host.
func Quick(r *http.Request) bool {
	return len(r.URL.Path) > len(Root)+1 && !watches(r)
}

// Answer returns how many bytes of memory the answer of a list with values may take. This
// includes the values, their base64 in a buffer that doubles as it grows, and a copy of
// that buffer. Other answers are small; for them Answer returns 0.
func Answer(r *http.Request) int64 {
	if Operation(r) != "kv list" || r.URL.RawQuery == "" {
		return 0
	}
	if values, _ := parseFlag(r.URL.Query().Get("values")); !values {
		return 0
	}
	return 6 * listBytes
}

// spareBytes bounds how many bytes of a URI stay in memory with the key in it. Engines keep keys.
const spareBytes = 64

// ServeHTTP serves a request below Root.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := a.serve(w, r); err != nil {
		a.report(r, err).write(w)
	}
}

// report returns what the client of a failed request gets. The text of an unknown error of the engine
// may hold addresses of servers, so only the log gets it.
func (a *API) report(r *http.Request, err error) *Error {
	e := describe(err)
	if e.Status >= http.StatusInternalServerError && r.Context().Err() == nil { // else the client is gone
		a.config.Failed(e.Status)
		a.config.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	return e
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Root), "/")
	if len(r.RequestURI) > len(name)+spareBytes {
		name = strings.Clone(name) // it may be a part of the whole request line
	}
	space, err := spaceOf(r)
	if err == nil {
		err = checkText("a key", name)
	}
	if err != nil {
		return err
	}
	if name == "" {
		switch r.Method {
		case http.MethodGet:
			if watches(r) {
				return a.watch(w, r, space)
			}
			return a.list(w, r, space)
		case http.MethodPost:
			return a.batch(w, r, space)
		}
		return notAllowed(w, "GET, POST")
	}
	key := store.Key{Space: space, Name: name}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return a.get(w, r, key)
	case http.MethodPut:
		return a.put(w, r, key)
	case http.MethodDelete:
		return a.remove(w, r, key)
	}
	return notAllowed(w, "GET, HEAD, PUT, DELETE")
}

// spaceOf returns the space of a request: ?space=NAME. A clustered engine can spread spaces over
// nodes.
func spaceOf(r *http.Request) (string, error) {
	if r.URL.RawQuery == "" {
		return "kv", nil
	}
	name := r.URL.Query().Get("space")
	if name == "" {
		return "kv", nil
	}
	if err := checkText("space", name); err != nil {
		return "", err
	}
	space := "kv/" + name
	return space, store.ValidSpace(space)
}

// checkText rejects text that is not UTF-8, because a list in JSON could not return it.
func checkText(what, s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	return badRequest(what + " must be UTF-8")
}

// An Error is a failure in the form that the client gets.
type Error struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Op     *int   `json:"op,omitempty"`   // in a batch: index of the op whose condition did not hold
	ETag   string `json:"etag,omitempty"` // the record's current ETag
	retry  time.Duration
}

func (e *Error) Error() string { return e.Title }

func badRequest(title string) error { return &Error{Status: http.StatusBadRequest, Title: title} }

func notAllowed(w http.ResponseWriter, methods string) error {
	w.Header().Set("Allow", methods)
	return &Error{Status: http.StatusMethodNotAllowed, Title: "allowed here: " + methods}
}

// write answers with the error as application/problem+json (RFC 9457).
func (e *Error) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if e.ETag != "" {
		h.Set("ETag", e.ETag)
	}
	if e.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.retry.Seconds()))))
	}
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(e)
}

func describe(err error) *Error {
	var (
		own      *Error
		conflict *store.Conflict
		busy     *store.Busy
		late     *store.Late
		large    *store.TooLarge
		invalid  *store.Invalid
		behind   *store.Behind
		body     *http.MaxBytesError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, store.ErrNotFound):
		return &Error{Status: http.StatusNotFound, Title: "no such key"}
	case errors.As(err, &conflict):
		e := &Error{Status: http.StatusPreconditionFailed, Title: "the condition does not hold", Op: &conflict.Op}
		if conflict.Version != 0 {
			e.ETag = etag(conflict.Version)
		}
		return e
	case errors.As(err, &busy):
		return &Error{Status: http.StatusServiceUnavailable, Title: err.Error(), retry: busy.RetryAfter}
	case errors.As(err, &late):
		return &Error{Status: http.StatusServiceUnavailable, Title: err.Error(), retry: time.Second}
	case errors.As(err, &large):
		return &Error{Status: http.StatusRequestEntityTooLarge, Title: err.Error()}
	case errors.As(err, &body):
		return &Error{Status: http.StatusRequestEntityTooLarge, Title: "the body is over the limit of " + strconv.FormatInt(body.Limit, 10) + " bytes"}
	case errors.As(err, &invalid):
		return &Error{Status: http.StatusBadRequest, Title: err.Error()}
	case errors.As(err, &behind):
		return &Error{Status: http.StatusGone, Title: err.Error()}
	case errors.Is(err, store.ErrFull):
		return &Error{Status: http.StatusInsufficientStorage, Title: err.Error()}
	case errors.Is(err, store.ErrClosed):
		return &Error{Status: http.StatusServiceUnavailable, Title: "the store is closing", retry: time.Second}
	}
	return &Error{Status: http.StatusInternalServerError, Title: "the store failed; its log says why"}
}

func etag(version uint64) string {
	b := make([]byte, 0, 24)
	b = append(b, '"')
	b = strconv.AppendUint(b, version, 10)
	return string(append(b, '"'))
}

// parseETag returns the version of a strong entity tag (RFC 9110 section 8.8.3). A tag that this
// API did not make gets math.MaxUint64, which no record has.
func parseETag(s string) (uint64, error) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' || strings.ContainsAny(s[1:len(s)-1], `",`) {
		return 0, badRequest("a condition takes * or one strong ETag in double quotes")
	}
	if v, err := strconv.ParseUint(s[1:len(s)-1], 10, 64); err == nil && v != 0 {
		return v, nil
	}
	return math.MaxUint64, nil
}

// parseCondition parses If-Match and If-None-Match.
func parseCondition(match, noneMatch string) (c store.Condition, err error) {
	switch match {
	case "":
	case "*":
		c.Present = true
	default:
		if c.Version, err = parseETag(match); err != nil {
			return c, err
		}
	}
	switch noneMatch {
	case "":
	case "*":
		c.Absent = true
	default:
		return c, badRequest("If-None-Match takes * alone where something is changed")
	}
	return c, nil
}

// parseExpiry parses a time to live: seconds, or a duration like 90s or 12h.
func (a *API) parseExpiry(ttl string) (time.Time, error) {
	if ttl == "" {
		return time.Time{}, nil
	}
	d, err := time.ParseDuration(ttl)
	if seconds, numeric := strconv.ParseInt(ttl, 10, 32); numeric == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < time.Millisecond || d > a.config.MaxTTL {
		return time.Time{}, badRequest("ttl takes seconds, or a duration like 90s or 12h, up to " + a.config.MaxTTL.String())
	}
	return a.config.Now().Add(d), nil
}
