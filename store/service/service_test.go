package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vitrine"
	"vitrine/internal/access"
	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/kv"
)

const token = "correct-horse-battery"

// running starts a service on loopback and ends it with the test.
func running(t *testing.T, c Config, log io.Writer) (*Service, string) {
	t.Helper()
	c.Registry = prometheus.NewRegistry()
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	s := New(c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, "http://" + l.Addr().String()
}

func get(t *testing.T, url string, headers ...string) *http.Response {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, got.Body)
	got.Body.Close()
	return got
}

// value returns the value of a counter or gauge.
func value(m prometheus.Metric) float64 {
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		panic(err)
	}
	return d.GetCounter().GetValue() + d.GetGauge().GetValue()
}

// wantMetric checks the value of a counter or gauge in the service's registry.
func wantMetric(t *testing.T, s *Service, name string, want float64) {
	t.Helper()
	families, err := s.config.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
			return
		}
	}
	t.Errorf("there is no metric %s", name)
}

func named(*http.Request) string { return "op" }

// dialFrom connects to a service from a loopback address until the test ends.
func dialFrom(t *testing.T, from, url string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("# who may ask\n\n"+token+"\nanother-long-token-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.ReadTokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	log := &hosttest.Output{}
	s, url := running(t, Config{Tokens: tokens, Routes: []Route{
		{Path: "/kv", Handler: ok, Operation: named}, {Path: "/health", Handler: ok, Open: true},
	}}, log)
	for given, want := range map[string]int{
		"Bearer " + token: 200, "bearer another-long-token-1": 200,
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer wrong-wrong-wrong": 401, "Basic " + token: 401, "Bearer # who may ask": 401,
	} {
		got := get(t, url+"/kv/a", "Authorization", given)
		if got.StatusCode != want {
			t.Errorf("%q: %d", given, got.StatusCode)
		}
		if want == 401 && got.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: the answer has no WWW-Authenticate", given)
		}
	}
	if got := get(t, url+"/health"); got.StatusCode != http.StatusOK {
		t.Errorf("open path: got status %d, want 200", got.StatusCode)
	}
	if got := get(t, url+"/kvother"); got.StatusCode != http.StatusNotFound {
		t.Errorf("path outside the service: got status %d, want 404", got.StatusCode)
	}
	if log.Count("access refused") != 6 || log.Count("from=127.0.0.1:") != 6 || log.Count(token) != 0 {
		t.Errorf("log of failed access:\n%s", log.String())
	}
	if n := value(s.refused.WithLabelValues("token")); n != 6 {
		t.Errorf("counted %v refused requests, want 6", n)
	}
}

// TestWebPagesAreRefused: without tokens, a web page of another site must not use the service through a
// browser on this host, neither across origins nor under its own name, which may resolve to this host.
func TestWebPagesAreRefused(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	s, url := running(t, Config{Routes: []Route{
		{Path: "/kv", Handler: ok, Operation: named, Quick: func(*http.Request) bool { return true }},
	}}, io.Discard)
	for _, c := range []struct {
		method, host, site string
		want               int
	}{
		{"POST", "", "cross-site", 403}, {"GET", "attacker.example", "", 421}, {"POST", "attacker.example:8070", "same-origin", 421},
		{"POST", "", "", 200}, {"POST", "localhost:8070", "same-origin", 200}, {"GET", "[::1]:8070", "", 200},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), c.method, url+"/kv/a", nil)
		r.Host = c.host
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != c.want {
			t.Errorf("%+v: got status %d", c, got.StatusCode)
		}
	}
	if n := value(s.refused.WithLabelValues("origin")); n != 3 {
		t.Errorf("counted %v refused requests, want 3", n)
	}
}

