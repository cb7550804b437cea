package kv_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/getkin/kin-openapi/openapi3"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/kv"
	"vitrine/store/storetest"
)

// A host serves the API over a real engine.
type host struct {
	*httptest.Server
	engine store.Engine
	clock  *storetest.Clock
}

func serve(t *testing.T, c kv.Config, history int) *host {
	t.Helper()
	clock := storetest.NewClock()
	e, err := embedded.Open(embedded.Config{Dir: "store", FS: vfs.NewMem(), Now: clock.Now, ReserveBytes: 1, HistoryEvents: history,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	c.Engine, c.Now = e, clock.Now
	s := httptest.NewServer(kv.New(c))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close(); _ = e.Close() })
	return &host{Server: s, engine: e, clock: clock}
}

// A reply is the response to a request.
type reply struct {
	status int
	header http.Header
	body   string
}

func (h *host) do(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	b, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, string(b)}
}

func (h *host) want(t *testing.T, status int, method, path, body string, headers ...string) reply {
	t.Helper()
	r := h.do(t, method, path, body, headers...)
	if r.status != status {
		t.Fatalf("%s %s %v: got %d %s, want %d", method, path, headers, r.status, r.body, status)
	}
	return r
}

func TestRecord(t *testing.T) {
	t.Parallel()
	h := serve(t, kv.Config{MaxValue: 1000}, 0)
	h.want(t, 404, "GET", "/kv/a/b", "")
	first := h.want(t, 201, "PUT", "/kv/a/b", "one", "Content-Type", "text/plain").header.Get("ETag")
	r := h.want(t, 200, "GET", "/kv/a%2Fb", "")
	if r.body != "one" || r.header.Get("ETag") != first || r.header.Get("Content-Type") != "text/plain" {
		t.Errorf("get: %+v", r)
	}
	if r.header.Get("Content-Security-Policy") != "sandbox" || r.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a browser may run the record as a page of the store: %v", r.header)
	}
	second := h.want(t, 204, "PUT", "/kv/a/b", "two").header.Get("ETag")
	if second == first || second == "" {
		t.Errorf("got ETag %s after %s, want a new one", second, first)
	}
	if r := h.want(t, 200, "HEAD", "/kv/a/b", ""); r.body != "" || r.header.Get("Content-Length") != "3" {
		t.Errorf("head: %+v", r)
	}
	h.want(t, 304, "GET", "/kv/a/b", "", "If-None-Match", `"x", W/`+second)
	h.want(t, 200, "GET", "/kv/a/b", "", "If-None-Match", first)
	h.want(t, 412, "GET", "/kv/a/b", "", "If-Match", first)
	h.want(t, 412, "GET", "/kv/a/b", "", "If-Match", "W/"+second) // a strong comparison, RFC 9110 section 13.1.1
	h.want(t, 200, "GET", "/kv/a/b", "", "If-Match", `"x", `+second)
	h.want(t, 200, "GET", "/kv/a/b", "", "If-Match", "*")
	h.want(t, 412, "GET", "/kv/a/b", "", "If-Match", first, "If-None-Match", second) // If-Match first, RFC 9110 section 13.2.2
	h.want(t, 304, "GET", "/kv/a/b", "", "If-Match", second, "If-None-Match", second)
	h.want(t, 412, "PUT", "/kv/a/b", "three", "If-Match", first)
	if r := h.want(t, 412, "PUT", "/kv/a/b", "three", "If-None-Match", "*"); r.header.Get("ETag") != second {
		t.Errorf("the 412 answer has ETag %s, want %s", r.header.Get("ETag"), second)
	}
	h.want(t, 412, "PUT", "/kv/none", "x", "If-Match", "*")
	h.want(t, 412, "DELETE", "/kv/a/b", "", "If-Match", `"of another server"`)
	h.want(t, 204, "PUT", "/kv/a/b", "three", "If-Match", second)
	h.want(t, 204, "DELETE", "/kv/a/b", "")
	h.want(t, 404, "DELETE", "/kv/a/b", "")
	h.want(t, 413, "PUT", "/kv/large", strings.Repeat("x", 1001))
	h.want(t, 400, "PUT", "/kv/a%00b", "x")
	h.want(t, 400, "PUT", "/kv/a", "x", "If-Match", `"1", "2"`)
	h.want(t, 400, "PUT", "/kv/a", "x", "If-None-Match", `"1"`)
	h.want(t, 405, "PATCH", "/kv/a", "x")
	h.want(t, 413, "GET", "/kv/"+strings.Repeat("n", store.MaxName+1), "")
	h.want(t, 201, "PUT", "/kv/a?space=other", "x")
	h.want(t, 404, "GET", "/kv/a", "")
}

