package service

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"vitrine"
)

// minToken is the least length of a token in bytes, so that tokens cannot be guessed.
const minToken = 16

// Tokens are the accepted bearer tokens. Only their hashes are kept. The lookup is by hash, so its
// duration reveals nothing about a token.
type Tokens struct {
	path  string
	known atomic.Pointer[map[[sha256.Size]byte]struct{}]
}

// ReadTokens reads a file with one token per line. It skips empty lines and lines that start with
// #.
func ReadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// Reload reads the file again. After an error the tokens stay unchanged.
func (t *Tokens) Reload() error {
	f, err := os.Open(t.path)
	if err != nil {
		return &vitrine.BadInput{File: t.path, Found: err.Error(), Want: "a file with one token a line"}
	}
	defer f.Close()
	known := map[[sha256.Size]byte]struct{}{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		token := strings.TrimSpace(lines.Text())
		if token == "" || token[0] == '#' {
			continue
		}
		if len(token) < minToken {
			return &vitrine.BadInput{File: t.path, Line: n, Column: 1, Found: "a token of fewer than 16 bytes", Want: "a longer random token"}
		}
		known[sha256.Sum256([]byte(token))] = struct{}{}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", t.path, err)
	}
	if len(known) == 0 {
		return &vitrine.BadInput{File: t.path, Found: "no token", Want: "one a line"}
	}
	t.known.Store(&known)
	return nil
}

// allow reports whether the request carries an accepted token. RFC 6750 section 2.1.
func (t *Tokens) allow(r *http.Request) bool {
	if t == nil {
		return true
	}
	const scheme = "bearer "
	given := r.Header.Get("Authorization")
	if len(given) <= len(scheme) || !strings.EqualFold(given[:len(scheme)], scheme) {
		return false
	}
	_, ok := (*t.known.Load())[sha256.Sum256([]byte(strings.TrimSpace(given[len(scheme):])))]
	return ok
}

// noteDenied logs failed access.
func noteDenied(log *slog.Logger, r *http.Request) {
	given := "no token"
	if r.Header.Get("Authorization") != "" {
		given = "a token that is not known"
	}
	log.Warn("access refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "because", given)
}

// TLS is the server's TLS configuration, for TLS 1.2 and later.
type TLS struct {
	cert, key, clientCA string
	current             atomic.Pointer[tls.Config]
}

// LoadTLS reads a server's certificate and key. With clientCA, clients must present a certificate
// signed by it.
func LoadTLS(cert, key, clientCA string) (*TLS, error) {
	if cert == "" || key == "" {
		return nil, &vitrine.BadInput{File: "TLS", Found: "no certificate of the server, or no key", Want: "give both: --tls-cert and --tls-key"}
	}
	t := &TLS{cert: cert, key: key, clientCA: clientCA}
	return t, t.Reload()
}

// Reload reads the files again, for new connections. After an error the configuration stays
// unchanged.
func (t *TLS) Reload() error {
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return &vitrine.BadInput{File: t.cert, Found: err.Error(), Want: "a certificate and its key, PEM"}
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if t.clientCA != "" {
		if c.ClientCAs, err = loadCertificates(t.clientCA); err != nil {
			return err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
		c.SessionTicketsDisabled = true // a ticket would outlive a change of authorities
	}
	t.current.Store(c)
	return nil
}

// config returns a configuration that uses the last loaded files for each connection.
func (t *TLS) config() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: t.clientCA != "",
		GetConfigForClient:     func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current.Load(), nil },
	}
}

// LoadClientTLS returns a client's TLS configuration, with a client certificate and with
// authorities for the server's certificate, if given.
func LoadClientTLS(cert, key, ca string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, &vitrine.BadInput{File: cert, Found: err.Error(), Want: "a certificate and its key, PEM"}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	var err error
	if ca != "" {
		c.RootCAs, err = loadCertificates(ca)
	}
	return c, err
}

func loadCertificates(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "certificates, PEM"}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, &vitrine.BadInput{File: path, Found: "no certificate", Want: "certificates, PEM"}
	}
	return pool, nil
}
