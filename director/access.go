package director

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"

	"vitrine"
)

// tokens are the digests of those that open the control interface.
type tokens [][sha256.Size]byte

// readTokens reads a file of tokens, one a line; empty lines and those that
// begin with # do not count.
func readTokens(path string) (all tokens, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "control.token_file must be a file that can be read"}
	}
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if len(line) < leastToken {
			return nil, &vitrine.BadInput{File: path, Line: n + 1, Column: 1, Found: fmt.Sprintf("a token of %d characters", len(line)), Want: fmt.Sprintf("want at least %d, such as from openssl rand -hex 32", leastToken)}
		}
		all = append(all, sha256.Sum256([]byte(line)))
	}
	if len(all) == 0 {
		return nil, &vitrine.BadInput{File: path, Found: "no token", Want: "want one token a line"}
	}
	return all, nil
}

const leastToken = 16

// have says whether a request carries one of the tokens (RFC 6750 section 2.1).
func (t tokens) have(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return false
	}
	given := sha256.Sum256([]byte(token))
	found := 0
	for i := range t {
		found |= subtle.ConstantTimeCompare(t[i][:], given[:])
	}
	return found == 1
}

// readAccess reads a configuration's tokens; none, when it has no file of them.
func readAccess(c *Config) (tokens, error) {
	if c.Control.TokenFile == "" {
		return nil, nil
	}
	return readTokens(c.Control.TokenFile)
}

// guarded lets only those in who have a token, if there are tokens. Certificates
// have been checked before a request is read.
func (d *Director) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := *d.tokens.Load()
		if len(t) > 0 && !t.have(r) {
			d.log.Warn("control: access refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path)
			w.Header().Set("WWW-Authenticate", `Bearer realm="director"`)
			refuse(w, http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// tlsConfig is that of the control interface; nil: none.
func (c *Config) tlsConfig() (*tls.Config, error) {
	o := c.Control
	if o.Certificate == "" {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return nil, c.file.BadInput(err.Error(), "want PEM files of a certificate and its key", "control", "certificate")
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if o.Clients == "" {
		return config, nil
	}
	pem, err := os.ReadFile(o.Clients)
	if err != nil {
		return nil, c.file.BadInput(err.Error(), "want a PEM file of certificate authorities", "control", "clients")
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, c.file.BadInput("no certificate", "want a PEM file of certificate authorities", "control", "clients")
	}
	return config, nil
}
