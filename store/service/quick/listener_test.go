package quick

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A site is a Listener in front of an http.Server. Both have the same handler.
type site struct {
	*Listener
	server http.Server
	log    bytes.Buffer
	mu     sync.Mutex
	by     []string // which package answered: quick or net/http
}

func newSite(t *testing.T, h http.HandlerFunc) *site {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by := "net/http"
		if _, is := w.(*answer); is {
			by = "quick"
		}
		s.mu.Lock()
		s.by = append(s.by, by)
		s.mu.Unlock()
		h(w, r)
	})
	s.Listener = Listen(inner, Config{
		Handler: handler, Quick: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/q/") },
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)), First: time.Minute, Idle: time.Minute, Write: time.Minute,
	})
	s.server.Handler = handler
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(s.Listener) }()
	t.Cleanup(func() {
		if err := errors.Join(s.server.Close(), s.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// client is a connection to a site.
type client struct {
	net.Conn
	read *bufio.Reader
}

func (s *site) dial(t *testing.T) *client {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &client{c, bufio.NewReader(c)}
}

// ask writes text to the connection and reads that many answers to GETs.
func (c *client) ask(t *testing.T, text string, answers int) (all []*http.Response, bodies []string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	for range answers {
		got, err := http.ReadResponse(c.read, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		all, bodies = append(all, got), append(bodies, string(body))
	}
	return all, bodies
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+string(body))
}

func ask(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }

// TestPassesOn checks that net/http gets a connection at the first request that is not quick, with
// all later requests. Each request must be answered once and in order.
func TestPassesOn(t *testing.T) {
	s := newSite(t, echo)
	c := s.dial(t)
	put := "PUT /q/b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
	_, bodies := c.ask(t, ask("/q/a")+put+ask("/slow")+ask("/q/c"), 4)
	if got, want := strings.Join(bodies, ", "), "GET /q/a , PUT /q/b abc, GET /slow , GET /q/c "; got != want {
		t.Errorf("got answers %q, want %q", got, want)
	}
	if got := strings.Join(s.by, " "); got != "quick quick net/http net/http" {
		t.Errorf("requests were answered by %s", got)
	}
}

// TestPartsOfARequest checks that net/http gets a request that arrives in parts.
func TestPartsOfARequest(t *testing.T) {
	s := newSite(t, echo)
	c := s.dial(t)
	c.ask(t, ask("/q/a"), 1)
	whole := "PUT /q/b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n"
	got, _ := c.ask(t, whole, 1) // a server that has read the head answers 100
	if got[0].StatusCode != http.StatusContinue {
		t.Fatal(got[0].Status)
	}
	if _, bodies := c.ask(t, strings.Repeat("x", 5000), 1); len(bodies[0]) != len("PUT /q/b ")+5000 {
		t.Errorf("got an answer of %d bytes", len(bodies[0]))
	}
}

// TestAnswersAsNetHTTP checks that package quick and net/http give the same answers.
func TestAnswersAsNetHTTP(t *testing.T) {
	large := strings.Repeat("x", 2*largeBytes)
	for name, h := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"created": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		"no content": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			w.WriteHeader(http.StatusNoContent)
		},
		"unchanged": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotModified)
			_, _ = io.WriteString(w, "a")
		},
		"of no type": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"line ends":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", "a\r\nB: c\n") },
		"large": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", strconv.Itoa(len(large)))
			_, _ = io.WriteString(w, large)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, h)
			quick, bodies := s.dial(t).ask(t, strings.Repeat(ask("/q/a"), 2), 2)
			theirs, want := s.dial(t).ask(t, ask("/a"), 1)
			for i, got := range quick {
				if _, err := http.ParseTime(got.Header.Get("Date")); err != nil {
					t.Error(err)
				}
				if got.Header.Del("Date"); i == 0 {
					theirs[0].Header.Del("Date")
				}
				var ours, them bytes.Buffer
				_, _ = got.Header.WriteSubset(&ours, nil), theirs[0].Header.WriteSubset(&them, nil)
				if got.Status != theirs[0].Status || bodies[i] != want[0] || ours.String() != them.String() {
					t.Errorf("got %s %.20q\n%s want %s %.20q\n%s", got.Status, bodies[i], &ours, theirs[0].Status, want[0], &them)
				}
			}
		})
	}
}

// TestShutdown checks that a listener that shuts down closes idle connections, and answers a
// running request before it closes that connection.
func TestShutdown(t *testing.T) {
	running, finish := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(http.ResponseWriter, *http.Request) { close(running); <-finish })
	idle, busy := s.dial(t), s.dial(t)
	if _, err := io.WriteString(busy, ask("/q/a")); err != nil {
		t.Fatal(err)
	}
	<-running
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	if _, err := idle.read.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: got %v, want EOF", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the connection ended before its request: %v", err)
	default:
	}
	close(finish)
	busy.ask(t, "", 1)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestShutdownEndsInTime checks that a client that does not read does not delay the shutdown.
func TestShutdownEndsInTime(t *testing.T) {
	const size = 64 << 20
	running := make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		close(running)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(make([]byte, size))
	})
	c := s.dial(t)
	if _, err := io.WriteString(c, ask("/q/a")); err != nil {
		t.Fatal(err)
	}
	<-running
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n, err := io.Copy(io.Discard, c.read); err == nil && n >= size {
		t.Errorf("read all %d octets of the answer, want an error", n)
	}
}

// TestPanic checks that a handler that panics ends only its own connection.
func TestPanic(t *testing.T) {
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/q/panic" {
			panic("cause")
		}
	})
	c := s.dial(t)
	if _, err := io.WriteString(c, ask("/q/panic")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.read.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("connection after a panic: got %v, want EOF", err)
	}
	s.dial(t).ask(t, ask("/q/a"), 1)
	if !strings.Contains(s.log.String(), "cause") {
		t.Errorf("got log %q, want the cause of the panic", &s.log)
	}
}
