package callback_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/store/nudsf/callback"
)

func TestTargets(t *testing.T) {
	list, err := callback.ParseTargets([]string{"nf.example", "*.lab.example", "10.1.0.0/16", "[::1]:8080", "192.0.2.1:90", "AMF.example:443", "[2001:db8::5]:80"})
	if err != nil {
		t.Fatal(err)
	}
	for uri, allowed := range map[string]bool{
		"http://nf.example/x": true, "https://NF.example:8443/x?y=1": true, "http://a.lab.example": true,
		"http://10.1.2.3:80/": true, "http://[::ffff:10.1.2.3]/": true, "http://[::1]:8080/": true, "http://192.0.2.1:90": true,
		"https://amf.example/cb": true, "https://amf.example:443": true, "http://amf.example/cb": false, "http://[2001:DB8::5]/": true, "https://[2001:db8::5]/": false,
		"http://lab.example/": false, "http://evillab.example/": false, "http://10.2.0.1/": false, "http://192.0.2.1/": false,
		"http://nf.example@evil.example/": false, "http://user@nf.example/": false, "http://nf.example/#x": false,
		"ftp://nf.example/": false, "file:///etc/passwd": false, "//nf.example/": false, "": false, "http://": false, "http://%zz/": false,
	} {
		if _, err := list.Check(uri); (err == nil) != allowed {
			t.Errorf("%q: %v", uri, err)
		}
	}
	var all callback.Targets
	for uri, allowed := range map[string]bool{"http://anywhere": true, "gopher://anywhere": false} {
		if _, err := all.Check(uri); (err == nil) != allowed {
			t.Errorf("%q without a list: got error %v", uri, err)
		}
	}
	for _, bad := range []string{"10.0.0.0/99", ""} {
		if _, err := callback.ParseTargets([]string{bad}); err == nil {
			t.Errorf("ParseTargets accepted %q", bad)
		}
	}
}

func FuzzTargets(f *testing.F) {
	for _, s := range []string{"http://h/", "https://[::1]:1/", "http://10.0.0.1", "http://h@g", "x"} {
		f.Add(s)
	}
	list, err := callback.ParseTargets([]string{"10.0.0.0/8", "*.example"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if u, err := list.Check(uri); err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.User != nil) {
			t.Fatalf("the list allows %q", uri)
		}
	})
}

// listen serves a handler on loopback over the given protocols.
func listen(t *testing.T, h http.HandlerFunc, http1, http2 bool) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(http2)
	web := &http.Server{Handler: h, Protocols: p, ReadHeaderTimeout: time.Minute}
	var group sync.WaitGroup
	group.Go(func() { _ = web.Serve(l) })
	t.Cleanup(func() { _ = web.Close(); group.Wait() })
	return "http://" + l.Addr().String()
}

// running returns a sender that runs until the end of the test.
func running(t *testing.T, c callback.Config) *callback.Sender {
	t.Helper()
	s := callback.New(c)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	group.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); group.Wait() })
	return s
}

