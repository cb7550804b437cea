package rest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var loopback = netip.MustParseAddr("127.0.0.1")

func addrOf(l net.Addr) netip.AddrPort { return l.(*net.TCPAddr).AddrPort() }

// gone returns an address without a listener.
func gone(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return addrOf(l.Addr())
}

func TestClientPassesOverAnInstanceThatIsDown(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(r.Method + r.URL.Path + string(body)))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := NewClient("x", []netip.AddrPort{gone(t), addrOf(server.Listener.Addr())}, 4, 10*time.Second, loopback, prometheus.NewRegistry())
	defer c.Close()
	for range 30 {
		status, answer, err := c.Do(t.Context(), http.MethodPut, "/p", []byte("b"))
		if err != nil || status != http.StatusTeapot || string(answer) != "PUT/pb" {
			t.Fatalf("got %d %s, error %v", status, answer, err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("made %d connections for 30 sequential requests, want 1", n)
	}
	// The time of day must not count: it may be set back.
	if left := time.Duration(c.instances[0].aside.Load()) - time.Since(c.began); left <= 0 || left > setAside {
		t.Errorf("the instance that is down is set aside for %s, want up to %s", left, setAside)
	}
}

func TestClientErrors(t *testing.T) {
	c := NewClient("x", []netip.AddrPort{gone(t), gone(t)}, 4, 10*time.Second, loopback, prometheus.NewRegistry())
	if _, _, err := c.Do(t.Context(), http.MethodGet, "/", nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("server is down: got %v, want ErrUnreachable", err)
	}
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel connects, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	c = NewClient("x", []netip.AddrPort{addrOf(hanging.Addr())}, 4, 50*time.Millisecond, loopback, prometheus.NewRegistry())
	if _, _, err := c.Do(t.Context(), http.MethodGet, "/", nil); !errors.Is(err, ErrLate) {
		t.Errorf("server does not answer: got %v, want ErrLate", err)
	}
}

// resetting returns an address that resets each connection after it has read a
// request, and the count of the requests.
func resetting(t *testing.T) (netip.AddrPort, *atomic.Int32) {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	return addrOf(server.Listener.Addr()), &requests
}

// TestClientAsksEachInstanceOnce checks that only requests that may be repeated go
// to the next instance after one was lost on the way.
func TestClientAsksEachInstanceOnce(t *testing.T) {
	for method, want := range map[string]int32{http.MethodGet: 2, http.MethodPut: 2, http.MethodPost: 1} {
		a, first := resetting(t)
		b, second := resetting(t)
		c := NewClient("x", []netip.AddrPort{a, b}, 4, 10*time.Second, loopback, prometheus.NewRegistry())
		if _, _, err := c.Do(t.Context(), method, "/", []byte("b")); err == nil || errors.Is(err, ErrLate) {
			t.Errorf("%s: got error %v", method, err)
		}
		if got := first.Load() + second.Load(); got != want {
			t.Errorf("%s: the instances got %d requests, want %d", method, got, want)
		}
		c.Close()
	}
}

func TestClientPostsToAnotherInstanceIfOneIsDown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	for range 10 { // the first instance is random
		c := NewClient("x", []netip.AddrPort{gone(t), addrOf(server.Listener.Addr())}, 4, 10*time.Second, loopback, prometheus.NewRegistry())
		if status, _, err := c.Do(t.Context(), http.MethodPost, "/", []byte("b")); err != nil || status != http.StatusOK {
			t.Fatalf("got status %d, error %v", status, err)
		}
		c.Close()
	}
}

func TestClientIsCancelled(t *testing.T) {
	asked, end := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- true
		<-end
	}))
	defer server.Close()
	defer close(end)
	c := NewClient("x", []netip.AddrPort{addrOf(server.Listener.Addr())}, 4, time.Minute, loopback, prometheus.NewRegistry())
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, _, err := c.Do(ctx, http.MethodGet, "/", nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrLate) {
		t.Errorf("got error %v, want the error of the caller's context", err)
	}
	if c.instances[0].aside.Load() != 0 {
		t.Error("the instance was set aside when its caller gave up")
	}
}
