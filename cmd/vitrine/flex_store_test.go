package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/internal/certtest"
	"vitrine/internal/hosttest"
	"vitrine/store/storetest"
)

// startStore runs a store over the engine embedded until the test ends. It returns its address.
func startStore(t *testing.T, arguments ...string) string {
	t.Helper()
	out := &hosttest.Output{}
	c := exec.CommandContext(t.Context(), "vitrine", append([]string{"store", "run", "--dir", filepath.Join(t.TempDir(), "records"), "--listen", "127.0.0.1:0"}, arguments...)...)
	c.Stdout = out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // an error means that it has ended
		_ = c.Wait()         // it was killed
	})
	hosttest.Until(t, 30*time.Second, "the store listens", func() bool { return strings.HasSuffix(out.String(), "\n") })
	address, is := strings.CutPrefix(strings.TrimSpace(out.String()), "listening on ")
	if !is {
		t.Fatalf("the store printed %q", out)
	}
	return address
}

// fetch returns the answer to a GET.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close() // all of it is read
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// asker returns the orchestrator's function that queries a store.
func asker(t *testing.T, s *config.Store) func(context.Context, string) (flex.StoreHealth, error) {
	t.Helper()
	ask, _, err := storeOf(&config.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return ask
}

// TestFlexShowsAStoreItsCertificate checks that the orchestrator reads the health of a store that
// demands client certificates, and that it uses a new certificate after it has read its files again.
// A broken file changes nothing.
func TestFlexShowsAStoreItsCertificate(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority := certtest.Loopback(t, dir, "authority", nil)
	certtest.Loopback(t, dir, "store", authority)
	certtest.Loopback(t, dir, "flex", authority)
	certtest.Loopback(t, dir, "stranger", nil)
	url := "https://" + startStore(t, "--tls-cert", file("store.pem"), "--tls-key", file("store.key"), "--client-ca", file("authority.pem"))
	given := &config.Store{URL: url, Authorities: file("authority.pem"), Certificate: file("flex.pem"), Key: file("flex.key")}
	ask, reread, err := storeOf(&config.Config{Store: given})
	if err != nil {
		t.Fatal(err)
	}
	answers := func(when string, ask func(context.Context, string) (flex.StoreHealth, error), want bool) {
		t.Helper()
		health, err := ask(t.Context(), url)
		if got := err == nil && health.Engine == "embedded"; got != want {
			t.Errorf("%s: got %+v, %v, want an answer: %t", when, health, err, want)
		}
	}
	answers("with a certificate", ask, true)
	answers("without a certificate", asker(t, &config.Store{URL: url, Authorities: file("authority.pem")}), false)
	answers("with a stranger's", asker(t, &config.Store{URL: url, Authorities: file("authority.pem"), Certificate: file("stranger.pem"), Key: file("stranger.key")}), false)
	if err := os.WriteFile(given.Key, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reread(); !vitrine.IsBadInput(err) {
		t.Errorf("with a broken key: got %v, want bad input", err)
	}
	answers("after a broken key was read", ask, true)
	if _, _, err := storeOf(&config.Config{Store: given}); !vitrine.IsBadInput(err) {
		t.Errorf("at the start with a broken key: got %v, want bad input", err)
	}
	certtest.Loopback(t, dir, "flex", nil) // the store does not know its signer
	if err := reread(); err != nil {
		t.Error(err)
	}
	answers("after another certificate was read", ask, false)
}

// TestFlexNeedsNoTokenOfAStore checks that the orchestrator reads the health of a store that refuses
// everything else without a token.
func TestFlexNeedsNoTokenOfAStore(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(flexToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "http://" + startStore(t, "--token-file", tokens)
	health, err := asker(t, &config.Store{URL: url})(t.Context(), url)
	if err != nil || health.Engine != "embedded" {
		t.Errorf("got %+v, %v, want the health of a store over the engine embedded", health, err)
	}
	for _, path := range []string{"/metrics", "/kv/a"} {
		if got, _ := fetch(t, url+path); got != http.StatusUnauthorized {
			t.Errorf("%s without a token: got status %d, want 401", path, got)
		}
	}
}

// TestFlexSeesAStoppedEngine checks that a store whose Redis does not answer gives the orchestrator no
// usable answer, and that it gives one again when Redis goes on.
func TestFlexSeesAStoppedEngine(t *testing.T) {
	server, process := storetest.RedisProcess(t)
	url := "http://" + startStore(t, "--engine", "redis", "--engine-server", server)
	ask := asker(t, &config.Store{URL: url})
	if health, err := ask(t.Context(), url); err != nil || health.Engine != "redis" {
		t.Errorf("got %+v, %v, want the health of a store over the engine redis", health, err)
	}
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, 20*time.Second, "the store says that its engine does not answer", func() bool { // at first by the last probe
		_, err := ask(t.Context(), url)
		return err != nil && strings.Contains(err.Error(), "its engine redis does not answer")
	})
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, 20*time.Second, "the store answers with its Redis", func() bool {
		_, err := ask(t.Context(), url)
		return err == nil
	})
}

// TestFlexSeesRefusals checks that the orchestrator sees a store that refuses requests at its limit
// as past its threshold, with the reason.
func TestFlexSeesRefusals(t *testing.T) {
	address := startStore(t, "--max-requests", "1", "--slow-window", "100ms", "--slow", "1h")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	url := "http://" + address
	hosttest.Until(t, 30*time.Second, "a request is in progress", func() bool {
		_, text := fetch(t, url+"/metrics")
		return strings.Contains(text, "vitrine_store_requests_in_flight 1\n")
	})
	ask := asker(t, &config.Store{URL: url})
	hosttest.Until(t, 20*time.Second, "the store is past its threshold because of --max-requests", func() bool {
		if got, _ := fetch(t, url+"/kv/a"); got != http.StatusServiceUnavailable {
			t.Errorf("beside a request in progress: got status %d, want 503", got)
		}
		health, err := ask(t.Context(), url)
		return err == nil && len(health.Past) == 1 && strings.Contains(health.Reasons[health.Past[0]], "refused: too many requests at the same time (--max-requests)")
	})
}

// TestFlexSeesOnlyWhatAMemberLifts checks that the orchestrator sees an operation past its threshold
// if another store would take its requests. Requests that each store would refuse do not count: those
// at --max-watches, and those whose body or answer exceeds a limit by itself.
func TestFlexSeesOnlyWhatAMemberLifts(t *testing.T) {
	address := startStore(t, "--max-requests", "1", "--max-watches", "1", "--max-bodies", "1000", "--max-answers", "1000", "--slow-window", "1s", "--slow", "1h")
	begin := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err == nil {
			_, err = io.WriteString(c, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	const watch = "GET /kv HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
	status := func(text string) string {
		t.Helper()
		line, err := bufio.NewReader(begin(text)).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(line)[1]
	}
	if got := status(watch); got != "200" {
		t.Fatalf("the first watch: got status %s, want 200", got)
	}
	begin("PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
	url := "http://" + address
	ask := asker(t, &config.Store{URL: url})
	hosttest.Until(t, 20*time.Second, "the store is past its threshold because of --max-requests", func() bool {
		for text, want := range map[string]string{
			watch: "429",
			"GET /kv?values=true HTTP/1.1\r\nHost: localhost\r\n\r\n":                                           "403",
			"PUT /kv/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n" + strings.Repeat("x", 1001): "413",
		} {
			if got := status(text); got != want {
				t.Errorf("%q: got status %s, want %s", text, got, want)
			}
		}
		fetch(t, url+"/kv/a")
		health, err := ask(t.Context(), url)
		if err != nil || !slices.Contains(health.Past, "kv get") {
			return false
		}
		if len(health.Past) != 1 {
			t.Errorf("past the threshold: got %q, want kv get alone", health.Reasons)
		}
		return true
	})
}