// TestOpenAPI checks that the document is valid, that clients made from it can send a token, and that
// they expect a refusal of each operation.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(kv.OpenAPI)
	if err == nil {
		err = doc.Validate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(doc.Security, func(r openapi3.SecurityRequirement) bool { return r["bearer"] != nil }) {
		t.Error("no request has a token")
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Responses.Default() == nil {
				t.Errorf("%s %s has no default response", method, path)
			}
		}
	}
}

// TestText checks that text which JSON cannot carry is rejected.
func TestText(t *testing.T) {
	t.Parallel()
	h := serve(t, kv.Config{}, 0)
	for _, path := range []string{"/kv/a%FFb", "/kv/a?space=%FF", "/kv?space=%FF", "/kv?prefix=%FF", "/kv?after=%FF"} {
		h.want(t, 400, "GET", path, "")
	}
	h.want(t, 400, "PUT", "/kv/%C3", "x")
	h.want(t, 400, "GET", "/kv?prefix=%FF", "", "Accept", "text/event-stream")
	h.want(t, 400, "POST", "/kv", "{\"ops\":[{\"op\":\"put\",\"key\":\"\xff\"}]}")
	h.want(t, 201, "PUT", "/kv/%C3%BC", "\xff")
	if got := h.want(t, 200, "GET", "/kv", "").body; !strings.Contains(got, `"key":"ü"`) || strings.Contains(got, "\ufffd") {
		t.Errorf("list: %s", got)
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	h := serve(t, kv.Config{MaxTTL: time.Hour}, 0)
	h.want(t, 201, "PUT", "/kv/a?ttl=90s", "x")
	h.want(t, 201, "PUT", "/kv/b?ttl=10", "x")
	if got := h.want(t, 200, "GET", "/kv/b", "").header.Get("Expires"); got != h.clock.Now().Add(10*time.Second).UTC().Format(http.TimeFormat) {
		t.Errorf("got Expires %s", got)
	}
	for _, ttl := range []string{"0", "-1", "2h", "soon", "1e9"} {
		h.want(t, 400, "PUT", "/kv/c?ttl="+ttl, "x")
	}
	h.clock.Advance(10 * time.Second)
	h.want(t, 404, "GET", "/kv/b", "")
	h.want(t, 200, "GET", "/kv/a", "")
}

func TestBatchAndList(t *testing.T) {
	t.Parallel()
	h := serve(t, kv.Config{}, 0)
	b := `{"ops":[{"op":"put","key":"a","value":"MQ=="},{"op":"put","key":"b","value":"Mg==","content_type":"text/plain"},{"op":"put","key":"c","ttl":"1h"}]}`
	r := h.want(t, 200, "POST", "/kv", b)
	var results kv.BatchResults
	if err := json.Unmarshal([]byte(r.body), &results); err != nil || len(results.Results) != 3 || results.Results[0].ETag == "" {
		t.Fatalf("batch: %s, %v", r.body, err)
	}
	r = h.want(t, 412, "POST", "/kv", `{"ops":[{"op":"delete","key":"a"},{"op":"check","key":"b","if_none_match":"*"}]}`)
	if !strings.Contains(r.body, `"op":1`) {
		t.Errorf("conflict: %s", r.body)
	}
	h.want(t, 200, "GET", "/kv/a", "")
	for _, bad := range []string{"", "{", `{"ops":[]}`, `{"ops":[{"op":"grow","key":"a"}]}`, `{"ops":[{"op":"put","key":""}]}`, `{"ops":[{"op":"put","key":"a","value":"?"}]}`} {
		h.want(t, 400, "POST", "/kv", bad)
	}
	var l kv.List
	list := func(query string) string {
		l = kv.List{}
		if err := json.Unmarshal([]byte(h.want(t, 200, "GET", "/kv"+query, "").body), &l); err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, e := range l.Records {
			names += e.Key + string(e.Value) + " "
		}
		return names
	}
	if got := list("?limit=2&values=true"); got != "a1 b2 " || l.Next != "b" || l.Records[1].ContentType != "text/plain" {
		t.Errorf("first page: got %q, next %q", got, l.Next)
	}
	if got := list("?after=b"); got != "c " || l.Next != "" || l.Records[0].Expires == nil {
		t.Errorf("second page: got %q, next %q", got, l.Next)
	}
	if got := list("?prefix=x"); got != "" {
		t.Errorf("list of a prefix without records: got %q", got)
	}
	h.want(t, 400, "GET", "/kv?limit=0", "")
	h.want(t, 400, "GET", "/kv?values=maybe", "")
}

// stream opens a watch. The test reads its lines.
func (h *host) stream(t *testing.T, query string, headers ...string) (*bufio.Reader, *http.Response) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/kv"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); got.Body.Close() })
	return bufio.NewReader(got.Body), got
}