func TestTokenFiles(t *testing.T) {
	for text, want := range map[string]string{"short\n": ":1:1:", "# none\n": "no token"} {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := access.ReadTokenFile(path); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestLimits checks that the service refuses requests above its limits at once, and accepts
// requests again afterwards.
func TestLimits(t *testing.T) {
	release := make(chan struct{})
	inside := make(chan struct{}, 10)
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside <- struct{}{}; <-release })
	s, url := running(t, Config{InFlight: 2, Bodies: 100, Routes: []Route{{Path: "/kv", Handler: slow, Operation: named}}}, io.Discard)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { get(t, url+"/kv") })
	}
	<-inside
	<-inside
	if got := get(t, url+"/kv"); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("request above the limit: got status %d, want 503 with Retry-After", got.StatusCode)
	}
	close(release)
	all.Wait()
	if got := get(t, url+"/kv"); got.StatusCode != http.StatusOK {
		t.Errorf("request below the limit again: got status %d, want 200", got.StatusCode)
	}
	got, err := http.Post(url+"/kv", "", strings.NewReader(strings.Repeat("x", 101)))
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("body above the limit: got status %d, want 413", got.StatusCode)
	}
	if f, b := s.requests.taken(), s.bodies.taken(); f != 0 || b != 0 {
		t.Errorf("at rest %d requests and %d bytes are counted, want 0", f, b)
	}
}

func TestProtocols(t *testing.T) {
	proto := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	_, url := running(t, Config{Routes: []Route{{Path: "/kv", Handler: proto}}}, io.Discard)
	for _, want := range []string{"HTTP/1.1", "HTTP/2.0"} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(want == "HTTP/1.1")
		protocols.SetUnencryptedHTTP2(want == "HTTP/2.0")
		client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		got, err := client.Get(url + "/kv")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(got.Body)
		got.Body.Close()
		client.CloseIdleConnections()
		if string(b) != want {
			t.Errorf("got answer %s, want %s", b, want)
		}
	}
}

