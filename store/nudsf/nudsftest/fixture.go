// Package nudsftest is the conformance suite of Nudsf_DataRepository and Nudsf_Timer. Both run over
// an engine, and every request and answer is validated against the published OpenAPI documents.
package nudsftest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/timer"
	"vitrine/store/nudsf/wire"
)

// patience is how long a test waits for an expected event.
const patience = 20 * time.Second

// An Opener creates storage for records and returns a function that opens an engine over it. The
// suite calls that function again after it closes the engine, to test restarts.
type Opener func(t *testing.T) (open func() store.Engine)

// A server is a function that listens, and a client that validates its answers.
type server struct {
	t        *testing.T
	function *nudsf.Function
	clock    *clock
	base     string // http://127.0.0.1:port
	client   *http.Client
	stop     func()
}

// running opens an engine and serves a function over it until the test ends. adjust may be nil.
func running(t *testing.T, open func() store.Engine, adjust func(*nudsf.Config)) *server {
	t.Helper()
	engine := open()
	t.Cleanup(func() { _ = engine.Close() })
	return start(t, engine, adjust)
}

// start serves a function over an engine until stop is called or the test ends. adjust may be nil.
func start(t *testing.T, engine store.Engine, adjust func(*nudsf.Config)) *server {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, base: "http://" + listener.Addr().String(), clock: &clock{}}
	config := nudsf.Config{
		Engine: engine, Clock: s.clock.now, APIRoot: s.base,
		Log:       slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		Callbacks: callback.Config{Timeout: 5 * time.Second, Backoff: 10 * time.Millisecond, Longest: 50 * time.Millisecond},
		Allow:     []string{"*", "127.0.0.1"},
		Due:       due.Config{Backoff: 20 * time.Millisecond, Longest: 100 * time.Millisecond, Poll: 20 * time.Millisecond},
	}
	if adjust != nil {
		adjust(&config)
	}
	if s.function, err = nudsf.New(config); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.function.Mount(mux)
	web := &http.Server{Handler: mux, Protocols: bothProtocols(), ReadHeaderTimeout: patience}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	group.Go(func() { _ = web.Serve(listener) })
	group.Go(func() {
		if err := s.function.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	s.stop = sync.OnceFunc(func() {
		_ = web.Close()
		cancel()
		group.Wait()
	})
	t.Cleanup(s.stop)
	s.client = &http.Client{Transport: newChecked(t, s.base, transport(false)), Timeout: patience}
	return s
}

func bothProtocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// transport returns a transport for HTTP/1.1, or for HTTP/2 with prior knowledge.
func transport(http2 bool) *http.Transport {
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	return &http.Transport{Protocols: p, DisableCompression: true}
}

// An answer is a response with its whole body.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
	proto  string
}

// records, subscription and timers return the URL of a resource of the storage.
func (s *server) records(elements ...string) string {
	return s.url(nudsf.Root, append([]string{"Realm01", "Storage01", "records"}, elements...)...)
}

func (s *server) subscription(id string) string {
	return s.url(nudsf.Root, "Realm01", "Storage01", "subs-to-notify", id)
}

func (s *server) timers(elements ...string) string {
	return s.url(timer.Root, append([]string{"Realm01", "Storage01", "timers"}, elements...)...)
}

func (s *server) url(root string, elements ...string) string {
	for _, e := range elements {
		root += "/" + url.PathEscape(e)
	}
	return s.base + root
}

// do sends a request that the OpenAPI document allows, and validates the answer. headers are names
// and values in turn.
func (s *server) do(method, url string, body []byte, headers ...string) answer {
	s.t.Helper()
	return s.with(context.Background(), method, url, body, headers...)
}

// wrong sends a request that the OpenAPI document does not allow.
func (s *server) wrong(method, url string, body []byte, headers ...string) answer {
	s.t.Helper()
	return s.with(context.WithValue(context.Background(), unchecked{}, true), method, url, body, headers...)
}

func (s *server) with(ctx context.Context, method, url string, body []byte, headers ...string) answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, url, err)
	}
	return answer{response.StatusCode, response.Header, data, response.Proto}
}

// want fails the test unless the answer has the status, and the cause if one is given.
func (a answer) want(t *testing.T, status int, cause ...string) answer {
	t.Helper()
	if a.Status != status {
		t.Fatalf("answered %d, want %d: %s", a.Status, status, a.Body)
	}
	if len(cause) > 0 {
		var p wire.Problem
		if err := json.Unmarshal(a.Body, &p); err != nil || p.Cause != cause[0] || a.Header.Get("Content-Type") != wire.TypeProblem {
			t.Fatalf("cause %q of type %q, want %q: %s", p.Cause, a.Header.Get("Content-Type"), cause[0], a.Body)
		}
	}
	return a
}

func (a answer) etag() string { return a.Header.Get("ETag") }

// into decodes a JSON answer.
func into[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.Body, &v); err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
	return v
}

func (a answer) record(t *testing.T) wire.Record {
	t.Helper()
	r, err := wire.ReadRecord(a.Header.Get("Content-Type"), bytes.NewReader(a.Body), wire.DefaultLimits())
	if err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
	return r
}

// put stores a record.
func (s *server) put(id string, r wire.Record, headers ...string) answer {
	s.t.Helper()
	contentType, body, err := r.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do("PUT", s.records(id), body, append(headers, "Content-Type", contentType)...)
}

// putJSON sends a JSON body.
func (s *server) putJSON(url string, v any) answer {
	s.t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do("PUT", url, body, "Content-Type", wire.TypeJSON)
}

func (s *server) patch(url, patch string) answer {
	s.t.Helper()
	return s.do("PATCH", url, []byte(patch), "Content-Type", wire.TypePatch)
}

// filtered adds a filter to a URL.
func filtered(t *testing.T, to string, f wire.Filter, more ...string) string {
	t.Helper()
	return strings.Join(append([]string{to + filterQuery(t, f)}, more...), "&")
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	hosttest.Until(t, patience, what, holds)
}
