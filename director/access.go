package director

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"vitrine"
)

// tokens are the SHA-256 digests of the accepted tokens.
type tokens [][sha256.Size]byte

// readTokens reads a file of tokens, one per line. It ignores empty lines and lines that
// begin with #.
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
		if len(line) < minTokenLength {
			return nil, &vitrine.BadInput{File: path, Line: n + 1, Column: 1, Found: fmt.Sprintf("a token of %d characters", len(line)), Want: fmt.Sprintf("want at least %d, such as from openssl rand -hex 32", minTokenLength)}
		}
		all = append(all, sha256.Sum256([]byte(line)))
	}
	if len(all) == 0 {
		return nil, &vitrine.BadInput{File: path, Found: "no token", Want: "want one token per line"}
	}
	return all, nil
}

const minTokenLength = 16

// accept reports whether a request carries one of the tokens (RFC 6750 section 2.1).
func (t tokens) accept(r *http.Request) bool {
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

// readAccess returns a configuration's tokens; nil without a token file.
func readAccess(c *Config) (tokens, error) {
	if c.Control.TokenFile == "" {
		return nil, nil
	}
	return readTokens(c.Control.TokenFile)
}

// guarded admits requests by their origin. It admits all requests by the unix socket,
// which is this user's own. If there are tokens, a TCP request needs one. Without tokens,
// TCP requests may only read, unless the client presented a certificate. Certificates are
// checked before a request is read.
func (d *Director) guarded(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLocal(r) {
			next.ServeHTTP(w, r)
			return
		}
		t := *d.tokens.Load()
		certified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		switch crossed := origins.Check(r); {
		case r.TLS == nil && r.Host != "" && !isAddress(r.Host): // a request without Host is not from a browser
			d.deny(w, r, http.StatusMisdirectedRequest, "Host must be the control address: an IP address or localhost")
		case crossed != nil:
			d.deny(w, r, http.StatusForbidden, crossed.Error())
		case len(t) > 0 && !t.accept(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="director"`)
			d.deny(w, r, http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
		case len(t) == 0 && !certified && changes(r):
			other := "; this director has no unix socket, as its log says"
			if d.socket != "" {
				other = ", or use the unix socket " + d.socket
			}
			d.deny(w, r, http.StatusForbidden, "changes over TCP need a token or a client certificate: set control.token_file or control.clients"+other)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (d *Director) deny(w http.ResponseWriter, r *http.Request, status int, why string) {
	d.log.Warn("control: access refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "status", status)
	refuse(w, status, why)
}

// isLocal reports whether a request came by the unix socket.
func isLocal(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && at.Network() == "unix"
}

// changes reports whether a request may change anything. POST /v1/explain does not.
func changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return r.Method != http.MethodPost || r.URL.Path != explainPath
}

// isAddress reports whether a Host names an address or localhost. A web page whose name
// was made to resolve to this host would send its own name.
func isAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// tlsConfig returns the TLS configuration of the control interface; nil: no TLS.
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
