package service

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/store"
	"vitrine/store/kv"
	"vitrine/store/nudsf/rest"
)

// A pipes is a listener with connections in memory, whose deadlines use the test's clock.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.accept <- theirs
	return ours, nil
}

// served runs a service over pipes.
func served(t *testing.T, h http.Handler) (s *Service, p *pipes, stop func()) {
	t.Helper()
	s = New(Config{
		Routes:   []Route{{Path: "/kv", Handler: h, Operation: kv.Operation}},
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	p = &pipes{make(chan net.Conn), make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, p) }()
	return s, p, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// piped runs a test against a handler, over both HTTP versions, each in its own synctest bubble.
func piped(t *testing.T, h http.Handler, test func(t *testing.T, s *Service, c *http.Client)) {
	t.Helper()
	for _, name := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p, stop := served(t, h)
				protocols := new(http.Protocols)
				protocols.SetHTTP1(name == "HTTP/1.1")
				protocols.SetUnencryptedHTTP2(name == "HTTP/2.0")
				transport := &http.Transport{DialContext: p.dial, Protocols: protocols}
				test(t, s, &http.Client{Transport: transport})
				transport.CloseIdleConnections()
				stop()
			})
		})
	}
}

var large http.HandlerFunc = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 16<<20)) }

// wantDoneInAMinute checks that one request is being served now, and none a minute later.
func wantDoneInAMinute(t *testing.T, s *Service) {
	t.Helper()
	synctest.Wait()
	if n := s.requests.taken(); n != 1 {
		t.Fatalf("%d requests are in progress, want 1", n)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if n := s.requests.taken(); n != 0 {
		t.Errorf("%d requests are in progress after a minute, want 0", n)
	}
}

// TestStall checks that a client that does not read its answer holds its request for at most a
// minute.
func TestStall(t *testing.T) {
	piped(t, large, func(t *testing.T, s *Service, c *http.Client) {
		got, err := c.Get("http://localhost/kv")
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		wantDoneInAMinute(t, s)
	})
}

// TestDeaf is like TestStall, but with an HTTP/2 client that does not even read the connection.
func TestDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, stop := served(t, large)
		c, _ := p.dial(t.Context(), "", "")
		settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		headers := "\x00\x00\x12\x01\x05\x00\x00\x00\x01" + "\x82\x86\x44\x03/kv\x41\x09localhost"
		if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+headers); err != nil {
			t.Fatal(err)
		}
		wantDoneInAMinute(t, s)
		c.Close()
		stop()
	})
}

// TestLongWork checks that a long request is answered and that its client then has its full time to
// read.
func TestLongWork(t *testing.T) {
	long := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, err := rest.Long(w, func() (string, error) {
			time.Sleep(time.Hour)
			return "done", r.Context().Err()
		})
		fmt.Fprint(w, done, err)
		large(w, r)
	})
	piped(t, long, func(t *testing.T, s *Service, c *http.Client) {
		got, err := c.Get("http://localhost/kv")
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		said := make([]byte, len("done<nil>"))
		if _, err := io.ReadFull(got.Body, said); err != nil || string(said) != "done<nil>" {
			t.Errorf("after an hour of work: got %q, error %v", said, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.requests.taken(); n != 0 {
			t.Errorf("%d requests are in progress after a minute, want 0", n)
		}
	})
}

// A quiet engine has watches that send only the test's events.
type quiet struct {
	store.Engine
	events chan *store.Event
}

func (q *quiet) Watch(ctx context.Context, _, _ string, _ uint64) iter.Seq2[*store.Event, error] {
	return func(yield func(*store.Event, error) bool) {
		for {
			select {
			case v, more := <-q.events:
				if !more || !yield(v, nil) {
					return
				}
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
	}
}

// TestLongWatch checks that an idle watch outlives all timeouts.
func TestLongWatch(t *testing.T) {
	q := &quiet{}
	h := kv.New(kv.Config{Engine: q, Now: time.Now})
	piped(t, h, func(t *testing.T, _ *Service, c *http.Client) {
		q.events = make(chan *store.Event, 2)
		q.events <- &store.Event{Change: store.Started}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/kv", nil)
		r.Header.Set("Accept", "text/event-stream")
		got, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		time.AfterFunc(time.Hour, func() {
			q.events <- &store.Event{Change: store.Written}
			close(q.events)
		})
		last := ""
		for lines := bufio.NewScanner(got.Body); lines.Scan(); {
			if line := lines.Text(); strings.HasPrefix(line, "event: ") {
				last = line
			}
		}
		if _, err := io.Copy(io.Discard, got.Body); err != nil || last != "event: written" {
			t.Errorf("after an hour the watch returned %q, error %v", last, err)
		}
	})
}

// TestWatchEndsWithTheService ends a service with an open watch. The client must learn why the watch ends, and
// the service must not wait for the client to leave.
func TestWatchEndsWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{events: make(chan *store.Event, 1)}
		q.events <- &store.Event{Change: store.Started}
		_, p, stop := served(t, kv.New(kv.Config{Engine: q, Now: time.Now}))
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/kv", nil)
		r.Header.Set("Accept", "text/event-stream")
		transport := &http.Transport{DialContext: p.dial}
		defer transport.CloseIdleConnections()
		got, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		read := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(got.Body)
			read <- string(text)
		}()
		began := time.Now()
		stop()
		if took := time.Since(began); took >= graceTime {
			t.Errorf("the service ended after %v, want less than %v", took, graceTime)
		}
		if text := <-read; !strings.Contains(text, "event: end\ndata: {\"status\":503,") {
			t.Errorf("the watch ended with %q, want an event end of status 503", text)
		}
	})
}
