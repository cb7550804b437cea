package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/internal/certtest"
	"vitrine/internal/hosttest"
	"vitrine/store/client"
)

// An authority signs certificates.
type authority struct {
	dir, name string
	pair      *certtest.Pair
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{dir: dir, name: name}
	a.pair = a.sign(t, "ca", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign writes a certificate and its key to files. The first certificate of an authority is
// self-signed.
func (a *authority) sign(t *testing.T, name string, c *x509.Certificate) *certtest.Pair {
	t.Helper()
	c.Subject = pkix.Name{CommonName: a.name + " " + name}
	return certtest.Write(t, c, a.pair, a.file(name, ".pem"), a.file(name, ".key"))
}

func (a *authority) file(name, suffix string) string {
	return filepath.Join(a.dir, a.name+"-"+name+suffix)
}

// trusting returns a client's configuration that trusts the authority. Unless signer is nil, the
// client presents a certificate of signer.
func (a *authority) trusting(t *testing.T, signer *authority) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(a.pair.Certificate)
	if signer != nil {
		pair, err := tls.LoadX509KeyPair(signer.file("client", ".pem"), signer.file("client", ".key"))
		if err != nil {
			t.Fatal(err)
		}
		// Present it even if the store asks for another authority's.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}

// place makes two authorities: own, which also signed the store's certificate, and a stranger. Each
// has signed a client certificate.
func place(t *testing.T) (own, stranger *authority) {
	t.Helper()
	dir := t.TempDir()
	own, stranger = newAuthority(t, dir, "own"), newAuthority(t, dir, "stranger")
	own.sign(t, "server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	for _, a := range []*authority{own, stranger} {
		a.sign(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	return own, stranger
}

// ask writes a value and reads it back.
func ask(t *testing.T, base string, secure *tls.Config, token string) error {
	t.Helper()
	c, err := client.New(client.Config{Base: base, TLS: secure, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.KV("").Put(ctx, "key", []byte("value"), "text/plain", 0, client.Conditions{}); err != nil {
		return err
	}
	value, err := c.KV("").Get(ctx, "key", client.Conditions{})
	if err == nil && string(value.Data) != "value" {
		t.Errorf("got value %q", value.Data)
	}
	return err
}

// refused fails the test unless err contains the text.
func refused(t *testing.T, who string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want a refusal with %s", who, err, text)
	}
}

func TestStoreTLS(t *testing.T) {
	t.Parallel()
	own, stranger := place(t)
	const token = "a token of sixteen bytes and more"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--token-file", tokens,
		"--tls-cert", own.file("server", ".pem"), "--tls-key", own.file("server", ".key"))
	base := "https://" + s.address
	if err := ask(t, base, own.trusting(t, nil), token); err != nil {
		t.Error(err)
	}
	refused(t, "without a token", ask(t, base, own.trusting(t, nil), ""), "401")
	refused(t, "with another token", ask(t, base, own.trusting(t, nil), token+"!"), "401")
	refused(t, "one who does not trust it", ask(t, base, stranger.trusting(t, nil), token), "unknown authority")
	if err := ask(t, "http://"+s.address, nil, token); err == nil {
		t.Error("the store answers without TLS")
	}
	if text := s.logText(t); strings.Contains(text, token) || !strings.Contains(text, "access refused") || strings.Contains(text, "in clear") {
		t.Errorf("log of refused access: %s", text)
	}
	old := own.trusting(t, nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	refused(t, "TLS 1.1", ask(t, base, old, token), "protocol version")

	transport := &http.Transport{TLSClientConfig: own.trusting(t, nil), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if body, err := io.ReadAll(reply.Body); err != nil || reply.ProtoMajor != 2 || reply.StatusCode != http.StatusOK {
		t.Errorf("/health over HTTP/2: got %s, %d: %s, %v", reply.Proto, reply.StatusCode, body, err)
	}
}

// TestStoreMutualTLS checks a store that listens beyond loopback, which is allowed with client
// certificates.
func TestStoreMutualTLS(t *testing.T) {
	t.Parallel()
	own, stranger := place(t)
	s := start(t, "--dir", t.TempDir(), "--listen", "0.0.0.0:0", "--client-ca", own.file("ca", ".pem"),
		"--tls-cert", own.file("server", ".pem"), "--tls-key", own.file("server", ".key"))
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	base := "https://127.0.0.1:" + port
	if err := ask(t, base, own.trusting(t, own), ""); err != nil {
		t.Error(err)
	}
	// In TLS 1.3 the client's error depends on whether the client has begun to send.
	refused(t, "without a certificate", ask(t, base, own.trusting(t, nil), ""), "")
	refused(t, "with a stranger's", ask(t, base, own.trusting(t, stranger), ""), "")
	if err := ask(t, base, own.trusting(t, own), ""); err != nil {
		t.Errorf("request after the refused ones: %v", err)
	}
	hosttest.Until(t, patience, "the log names the clients with a stranger's certificate and with none", func() bool {
		text := s.logText(t)
		return strings.Contains(text, "TLS handshake error from 127.0.0.1") && strings.Contains(text, "unknown authority") &&
			strings.Contains(text, "didn't provide a certificate")
	})
}

func TestStoreRefusesToStart(t *testing.T) {
	t.Parallel()
	own, stranger := place(t)
	cert, key := own.file("server", ".pem"), own.file("server", ".key")
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("a token of sixteen bytes and more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, arguments := range map[string][]string{
		"is not loopback":          {"--listen", "0.0.0.0:0"},
		"tokens would go in clear": {"--listen", "0.0.0.0:0", "--token-file", tokens},
		"is not loopback, and any": {"--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key}, // no token file and no client CA
		"private key does not":     {"--tls-cert", cert, "--tls-key", stranger.file("client", ".key")},
		"no such file":             {"--tls-cert", cert, "--tls-key", key + "s"},
		"no certificate":           {"--tls-cert", cert, "--tls-key", key, "--client-ca", key},
	} {
		arguments = append([]string{"store", "run", "--listen", "127.0.0.1:0", "--dir", t.TempDir()}, arguments...)
		out, err := exec.CommandContext(t.Context(), "vitrine", arguments...).CombinedOutput()
		if code := exitCode(err); code != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%q: exit code %d: %s; want 2 and %q", arguments, code, out, want)
		}
	}
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}
