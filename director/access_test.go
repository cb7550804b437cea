package director

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/internal/access"
	"vitrine/internal/certtest"
)

const token = "0123456789abcdef0123456789abcdef"

// TestTokens checks that only /healthz and /openapi.yaml answer without a token, and that refusals are
// logged. A reload must change the tokens even if nothing else has changed.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tokens"), "# operators\n\n"+token+"\n")
	path := write(t, filepath.Join(dir, "director.yaml"), good+"control: {token_file: tokens}\n")
	r := run(t, path)
	ctx := t.Context()
	for _, given := range []string{token[1:], token + "x"} {
		c, err := client.New(client.Access{URL: r.Control(), Token: given})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Status(ctx); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("token %q: got error %v, want 401", given, err)
		}
	}
	if !strings.Contains(r.log.String(), "access refused") || strings.Contains(r.log.String(), token[1:]) {
		t.Errorf("log of refused requests: %s", r.log)
	}
	for path, want := range map[string]int{"/metrics": 401, "/v1/status": 401, "/v1/instances": 401, "/nothing": 401, "/healthz": 200, "/openapi.yaml": 200} {
		a, err := http.Get("http://" + r.Control() + path)
		if err != nil {
			t.Fatal(err)
		}
		if a.Body.Close(); a.StatusCode != want {
			t.Errorf("%s: got status %s, want %d", path, a.Status, want)
		}
	}
	c, err := client.New(client.Access{URL: r.Control(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(ctx); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "tokens"), "short\n")
	if err := c.Reload(ctx); err == nil || !strings.Contains(err.Error(), "want at least 16") {
		t.Errorf("reload with a short token: got error %v, want a minimum length of 16", err)
	}
	write(t, filepath.Join(dir, "tokens"), strings.Repeat("z", 32)+"\n")
	if err := r.Director.reload(); err != nil {
		t.Error(err)
	}
	if _, err := c.Status(ctx); err == nil {
		t.Error("the old token still works after the reload")
	}
}

// TestTokensAreReadDespiteTheFile checks that a change of the configuration that needs a restart does not keep
// a removed token valid. A broken file of tokens does not keep a configuration that names another one from
// coming into force.
func TestTokensAreReadDespiteTheFile(t *testing.T) {
	dir := t.TempDir()
	tokens := write(t, filepath.Join(dir, "tokens"), token+"\n")
	path := write(t, filepath.Join(dir, "director.yaml"), good+"control: {token_file: tokens}\n")
	r := run(t, path)
	c, err := client.New(client.Access{URL: r.Control(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	write(t, tokens, strings.Repeat("z", 32)+"\n")
	write(t, path, strings.Replace(good, "transition: 2s", "transition: 5s", 1)+"control: {token_file: tokens}\n")
	if err := r.Director.reload(); err == nil || !strings.Contains(err.Error(), "transition has changed") {
		t.Errorf("reload of a setting that needs a restart: got %v", err)
	}
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with the removed token: got error %v, want 401", err)
	}
	write(t, filepath.Join(dir, "others"), token+"\n")
	write(t, tokens, "short\n")
	write(t, path, good+"control: {token_file: others}\n")
	if err := r.Director.reload(); err != nil {
		t.Error(err)
	}
	if s, err := c.Status(t.Context()); err != nil || s.Reload.Error != "" {
		t.Errorf("with a token of the other file: got status %+v, %v", s, err)
	}
}

// TestCertificates checks that with client authorities, only clients with their
// certificates get access. A reload replaces the authorities.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	authority := certtest.Loopback(t, dir, "authority", nil)
	certtest.Loopback(t, dir, "director", authority)
	certtest.Loopback(t, dir, "operator", certtest.Loopback(t, dir, "clients", nil))
	certtest.Loopback(t, dir, "stranger", nil)
	r := run(t, write(t, filepath.Join(dir, "director.yaml"), good+"control: {certificate: director.pem, key: director.key, clients: clients.pem}\n"))
	with := func(name string) error {
		a := client.Access{URL: "https://" + r.Control(), Authorities: filepath.Join(dir, "authority.pem")}
		if name != "" {
			a.Certificate, a.Key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
		}
		c, err := client.New(a)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = c.Drain(ctx, "reg-1") // a certificate also permits changes
		return err
	}
	if err := with("operator"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "stranger"} {
		if with(name) == nil {
			t.Errorf("connected with certificate %q, want a refusal", name)
		}
	}
	if got := ask(t, http.DefaultClient, http.MethodGet, "http://"+r.Control()+"/v1/status"); got != http.StatusBadRequest {
		t.Errorf("plain HTTP request: got status %d, want 400", got)
	}
	certtest.Loopback(t, dir, "clients", nil)
	if err := r.Director.reload(); err != nil {
		t.Error(err)
	}
	if with("operator") == nil {
		t.Error("connected with a certificate of an authority that the reload has removed")
	}
}

// TestCertificatesAreReadAgain rotates the certificate of a running director without a reload. A broken file
// changes nothing, and its error is reported until the file is mended.
func TestCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	authority := certtest.Loopback(t, dir, "authority", nil)
	certtest.Loopback(t, dir, "director", authority)
	r := run(t, write(t, filepath.Join(dir, "director.yaml"), good+"control: {certificate: director.pem, key: director.key}\n"))
	roots, err := access.Authorities(filepath.Join(dir, "authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	serial := func() *big.Int {
		t.Helper()
		c, err := tls.Dial("tcp", r.Control(), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber
	}
	made := certtest.Loopback(t, dir, "director", authority).Certificate.SerialNumber
	if err := r.readAgain(); err != nil {
		t.Error(err)
	}
	if got := serial(); got.Cmp(made) != 0 {
		t.Errorf("the served certificate has serial %s, want %s of the new certificate", got, made)
	}
	write(t, filepath.Join(dir, "director.pem"), "no certificate\n")
	if err := r.Director.reload(); err == nil {
		t.Error("reload accepted a broken certificate")
	}
	if got := serial(); got.Cmp(made) != 0 {
		t.Errorf("after a reload with a broken file: certificate serial %s, want %s", got, made)
	}
	if _, err := r.lastReload(); !vitrine.IsBadInput(err) {
		t.Errorf("the last reload has error %v, want that of the certificate", err)
	}
	certtest.Loopback(t, dir, "director", authority)
	if err := r.readAgain(); err != nil {
		t.Error(err)
	}
	if _, err := r.lastReload(); err != nil {
		t.Errorf("after the file was mended, the last reload has error %v", err)
	}
}

// TestNoHost checks that a request without Host is served. HTTP/1.0 health checks have no Host, and
// browsers always send one.
func TestNoHost(t *testing.T) {
	r := runGood(t)
	c, err := net.Dial("tcp", r.Control())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /v1/status HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.0 200 ") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestNoSocketIsNamed checks that a director without a unix socket does not mention one.
func TestNoSocketIsNamed(t *testing.T) {
	d := &Director{log: slog.New(slog.DiscardHandler)}
	none, err := access.ReadTokenFile("")
	if err != nil {
		t.Fatal(err)
	}
	d.tokens.Store(none)
	for socket, want := range map[string]string{"": "this director has no unix socket, and its log has the reason", "/run/d.sock": "or use the unix socket /run/d.sock"} {
		d.socket = socket
		w := httptest.NewRecorder()
		d.guard().Wrap(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/v1/reload", http.NoBody))
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), want) {
			t.Errorf("got status %d: %s, want %q", w.Code, w.Body, want)
		}
	}
}
