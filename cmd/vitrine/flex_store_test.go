package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/flex/config"
	"vitrine/internal/hosttest"
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

// TestFlexNeedsNoTokenOfAStore checks that the orchestrator reads the health of a store that refuses
// everything else without a token.
func TestFlexNeedsNoTokenOfAStore(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(flexToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "http://" + startStore(t, "--token-file", tokens)
	health, err := storeOf(&config.Config{Store: &config.Store{URL: url}})(t.Context(), url)
	if err != nil || health.Engine != "embedded" {
		t.Errorf("got %+v, %v, want the health of a store over the engine embedded", health, err)
	}
	for _, path := range []string{"/metrics", "/kv/a"} {
		if got, _ := fetch(t, url+path); got != http.StatusUnauthorized {
			t.Errorf("%s without a token: got status %d, want 401", path, got)
		}
	}
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
	if _, err := io.WriteString(c, "PUT /kv/a HTTP/1.1\r\nHost: store\r\nContent-Length: 9\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	url := "http://" + address
	hosttest.Until(t, 30*time.Second, "a request is in progress", func() bool {
		_, text := fetch(t, url+"/metrics")
		return strings.Contains(text, "vitrine_store_requests_in_flight 1\n")
	})
	ask := storeOf(&config.Config{Store: &config.Store{URL: url}})
	hosttest.Until(t, 20*time.Second, "the store is past its threshold because of --max-requests", func() bool {
		if got, _ := fetch(t, url+"/kv/a"); got != http.StatusServiceUnavailable {
			t.Errorf("beside a request in progress: got status %d, want 503", got)
		}
		health, err := ask(t.Context(), url)
		return err == nil && len(health.Past) == 1 && strings.Contains(health.Reasons[health.Past[0]], "refused: too many requests at the same time (--max-requests)")
	})
}
