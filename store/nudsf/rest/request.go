package rest

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"vitrine/store/nudsf/wire"
)

// Path returns the path of a resource in the storage of a space. It escapes the elements.
func Path(space string, elements ...string) string {
	service, rest, _ := strings.Cut(space, "/")
	var b strings.Builder
	b.WriteString("/" + service + "/v1/" + rest)
	for _, e := range elements {
		b.WriteString("/" + url.PathEscape(e))
	}
	return b.String()
}

// Storages is the set of storages that exist.
type Storages map[string]map[string]bool // realm, storage; nil: all

// ParseStorages reads "realm/storage" entries. Without entries every storage exists.
func ParseStorages(list []string) (Storages, error) {
	if len(list) == 0 {
		return nil, nil
	}
	s := Storages{}
	for _, entry := range list {
		realm, name, ok := strings.Cut(entry, "/")
		if !ok || realm == "" || name == "" {
			return nil, fmt.Errorf("storage %q: write realm/storage", entry)
		}
		if s[realm] == nil {
			s[realm] = map[string]bool{}
		}
		s[realm][name] = true
	}
	return s, nil
}

// maxStorage bounds the name of a storage's space, in bytes.
const maxStorage = 240

// Space returns the engine's space for the storage that a request addresses. service is "nudsf-dr" or
// "nudsf-timer".
func (s Storages) Space(service string, r *http.Request) (string, error) {
	realm, storage := r.PathValue("realm"), r.PathValue("storage")
	space := service + "/" + url.PathEscape(realm) + "/" + url.PathEscape(storage)
	switch {
	case s != nil && s[realm] == nil:
		return "", wire.NewProblem(http.StatusNotFound, wire.CauseRealmNotFound, "there is no realm %q", realm)
	case s != nil && !s[realm][storage]:
		return "", wire.NewProblem(http.StatusNotFound, wire.CauseStorageNotFound, "there is no storage %q in realm %q", storage, realm)
	case len(space) > maxStorage:
		return "", wire.NewProblem(http.StatusNotFound, wire.CauseStorageNotFound, "the names of realm and storage are over %d bytes", maxStorage)
	}
	for _, name := range []string{realm, storage} {
		if err := wire.CheckID("realm and storage", name, wire.Limits{ID: maxStorage}); err != nil {
			return "", err
		}
	}
	return space, nil
}

// Resource returns the space and the ID of the resource that a request addresses. name is the name of
// the ID in the path, for example "recordId".
func (c *Config) Resource(service, name string, r *http.Request) (space, id string, err error) {
	if space, err = c.Storages.Space(service, r); err != nil {
		return "", "", err
	}
	id = r.PathValue(name)
	return space, id, wire.CheckID(name, id, c.Limits)
}

// Body reads a body of a media type, at most limit bytes.
func Body(w http.ResponseWriter, r *http.Request, media string, limit int) ([]byte, error) {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != media {
		return nil, wire.NewProblem(http.StatusUnsupportedMediaType, "", "the body is %q; send %s", r.Header.Get("Content-Type"), media)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return data, nil
}

// Patch reads a body that is a JSON patch, at most limit bytes.
func Patch(w http.ResponseWriter, r *http.Request, limit int, l wire.Limits) ([]wire.PatchItem, error) {
	body, err := Body(w, r, wire.TypePatch, limit)
	if err != nil {
		return nil, err
	}
	return wire.ParsePatch(body, l)
}

// Patched answers a patch and lists the instructions that were not applied.
func Patched(w http.ResponseWriter, report []wire.ReportItem) error {
	if len(report) > 0 {
		return JSON(w, http.StatusOK, wire.PatchResult{Report: report})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// takeTime is how long a client may take to read the answer to a long request.
const takeTime = time.Minute

// Long runs work that may take longer than the server's deadlines, which are meant for clients.
// After the work the client has takeTime to read the answer.
func Long[T any](w http.ResponseWriter, work func() (T, error)) (T, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // nothing more is read; not every server supports it
	_ = control.SetWriteDeadline(time.Time{})
	defer func() { _ = control.SetWriteDeadline(time.Now().Add(takeTime)) }()
	return work()
}

// JSON answers with a value as JSON.
func JSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %T: %w", v, err)
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return nil
}

// maxFilter bounds the filter in a query, in bytes.
const maxFilter = 64 << 10

// A Query reads query parameters. Each parameter may occur once. Err returns the first error.
type Query struct {
	values url.Values
	err    error
}

// ReadQuery parses the query of a request.
func ReadQuery(r *http.Request) *Query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &Query{values: values}
	if err != nil {
		q.fail("query", "%v", err)
	}
	return q
}

// Err returns the first error, a *wire.Problem.
func (q *Query) Err() error { return q.err }

func (q *Query) fail(name, format string, args ...any) {
	if q.err == nil {
		q.err = wire.BadParam(wire.CauseQueryIncorrect, name, format, args...)
	}
}

// Text returns a parameter, and whether it is present.
func (q *Query) Text(name string) (string, bool) {
	values, ok := q.values[name]
	if len(values) > 1 {
		q.fail(name, "is there %d times", len(values))
	}
	if !ok {
		return "", false
	}
	return values[0], true
}

// Bool returns a parameter that must be true or false; false if it is absent.
func (q *Query) Bool(name string) bool {
	text, ok := q.Text(name)
	if ok && text != "true" && text != "false" {
		q.fail(name, "is %q, not true or false", text)
	}
	return text == "true"
}

// Count returns a parameter that must be a whole number from 0; otherwise if it is absent.
func (q *Query) Count(name string, otherwise int) int {
	text, ok := q.Text(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		q.fail(name, "is %q, not a whole number", text)
	}
	return int(n)
}

// Filter returns a filter; nil if it is absent.
func (q *Query) Filter(name string, l wire.Limits) *wire.Filter {
	text, ok := q.Text(name)
	if !ok {
		return nil
	}
	if len(text) > maxFilter {
		q.fail(name, "is over %d bytes", maxFilter)
		return nil
	}
	f, err := wire.ParseFilter([]byte(text), l)
	if err != nil && q.err == nil {
		q.err = err
	}
	return f
}

// Refuse records an error if an unsupported parameter is present.
func (q *Query) Refuse(name string) {
	if q.values.Has(name) && q.err == nil {
		q.err = wire.BadParam(wire.CauseQueryInvalid, name, "is not supported")
	}
}
