package callback

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A slow transport answers each request with a status after a time.
type slow struct {
	status   int
	after    time.Duration
	requests atomic.Int64
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	select {
	case <-time.After(s.after):
		return &http.Response{StatusCode: s.status, Body: http.NoBody, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestSlowReceiver sends to a receiver that answers late in a try. It must get the message once, and
// be known to speak HTTP/2. A receiver that says nothing over HTTP/2 must get the message over
// HTTP/1.1 at the next try.
func TestSlowReceiver(t *testing.T) {
	const timeout = 400 * time.Millisecond
	for _, c := range []struct {
		after   time.Duration
		retried uint64
		known   func(*client) *http.Client
	}{
		{timeout * 3 / 4, 0, func(c *client) *http.Client { return c.http2 }},
		{2 * timeout, 1, func(c *client) *http.Client { return c.http1 }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{Timeout: timeout})
			http1, http2 := &slow{status: http.StatusNoContent}, &slow{status: http.StatusNoContent, after: c.after}
			s.client.http1.Transport, s.client.http2.Transport = http1, http2
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = s.Run(ctx) })
			outcome := make(chan error, 1)
			if err := s.Send(Message{Target: "http://a", Done: func(err error) { outcome <- err }}); err != nil {
				t.Fatal(err)
			}
			if err := <-outcome; err != nil {
				t.Error(err)
			}
			cancel()
			running.Wait()
			if got := s.Counters(); got.Sent != 1 || got.Retried != c.retried {
				t.Errorf("answer after %s: got %+v, want %d retries", c.after, got, c.retried)
			}
			if one, two := http1.requests.Load(), http2.requests.Load(); two != 1 || one != int64(c.retried) {
				t.Errorf("answer after %s: got %d requests over HTTP/2 and %d over HTTP/1.1", c.after, two, one)
			}
			if s.client.remembered("http://a") != c.known(s.client) {
				t.Errorf("answer after %s: the receiver is not known for its protocol", c.after)
			}
		})
	}
}

// TestOneSlowAnswer checks that a message without an answer does not replace a protocol that another
// message has found meanwhile.
func TestOneSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		s.client.http2.Transport = &slow{status: http.StatusNoContent, after: time.Hour}
		u, err := s.config.Targets.Check("http://a")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { s.client.remember("http://a", s.client.http2) })
		if err := s.client.post(t.Context(), waiting{url: u}); err == nil {
			t.Error("a post without an answer succeeded")
		}
		if s.client.remembered("http://a") != s.client.http2 {
			t.Error("the receiver is not known for HTTP/2")
		}
	})
}

// TestFailingReceiver sends many messages to a receiver that keeps failing. The tries must have
// pauses, so that such a receiver costs little.
func TestFailingReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Lanes: 1})
		failing := &slow{status: http.StatusServiceUnavailable}
		s.client.http2.Transport = failing
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		for range 100 {
			if err := s.Send(Message{Target: "http://a"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		cancel()
		running.Wait()
		if n := failing.requests.Load(); n < 10 || n > 20 {
			t.Errorf("got %d requests in a minute, want 5 for the first message and then one in up to 10 s", n)
		}
	})
}