// next reads one event: id, name, data.
func next(t *testing.T, r *bufio.Reader) (id, name, data string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" && name != "":
			return id, name, data
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	h := serve(t, kv.Config{Silence: 5 * time.Millisecond}, 8)
	r, _ := h.stream(t, "?prefix=a&values=true")
	if _, name, _ := next(t, r); name != "started" {
		t.Fatalf("the first event is %s, want started", name)
	}
	h.want(t, 201, "PUT", "/kv/b", "elsewhere")
	h.want(t, 201, "PUT", "/kv/a?ttl=1", "x")
	id, name, data := next(t, r)
	if name != "written" || !strings.Contains(data, `"value":"eA=="`) || !strings.Contains(data, `"etag":"\"`+id+`\""`) {
		t.Fatalf("%s %s %s", id, name, data)
	}
	h.clock.Advance(2 * time.Second)
	if _, name, data = next(t, r); name != "expired" || !strings.Contains(data, `"key":"a"`) {
		t.Fatalf("%s %s", name, data)
	}
	again, _ := h.stream(t, "?from=1", "Last-Event-ID", id)
	next(t, again)
	if _, name, _ = next(t, again); name != "expired" {
		t.Fatalf("the resumed watch got %s, want expired", name)
	}
	line, err := again.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, ":") {
		t.Fatalf("idle watch: got line %q, error %v, want a comment", line, err)
	}
	for range 10 {
		h.do(t, "PUT", "/kv/a", "y")
	}
	late := h.want(t, http.StatusGone, "GET", "/kv?from=1", "", "Accept", "text/event-stream")
	if want := "watch from now, and list once the watch has started"; !strings.Contains(late.body, want) { // else changes are missed
		t.Errorf("watch from a version that is no longer kept: got %s, want the advice: %s", late.body, want)
	}
	if _, got := h.stream(t, "?from=soon"); got.StatusCode != http.StatusBadRequest {
		t.Errorf("watch from an invalid version: got status %d, want 400", got.StatusCode)
	}
}

// A failing engine returns an error with an address.
type failing struct{ store.Engine }

var errUnreachable = errors.New("dial tcp 192.0.2.1:6379: connection refused")

func (failing) Get(context.Context, store.Key, *store.Record) error { return errUnreachable }

func (failing) Watch(context.Context, string, string, uint64) iter.Seq2[*store.Event, error] {
	return func(yield func(*store.Event, error) bool) {
		if yield(&store.Event{Change: store.Started}, nil) {
			yield(nil, errUnreachable)
		}
	}
}

// TestFailuresAreLogged checks that the log has the text of an engine's error, and the client does not.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, accept string
		status       int
	}{
		{"/kv/a", "", http.StatusInternalServerError},
		{"/kv", "text/event-stream", http.StatusOK},
	} {
		var log bytes.Buffer
		api := kv.New(kv.Config{Engine: failing{}, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))})
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
		r.Header.Set("Accept", c.accept)
		api.ServeHTTP(w, r)
		if body := w.Body.String(); w.Code != c.status || !strings.Contains(body, `"status":500`) || strings.Contains(body, "192.0.2.1") {
			t.Errorf("%s: got status %d: %s", c.path, w.Code, body)
		}
		if !strings.Contains(log.String(), errUnreachable.Error()) {
			t.Errorf("%s: the log does not say why: %s", c.path, &log)
		}
	}
}

// An erring engine returns its error for each read.
type erring struct {
	store.Engine
	err error
}

func (e erring) Get(context.Context, store.Key, *store.Record) error { return e.err }

