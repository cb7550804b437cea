package access

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"vitrine/internal/certtest"
)

// TestFollowClientTLS replaces the certificate that a client shows. A broken file changes nothing. A
// certificate of an authority that the server does not trust is not shown.
func TestFollowClientTLS(t *testing.T) {
	const none = "no certificate"
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority := certtest.Loopback(t, dir, "authority", nil)
	certtest.Loopback(t, dir, "server", authority)
	secure, err := TLS(file("server.pem"), file("server.key"), file("authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	secure.ClientAuth = tls.VerifyClientCertIfGiven
	shown := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			shown <- none
			return
		}
		shown <- r.TLS.PeerCertificates[0].SerialNumber.String()
	}))
	server.TLS = secure
	server.StartTLS()
	defer server.Close()

	rotate := func(by *certtest.Pair) (serial string) {
		return certtest.Loopback(t, dir, "own", by).Certificate.SerialNumber.String()
	}
	first := rotate(authority)
	own, err := FollowClientTLS(file("own.pem"), file("own.key"), file("authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: own, DisableKeepAlives: true}}
	ask := func(want string) {
		t.Helper()
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := <-shown; got != want {
			t.Errorf("the client shows %s, want %s", got, want)
		}
	}
	ask(first)
	second := rotate(authority)
	ask(second)
	if err := os.WriteFile(file("own.key"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask(second)
	rotate(nil)
	ask(none)
}
