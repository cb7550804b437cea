package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/store/client"
)

// A counted is a store that counts its requests by method.
type counted struct {
	*httptest.Server
	gets, puts atomic.Int64
	broken     atomic.Bool // it ends connections without an answer
}

// count serves a store at an address; "": any.
func count(t *testing.T, address string) *counted {
	t.Helper()
	c := &counted{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet {
			c.gets.Add(1)
		} else {
			c.puts.Add(1)
		}
		if c.broken.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("ETag", `"1"`)
	}))
	if address != "" {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Listener.Close()
		c.Listener = l
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

// over returns the plain API of stores.
func over(t *testing.T, urls ...string) *client.KV {
	t.Helper()
	c, err := client.New(client.Config{Base: strings.Join(urls, ","), HTTP1: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.KV("")
}

func get(t *testing.T, kv *client.KV) error {
	_, err := kv.Get(t.Context(), "k", client.Conditions{})
	return err
}

func put(t *testing.T, kv *client.KV) error {
	_, err := kv.Put(t.Context(), "k", []byte("v"), "text/plain", 0, client.Conditions{})
	return err
}

// TestRequestsAreShared checks that stores that answer get equal shares, whatever the number of
// stores that do not.
func TestRequestsAreShared(t *testing.T) {
	t.Parallel()
	a, b := count(t, ""), count(t, "")
	kv := over(t, "http://"+hosttest.FreeAddress(t, "tcp"), "http://"+hosttest.FreeAddress(t, "tcp"), a.URL, b.URL+"/")
	for range 100 {
		if err := put(t, kv); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*counted{a, b} { // only requests that try a store again are out of turn
		if n := s.puts.Load(); n < 40 || n > 60 {
			t.Errorf("one store got %d of 100 requests, want about 50", n)
		}
	}
}

// TestFailedStoreIsLeftAndComesBack ends a store, and starts it again at its address.
func TestFailedStoreIsLeftAndComesBack(t *testing.T) {
	t.Parallel()
	address := hosttest.FreeAddress(t, "tcp")
	a, b := count(t, address), count(t, "")
	kv := over(t, a.URL, b.URL)
	for range 4 {
		if err := put(t, kv); err != nil {
			t.Fatal(err)
		}
	}
	if a.puts.Load() != 2 {
		t.Errorf("the first store got %d of 4 requests, want 2", a.puts.Load())
	}
	a.Close()
	for range 20 {
		if err := get(t, kv); err != nil {
			t.Fatal(err)
		}
	}
	again := count(t, address)
	hosttest.Until(t, 20*time.Second, "a request goes to the store that came back", func() bool {
		if err := put(t, kv); err != nil {
			t.Fatal(err)
		}
		return again.puts.Load() > 1 // the first one tries it
	})
}

// TestWritesAreNotRepeated checks that a write that a store may have made goes to no other store,
// and that a read does.
func TestWritesAreNotRepeated(t *testing.T) {
	t.Parallel()
	a, b := count(t, ""), count(t, "")
	kv := over(t, a.URL, b.URL)
	a.broken.Store(true)
	b.broken.Store(true)
	if err := put(t, kv); err == nil || a.puts.Load()+b.puts.Load() != 1 {
		t.Errorf("got error %v after %d requests, want an error after 1", err, a.puts.Load()+b.puts.Load())
	}
	a.broken.Store(false)
	kv = over(t, a.URL, b.URL)
	for range 4 {
		if err := get(t, kv); err != nil {
			t.Error(err)
		}
	}
	if a.gets.Load() != 4 || b.gets.Load() == 0 {
		t.Errorf("of 4 reads, the healthy store got %d and the broken store %d", a.gets.Load(), b.gets.Load())
	}
}

// TestWriteAfterFailedHandshake checks that a write goes on to the next store if the TLS handshake fails.
func TestWriteAfterFailedHandshake(t *testing.T) {
	t.Parallel()
	good := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"1"`) }))
	t.Cleanup(good.Close)
	roots := x509.NewCertPool()
	roots.AddCert(good.Certificate())
	plain := count(t, "") // speaks no TLS
	c, err := client.New(client.Config{Base: strings.Replace(plain.URL, "http:", "https:", 1) + "," + good.URL, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for range 4 { // some begin at the other store
		if err := put(t, c.KV("")); err != nil {
			t.Error(err)
		}
	}
}

// TestClockAhead checks the difference between this host's clock and the clocks of stores. Of several
// stores, the one with the nearest clock counts.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	dated := func(ahead time.Duration) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	undated := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }))
	t.Cleanup(undated.Close)
	right, early, late := dated(0), dated(-10*time.Minute), dated(time.Hour)
	for _, c := range []struct {
		name  string
		bases []string
		want  time.Duration
	}{
		{"a right clock", []string{right}, 0}, {"ahead of the store", []string{early}, 10 * time.Minute}, {"behind the store", []string{late}, -time.Hour},
		{"one wrong store of two", []string{late, right}, 0}, {"two wrong stores", []string{late, early}, 10 * time.Minute}, {"no Date", []string{undated.URL}, 0},
	} {
		k, err := client.New(client.Config{Base: strings.Join(c.bases, ","), HTTP1: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		if got := k.ClockAhead(); got != 0 {
			t.Errorf("%s: before an answer the difference is %s, want 0", c.name, got)
		}
		for range len(c.bases) { // each store answers once
			if err := get(t, k.KV("")); err != nil {
				t.Fatal(err)
			}
		}
		if got := k.ClockAhead(); (got - c.want).Abs() > 5*time.Second {
			t.Errorf("%s: this host's clock is ahead by %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBases(t *testing.T) {
	for _, base := range []string{"", "127.0.0.1:8070", "http://127.0.0.1:8070,", "http://127.0.0.1:8070,https://127.0.0.1:8071", "ftp://127.0.0.1:1"} {
		if _, err := client.New(client.Config{Base: base}); err == nil {
			t.Errorf("New accepted %q as base", base)
		}
	}
	for base, want := range map[string]bool{
		"http://10.0.0.5:8070": false, "http://127.0.0.1:8070,http://store:8070": false,
		"https://10.0.0.5:8070": true, "http://127.0.0.1:8070,http://[::1]:8071,http://localhost:8072": true,
	} {
		if _, err := client.New(client.Config{Base: base, Token: "secret"}); (err == nil) != want {
			t.Errorf("a token for %q: got error %v", base, err)
		}
	}
}