// TestFailuresAreCounted checks that each request that the engine did not serve is counted by its status,
// unless its client is gone.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want []int
	}{
		{t.Context(), errUnreachable, []int{500}},
		{t.Context(), &store.Busy{What: "Redis is a replica"}, []int{503}},
		{t.Context(), store.ErrFull, []int{507}},
		{t.Context(), store.ErrNotFound, nil},
		{gone, context.Canceled, nil},
	} {
		var counted []int
		api := kv.New(kv.Config{Engine: erring{err: c.err}, Now: time.Now, Failed: func(status int) { counted = append(counted, status) }})
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(c.ctx, http.MethodGet, "/kv/a", nil))
		if !slices.Equal(counted, c.want) {
			t.Errorf("%v: counted %v, want %v", c.err, counted, c.want)
		}
	}
}

// TestClosing checks that a watch ends with an event when the engine closes.
func TestClosing(t *testing.T) {
	t.Parallel()
	h := serve(t, kv.Config{}, 0)
	r, _ := h.stream(t, "")
	next(t, r)
	if err := h.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if _, name, data := next(t, r); name != "end" || !strings.Contains(data, "503") {
		t.Errorf("the watch ended with %s %s, want end with 503", name, data)
	}
	if r := h.want(t, 503, "GET", "/kv/a", ""); r.header.Get("Retry-After") == "" {
		t.Error("the 503 answer has no Retry-After")
	}
}

// TestAnswersThatAreLarge checks that a list with values counts as a large answer, and nothing else.
func TestAnswersThatAreLarge(t *testing.T) {
	for target, large := range map[string]bool{
		"/kv?values=true": true, "/kv/?prefix=a&values=1": true, "/kv": false, "/kv?values=false": false, "/kv/key?values=true": false,
	} {
		if got := kv.Answer(httptest.NewRequest(http.MethodGet, target, nil)); (got > 0) != large {
			t.Errorf("%s: got a limit of %d bytes", target, got)
		}
	}
}

// TestKeysHoldNoRequests writes keys twice by requests with long queries. The engine keeps the keys
// for watches and for the next put, and must not keep the requests with them. The test is not
// parallel, because it measures the heap.
func TestKeysHoldNoRequests(t *testing.T) {
	h := serve(t, kv.Config{}, 0)
	const keys, query = 2000, 16 << 10
	before := heap()
	for range 2 {
		for i := range keys {
			target := fmt.Sprintf("/kv/%d?unknown=%s", i, strings.Repeat("x", query))
			w := httptest.NewRecorder()
			h.Config.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, target, strings.NewReader("v")))
			if w.Code != http.StatusCreated && w.Code != http.StatusNoContent {
				t.Fatalf("put: got status %d: %s", w.Code, w.Body)
			}
		}
	}
	if grown := heap() - before; grown > keys*query/2 {
		t.Errorf("after writes of %d keys the heap is %d MiB larger", keys, grown>>20)
	}
}

// TestBatchOfManyOps sends a body of about a million ops. Decoded ops take 40 to 60 times the memory of
// their text, so the API must not decode them all. The test is not parallel, because it measures
// allocations.
func TestBatchOfManyOps(t *testing.T) {
	h := serve(t, kv.Config{}, 0)
	for name, op := range map[string]string{"empty ops": "{}", "numbers": "0"} {
		body := `{"ops":[` + strings.Repeat(op+",", 1<<20) + op + `]}`
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/kv", strings.NewReader(body))
		before := allocated()
		h.Config.Handler.ServeHTTP(w, r)
		if n := allocated() - before; n > 16<<20 {
			t.Errorf("%s: a body of %d MiB took %d MiB", name, len(body)>>20, n>>20)
		}
		if w.Code != http.StatusRequestEntityTooLarge && w.Code != http.StatusBadRequest {
			t.Errorf("%s: got status %d: %s", name, w.Code, w.Body)
		}
	}
	var ops []string
	for i := range store.MaxOps + 1 {
		ops = append(ops, fmt.Sprintf(`{"op":"check","key":"%d"}`, i))
	}
	h.want(t, 200, "POST", "/kv", `{"ops":[`+strings.Join(ops[1:], ",")+`]}`)
	h.want(t, 413, "POST", "/kv", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	for _, bad := range []string{"null", "{}", "0"} {
		h.want(t, 400, "POST", "/kv", `{"ops":`+bad+`}`)
	}
}

// allocated returns the bytes allocated so far.
func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// heap returns the bytes of objects in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves what pools keep
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