// TestConnections checks that a connection above the limit waits until another one ends, and that the log
// and the metrics show why.
func TestConnections(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	log := &hosttest.Output{}
	s, url := running(t, Config{Connections: 1, Routes: []Route{{Path: "/kv", Handler: ok}}}, log)
	first := dialFrom(t, "127.0.0.1", url)
	ask := func(c net.Conn) error {
		fmt.Fprintf(c, "GET /kv HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, err := c.Read(make([]byte, 64))
		return err
	}
	if err := ask(first); err != nil {
		t.Fatal(err)
	}
	second := dialFrom(t, "127.0.0.1", url)
	_ = second.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var wait net.Error
	if err := ask(second); !errors.As(err, &wait) || !wait.Timeout() {
		t.Errorf("connection above the limit: got %v, want a timeout", err)
	}
	hosttest.Until(t, 30*time.Second, "the log says which limit is reached", func() bool { return log.Count("--max-connections allows") == 1 })
	wantMetric(t, s, "vitrine_store_connections", 1)
	first.Close()
	_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := second.Read(make([]byte, 64)); err != nil {
		t.Errorf("the waiting connection got no answer: %v", err)
	}
}

// TestPanicsAreLogged checks that a request whose handler panics leaves a line in the log.
func TestPanicsAreLogged(t *testing.T) {
	broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") })
	log := &hosttest.Output{}
	_, url := running(t, Config{Routes: []Route{{Path: "/kv", Handler: broken}}}, log)
	if got, err := http.Get(url + "/kv"); err == nil {
		got.Body.Close()
		t.Errorf("got %s, want a closed connection", got.Status)
	}
	if log.Count("a bug") == 0 {
		t.Error("the log says nothing of the panic")
	}
}

func TestGuarded(t *testing.T) {
	for _, c := range []struct {
		config  Config
		address string
		ok      bool
	}{
		{Config{}, "127.0.0.1:1", true}, {Config{}, "[::1]:1", true}, {Config{}, "localhost:1", true},
		{Config{}, "0.0.0.0:1", false}, {Config{}, ":1", false}, {Config{}, "192.0.2.1:1", false}, {Config{}, "nonsense", false},
		{Config{Tokens: &access.TokenFile{}}, ":1", false}, {Config{Tokens: &access.TokenFile{}, TLS: &access.ServerTLS{}}, ":1", true},
		{Config{TLS: &access.ServerTLS{}}, ":1", false},
		{Config{TLS: &access.ServerTLS{Clients: "ca.pem"}}, ":1", true},
	} {
		if err := c.config.Guarded(c.address); (err == nil) != c.ok || (err != nil && !vitrine.IsBadInput(err)) {
			t.Errorf("%s: %v", c.address, err)
		}
	}
}

// TestWatch checks that the log reports once that an operation exceeds its threshold, and once that
// it no longer does, after two windows within it. Slow and refused requests count.
func TestWatch(t *testing.T) {
	const slowly, refusing = "11 of 1000 requests took longer than 10ms", "11 of 1000 requests were refused: too many requests at the same time (--max-requests)"
	for name, c := range map[string]struct {
		bad  func(w *watch)
		want string
	}{
		"slow":    {func(w *watch) { w.Observe("get", 11*time.Millisecond) }, slowly},
		"refused": {func(w *watch) { w.Refuse("get", "requests") }, refusing},
	} {
		t.Run(name, func(t *testing.T) {
			log := &hosttest.Output{}
			w := newWatch(10*time.Millisecond, 0.01, time.Hour, slog.New(slog.NewTextHandler(log, nil)))
			window := func(bad int) {
				for i := range 1000 {
					if i < bad {
						c.bad(w)
					} else {
						w.Observe("get", time.Millisecond)
					}
				}
				w.judge()
			}
			past := func() float64 { return value(w.past.WithLabelValues("get")) }
			window(10)
			if len(w.Past()) != 0 || past() != 0 {
				t.Error("a share of exactly 1 percent counts as past the threshold of 1 percent")
			}
			window(500)
			window(0)
			window(11)
			window(0)
			if got := w.Past(); len(got) != 1 || got["get"] != c.want || past() != 1 || log.Count("add an instance") != 1 {
				t.Errorf("in every second window past the threshold: got %v, want %q; gauge %v, log:\n%s", got, c.want, past(), log.String())
			}
			window(0)
			if len(w.Past()) != 0 || past() != 0 || log.Count("within the threshold again") != 1 {
				t.Error("the recovery was not logged or not shown by the gauge")
			}
			window(11)
			w.judge()
			w.judge()
			if len(w.Past()) != 0 {
				t.Error("an operation without a request is past the threshold")
			}
		})
	}
}

// TestRefusalsArePastThreshold checks that a service that refuses requests at its limit reports the
// operation with the limit's option, and no longer after the limit is free again.
func TestRefusalsArePastThreshold(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	s, url := running(t, Config{InFlight: 1, Every: 100 * time.Millisecond, Slow: time.Hour, Routes: []Route{
		{Path: "/kv", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/kv/wait" {
				close(began)
				<-end
			}
		}), Operation: named},
	}}, io.Discard)
	t.Cleanup(release)
	var waiting sync.WaitGroup
	waiting.Go(func() { get(t, url+"/kv/wait") })
	<-began
	if got := get(t, url+"/kv/a"); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("above the limit: got %s, want 503", got.Status)
	}
	hosttest.Until(t, 30*time.Second, "the refusal is past the threshold", func() bool { return strings.Contains(s.Past()["op"], "(--max-requests)") })
	release()
	waiting.Wait()
	hosttest.Until(t, 30*time.Second, "the service is within its threshold again", func() bool { return len(s.Past()) == 0 })
}