// TestProtocols sends to receivers that speak HTTP/2 with prior knowledge, HTTP/1.1, or both.
func TestProtocols(t *testing.T) {
	s := running(t, callback.Config{Targets: targets(t, "127.0.0.1")})
	for want, speaks := range map[string][2]bool{"HTTP/1.1": {true, false}, "HTTP/2.0": {false, true}, "HTTP/2.0 ": {true, true}} {
		var got sync.Map
		var count atomic.Int64
		base := listen(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == "PRI" { // an HTTP/1.1 server sees the preface of HTTP/2 as a request
				return
			}
			body, _ := io.ReadAll(r.Body)
			got.Store(r.Proto+" "+string(body)+" "+r.Header.Get("3gpp-Sbi-Callback"), true)
			count.Add(1)
		}, speaks[0], speaks[1])
		const messages = 3
		outcomes := make(chan error, messages)
		for range messages {
			err := s.Send(callback.Message{Target: base, Kind: "kind", ContentType: "text/plain", Body: []byte("hello"), Done: func(err error) { outcomes <- err }})
			if err != nil {
				t.Fatal(err)
			}
		}
		for range messages {
			if err := <-outcomes; err != nil {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, ok := got.Load(want[:8] + " hello kind"); !ok || count.Load() != messages {
			t.Errorf("%s: received %d of %d messages", want, count.Load(), messages)
		}
	}
}

// TestOrder sends messages with one key to a receiver that often fails. They must arrive in order.
func TestOrder(t *testing.T) {
	var failures atomic.Int64
	var mu sync.Mutex
	var came []string
	base := listen(t, func(w http.ResponseWriter, r *http.Request) {
		if failures.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		came = append(came, string(body))
	}, true, true)
	s := running(t, callback.Config{Targets: targets(t, "127.0.0.1"), Backoff: time.Millisecond})
	var done sync.WaitGroup
	const messages = 50
	for i := range messages {
		done.Add(1)
		if err := s.Send(callback.Message{Target: base, Key: "k", Body: []byte(strconv.Itoa(i)), Done: func(error) { done.Done() }}); err != nil {
			t.Fatal(err)
		}
	}
	done.Wait()
	for i, body := range came {
		if body != strconv.Itoa(i) {
			t.Fatalf("got messages %v, want them in order", came)
		}
	}
	if c := s.Counters(); c.Sent != messages || c.Retried == 0 || c.Waiting != 0 {
		t.Errorf("%+v", c)
	}
}

// TestBounds fills the queues while the sender sends nothing.
func TestBounds(t *testing.T) {
	s := callback.New(callback.Config{Queue: 10, Receivers: 3, Bytes: 100_000})
	full := 0
	for range 15 {
		if err := s.Send(callback.Message{Target: "http://a"}); errors.Is(err, callback.ErrFull) {
			full++
		}
	}
	if full != 5 {
		t.Errorf("a queue of 10 refused %d of 15 messages, want 5", full)
	}
	if err := s.Send(callback.Message{Target: "http://b", Body: make([]byte, 100_001)}); !errors.Is(err, callback.ErrFull) {
		t.Errorf("message above the byte limit: got %v, want ErrFull", err)
	}
	for _, host := range []string{"b", "c"} {
		if err := s.Send(callback.Message{Target: "http://" + host}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Send(callback.Message{Target: "http://d"}); !errors.Is(err, callback.ErrFull) {
		t.Errorf("fourth receiver with a limit of 3: got %v, want ErrFull", err)
	}
	if c := s.Counters(); c.Waiting != 12 || c.Dropped != 7 {
		t.Errorf("%+v", c)
	}
}

// TestBytes checks that the bound in bytes counts whole messages, not only their bodies.
func TestBytes(t *testing.T) {
	const limit = 64 << 10
	s := callback.New(callback.Config{Bytes: limit})
	target, key := "http://a/"+strings.Repeat("x", 2000), strings.Repeat("k", 500)
	held := 0
	for range 100 {
		err := s.Send(callback.Message{Target: target, Key: key, ContentLocation: key})
		if errors.Is(err, callback.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held += len(target) + 2*len(key)
	}
	if most := limit / 4; held > most || held < most/2 {
		t.Errorf("the queue of a receiver holds %d bytes of messages without bodies, want at most %d and at least half of it", held, most)
	}
	if err := s.Send(callback.Message{Target: "http://b/"}); err != nil {
		t.Errorf("a full receiver leaves no room for another one: %v", err)
	}
}

// TestReadyCountsTheBody checks that a receiver whose queue is nearly full of bytes is ready for a small
// message, but not for a large one.
func TestReadyCountsTheBody(t *testing.T) {
	const large, target = 768 << 10, "http://a"
	s := callback.New(callback.Config{})
	body := make([]byte, large)
	for full := false; !full; {
		err := s.Send(callback.Message{Target: target, Body: body})
		if full = errors.Is(err, callback.ErrFull); err != nil && !full {
			t.Fatal(err)
		}
	}
	if err := s.Ready(target, false, large); !errors.Is(err, callback.ErrFull) {
		t.Errorf("ready for a large message: got %v, want ErrFull", err)
	}
	if err := s.Ready(target, false, 0); err != nil {
		t.Errorf("ready for a small message: %v", err)
	}
}

// TestEnd ends the sender while messages wait. Each must get ErrClosed.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := callback.New(callback.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var closed atomic.Int64
		for range 5 {
			if err := s.Send(callback.Message{Target: "http://a", Done: func(err error) {
				if errors.Is(err, callback.ErrClosed) {
					closed.Add(1)
				}
			}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if closed.Load() != 5 {
			t.Errorf("notified %d of 5 receivers", closed.Load())
		}
		if err := s.Send(callback.Message{Target: "http://a"}); !errors.Is(err, callback.ErrClosed) {
			t.Errorf("send after Close: got %v, want ErrClosed", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: time.Second, 3: 8 * time.Second, 6: time.Minute, 63: time.Minute, 1000: time.Minute} {
		for range 20 {
			if got := callback.Backoff(failures, time.Second, time.Minute); got > want || got < want*3/4-1 {
				t.Errorf("backoff after %d failures: got %s, want up to %s", failures, got, want)
			}
		}
	}
}
