package service

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vitrine/internal/access"
	"vitrine/internal/certtest"
	"vitrine/internal/hosttest"
)

// certify writes a self-signed certificate for loopback.
func certify(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	return certtest.Write(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true},
		nil, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")).Certificate
}

// trusting returns a client over TLS that opens a new connection for each request.
func trusting(t *testing.T, c *x509.Certificate, http2 bool) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(c)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: http2, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// TestTLS checks that handlers see TLS requests, and that clients use HTTP/2 if they can.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	own := certify(t, dir)
	secure, err := LoadTLS(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan *http.Request, 1)
	_, url := running(t, Config{TLS: secure, Routes: []Route{{Path: "/kv", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r })}}}, io.Discard)
	for want, http2 := range map[string]bool{"HTTP/2.0": true, "HTTP/1.1": false} {
		got, err := trusting(t, own, http2).Get("https" + url[len("http"):] + "/kv")
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if r := <-seen; r.TLS == nil || r.Proto != want || got.Proto != want {
			t.Errorf("request by %s, answer by %s, want %s; TLS: %v", r.Proto, got.Proto, want, r.TLS != nil)
		}
	}
}

// TestReload changes tokens and certificates while the service runs. Broken files must change
// nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	old := certify(t, dir)
	path := filepath.Join(dir, "tokens")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(token + "\n")
	tokens, err := access.ReadTokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	secure, err := LoadTLS(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	reload := make(chan struct{})
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	log := &hosttest.Output{}
	s, url := running(t, Config{TLS: secure, Tokens: tokens, Reload: reload, Version: "v1", Routes: []Route{{Path: "/kv", Handler: ok}}}, log)
	answers := func(c *x509.Certificate, token string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https"+url[len("http"):]+"/kv", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := trusting(t, c, true).Do(r)
		if err != nil {
			return 0
		}
		got.Body.Close()
		return got.StatusCode
	}
	read := func(line string, n int) {
		t.Helper()
		reload <- struct{}{}
		hosttest.Until(t, time.Minute, line, func() bool { return log.Count(line) == n })
	}
	if got := answers(old, token); got != http.StatusOK {
		t.Errorf("before the reload: got status %d, want 200", got)
	}
	put("short\n")
	read("the old ones stay in use", 1)
	wantMetric(t, s, "vitrine_store_reload_failed", 1)
	wantMetric(t, s, "vitrine_store_certificate_expiry_timestamp_seconds", float64(old.NotAfter.Unix()))
	wantMetric(t, s, "vitrine_store_build_info", 1)
	if got := answers(old, token); got != http.StatusOK {
		t.Errorf("after a reload with a broken file: got status %d, want 200", got)
	}
	next := certify(t, dir)
	put("another-long-token-1\n")
	read("were read again", 1)
	wantMetric(t, s, "vitrine_store_reload_failed", 0)
	wantMetric(t, s, "vitrine_store_certificate_expiry_timestamp_seconds", float64(next.NotAfter.Unix()))
	if got := answers(next, "another-long-token-1"); got != http.StatusOK {
		t.Errorf("new certificate and token: got status %d, want 200", got)
	}
	if got := answers(next, token); got != http.StatusUnauthorized {
		t.Errorf("old token: got status %d, want 401", got)
	}
	if got := answers(old, token); got != 0 {
		t.Errorf("old certificate: got status %d, want no connection", got)
	}
}

// TestPerSource checks that one source's connections leave room for another's, and that a source at
// its limit may connect again after it closes one.
func TestPerSource(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	s, url := running(t, Config{Connections: 10, PerSource: 3, Routes: []Route{{Path: "/kv", Handler: ok, Open: true}}}, io.Discard)
	taken := func(c net.Conn) bool {
		if _, err := io.WriteString(c, "GET /kv HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return false
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := io.ReadFull(c, make([]byte, 8))
		return err == nil
	}
	var first net.Conn
	for i := range 3 {
		c := dialFrom(t, "127.0.0.1", url)
		if first == nil {
			first = c
		}
		if !taken(c) {
			t.Errorf("connection %d was refused", i)
		}
	}
	for range 20 {
		if taken(dialFrom(t, "127.0.0.1", url)) {
			t.Fatal("a fourth connection was accepted")
		}
	}
	if n := value(s.refused.WithLabelValues("source")); n != 20 {
		t.Errorf("counted %v refused connections, want 20", n)
	}
	if !taken(dialFrom(t, "127.0.0.2", url)) {
		t.Error("a connection from another address was refused")
	}
	first.Close()
	hosttest.Until(t, time.Minute, "room for one more", func() bool { return taken(dialFrom(t, "127.0.0.1", url)) })
}