// TestTooLargeForEveryStore checks that a request that exceeds a limit by itself is refused for good,
// and does not count towards the threshold: another store would not lift the limit.
func TestTooLargeForEveryStore(t *testing.T) {
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	s, url := running(t, Config{Bodies: 100, Answers: 10, Every: time.Hour, Routes: []Route{
		{Path: "/kv", Handler: h, Operation: named, Answer: func(r *http.Request) int64 { return int64(len(r.URL.RawQuery)) }},
	}}, io.Discard)
	for _, c := range []struct {
		name, path string
		body       io.Reader
		want       int
	}{
		{"body", "/kv", strings.NewReader(strings.Repeat("x", 101)), http.StatusRequestEntityTooLarge},
		{"body of unknown length", "/kv", io.MultiReader(strings.NewReader("x")), http.StatusRequestEntityTooLarge},
		{"answer", "/kv?12345678901", nil, http.StatusForbidden},
	} {
		got, err := http.Post(url+c.path, "", c.body)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != c.want || got.Header.Get("Retry-After") != "" {
			t.Errorf("%s: got status %d, Retry-After %q, want %d and none", c.name, got.StatusCode, got.Header.Get("Retry-After"), c.want)
		}
	}
	s.watch.judge()
	if past, n := s.Past(), value(s.refused.WithLabelValues("size")); len(past) != 0 || n != 3 {
		t.Errorf("got %v past the threshold, %v requests counted as too large, want none and 3", past, n)
	}
}

// A busyEngine refuses every read.
type busyEngine struct{ store.Engine }

func (busyEngine) Get(context.Context, store.Key, *store.Record) error {
	return &store.Busy{What: "etcd has too many requests", RetryAfter: time.Second}
}

// TestRefusalsOfAnEngineCountByTheirTime checks that a request that the engine refuses with 503 counts
// towards the threshold only if it was slow.
func TestRefusalsOfAnEngineCountByTheirTime(t *testing.T) {
	busy := kv.New(kv.Config{Engine: busyEngine{}, Now: time.Now})
	for slow, want := range map[time.Duration]string{time.Hour: "", time.Nanosecond: "1 of 1 requests took longer than 1ns"} {
		s, url := running(t, Config{Slow: slow, Every: time.Hour, Routes: []Route{{Path: "/kv", Handler: busy, Operation: named}}}, io.Discard)
		if got := get(t, url+"/kv/a"); got.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("got status %d, want 503", got.StatusCode)
		}
		hosttest.Until(t, time.Minute, "the request has ended", func() bool { return s.requests.taken() == 0 })
		s.watch.judge()
		if got := s.Past()["op"]; got != want {
			t.Errorf("with a threshold of %s: got reason %q, want %q", slow, got, want)
		}
	}
}

// TestQuick checks that quick requests are answered without net/http, under the same access rules
// and limits.
func TestQuick(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.ReadTokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s *Service
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, byNetHTTP := w.(http.Flusher); byNetHTTP != (r.URL.Path == "/kv") {
			t.Errorf("%s: answered by net/http: %t", r.URL.Path, byNetHTTP)
		}
		if n, from := s.requests.taken(), clientOf(r); n != 1 || !from.IsValid() {
			t.Errorf("%s: %d requests in progress, from %s", r.URL.Path, n, from)
		}
	})
	s, url := running(t, Config{Tokens: tokens, Routes: []Route{
		{Path: "/kv", Handler: h, Operation: named, Quick: func(r *http.Request) bool { return r.URL.Path != "/kv" }},
	}}, io.Discard)
	for _, at := range []string{"/kv/a", "/kv/b", "/kv"} { // the last one's connection stays with net/http
		if got := get(t, url+at); got.StatusCode != http.StatusUnauthorized || got.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without a token: got %s, want 401", at, got.Status)
		}
		if got := get(t, url+at, "Authorization", "Bearer "+token); got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", at, got.Status)
		}
	}
	if n := value(s.refused.WithLabelValues("token")); n != 3 {
		t.Errorf("%g requests were refused for their token, want 3", n)
	}
}
