package client

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"vitrine"
	"vitrine/internal/access"
	"vitrine/internal/certtest"
)

// TestTokensNeedTLSBeyondLoopback checks that no token goes in clear to another host.
func TestTokensNeedTLSBeyondLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"192.0.2.1:8090": false, "http://[2001:db8::1]:8090": false, "director.example:8090": false,
		"https://192.0.2.1:8090": true, "https://director.example:8090": true,
		"127.0.0.1:8090": true, "http://[::1]:8090": true, "localhost:8090": true, "unix:/run/director.sock": true,
	} {
		if _, err := New(Access{URL: address, Token: "secret"}); (err == nil) != want || err != nil && !vitrine.IsBadInput(err) {
			t.Errorf("%s: got error %v, want one: %t", address, err, !want)
		}
	}
	if _, err := New(Access{URL: "192.0.2.1:8090"}); err != nil {
		t.Errorf("without a token: %v", err)
	}
}

// TestRefresh rotates the token and the certificate that a client shows. A broken file
// changes nothing.
func TestRefresh(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority := certtest.Loopback(t, dir, "authority", nil)
	certtest.Loopback(t, dir, "director", authority)
	secure, err := access.TLS(file("director.pem"), file("director.key"), file("authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	director := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown <- r.Header.Get("Authorization") + ", " + r.TLS.PeerCertificates[0].SerialNumber.String()
		_, _ = w.Write([]byte("{}"))
	}))
	director.TLS = secure
	director.StartTLS()
	defer director.Close()

	rotate := func(token string) (want string) {
		if err := os.WriteFile(file("token"), []byte("# for the director\n"+token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "Bearer " + token + ", " + certtest.Loopback(t, dir, "own", authority).Certificate.SerialNumber.String()
	}
	old := rotate("first")
	c, err := New(Access{URL: director.URL, TokenFile: file("token"), Authorities: file("authority.pem"), Certificate: file("own.pem"), Key: file("own.key")})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(want string) {
		t.Helper()
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-shown; got != want {
			t.Errorf("the client presents %s, want %s", got, want)
		}
	}
	ask(old)
	rotate("")
	if err := c.Refresh(); !vitrine.IsBadInput(err) {
		t.Errorf("refresh without a token in the file: got %v, want a bad input error", err)
	}
	ask(old)
	next := rotate("second")
	if err := c.Refresh(); err != nil {
		t.Fatal(err)
	}
	ask(next)
}
