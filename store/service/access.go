package service

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"vitrine"
	"vitrine/internal/access"
)

// Tokens are the accepted bearer tokens of a file.
type Tokens struct {
	path  string
	known atomic.Pointer[access.Tokens]
}

// ReadTokens reads a file with one token per line. It skips empty lines and lines that start with
// #.
func ReadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// Reload reads the file again. After an error the tokens stay unchanged.
func (t *Tokens) Reload() error {
	known, err := access.ReadTokens(t.path)
	if err == nil {
		t.known.Store(&known)
	}
	return err
}

// allow reports whether the request carries an accepted token.
func (t *Tokens) allow(r *http.Request) bool { return t == nil || t.known.Load().Accept(r) }

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
	c, err := access.TLS(t.cert, t.key, t.clientCA)
	if bad := (*access.TLSError)(nil); errors.As(err, &bad) {
		file := map[string]string{"certificate": t.cert, "clients": t.clientCA}[bad.Option]
		return &vitrine.BadInput{File: file, Found: bad.Error(), Want: bad.Want}
	}
	if err == nil {
		t.current.Store(c)
	}
	return err
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
	if ca == "" {
		return c, nil
	}
	var err error
	if c.RootCAs, err = access.Authorities(ca); err != nil {
		return nil, &vitrine.BadInput{File: ca, Found: err.Error(), Want: "certificates, PEM"}
	}
	return c, nil
}
