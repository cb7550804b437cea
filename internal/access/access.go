// Package access decides who may use a service: the service's own user over a unix socket, and
// other users with tokens or client certificates. TokenFile, ServerTLS and FollowClientTLS read files
// again while the service runs. Caller is the client of a control interface.
package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"vitrine"
)

// Tokens are the SHA-256 digests of the accepted tokens.
type Tokens [][sha256.Size]byte

// readTokens reads a file of tokens, one per line. It ignores empty lines, and comment lines that
// begin with #. Without a path, it returns nil.
func readTokens(path string) (all Tokens, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "want a file with one token per line"}
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

// Accept reports whether a request carries one of the tokens (RFC 6750 section 2.1).
func (t Tokens) Accept(r *http.Request) bool {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	found := 0
	for i := range t {
		found |= subtle.ConstantTimeCompare(t[i][:], given[:])
	}
	return found == 1
}

// A Guard admits requests by their origin. It admits every request over the unix socket, because
// only the service's own user can open the socket. If there are tokens, a TCP request needs one of
// them. Without tokens, a TCP request may only read, unless the client presented a certificate.
// TLS checks certificates before a request is read.
type Guard struct {
	Service string        // "director"
	Tokens  func() Tokens // the tokens in force
	Socket  string        // path of the unix socket; empty: there is none
	Reads   []string      // paths whose POSTs change nothing
	Log     *slog.Logger
}

// Wrap guards a handler.
func (g Guard) Wrap(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLocal(r) {
			next.ServeHTTP(w, r)
			return
		}
		t := g.Tokens()
		certified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		switch crossed := origins.Check(r); {
		case r.TLS == nil && r.Host != "" && !IsAddress(r.Host): // browsers always send Host
			g.deny(w, r, http.StatusMisdirectedRequest, "Host must be the control address: an IP address or localhost")
		case crossed != nil:
			g.deny(w, r, http.StatusForbidden, crossed.Error())
		case len(t) > 0 && !t.Accept(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+g.Service+`"`)
			g.deny(w, r, http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
		case len(t) == 0 && !certified && g.changes(r):
			other := "; this " + g.Service + " has no unix socket, and its log has the reason"
			if g.Socket != "" {
				other = ", or use the unix socket " + g.Socket
			}
			g.deny(w, r, http.StatusForbidden, "changes over TCP need a token or a client certificate: set control.token_file or control.clients"+other)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (g Guard) deny(w http.ResponseWriter, r *http.Request, status int, why string) {
	g.Log.Warn("control: access refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "status", status)
	Refuse(w, status, why)
}

// Answer writes a value as JSON.
func Answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		Refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // on error, the client has disconnected
}

// Refuse writes an error as JSON.
func Refuse(w http.ResponseWriter, status int, message string) {
	Answer(w, status, map[string]string{"error": message})
}

// isLocal reports whether a request came over the unix socket.
func isLocal(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && at.Network() == "unix"
}

// changes reports whether a request may change anything.
func (g Guard) changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	case http.MethodPost:
		for _, path := range g.Reads {
			if r.URL.Path == path {
				return false
			}
		}
	}
	return true
}

// IsAddress reports whether a Host header names an address or localhost. Any other name is
// refused, because of DNS rebinding: a web page whose name resolves to this host would send that
// name.
func IsAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// A TLSError is the error of one of the TLS files.
type TLSError struct {
	Option string // "certificate" or "clients"
	File   string
	Want   string
	Err    error
}

func (e *TLSError) Error() string { return e.Err.Error() }
func (e *TLSError) Unwrap() error { return e.Err }

// TLS returns a server configuration from PEM files: the certificate, its key, and the authorities
// of client certificates. Without authorities, clients need no certificate. Without a certificate,
// TLS returns nil. The error is a *TLSError.
func TLS(certificate, key, clients string) (*tls.Config, error) {
	if certificate == "" {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, &TLSError{"certificate", certificate, "want PEM files of a certificate and its key", err}
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if clients == "" {
		return config, nil
	}
	if config.ClientCAs, err = Authorities(clients); err != nil {
		return nil, &TLSError{"clients", clients, "want a PEM file of certificate authorities", err}
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.SessionTicketsDisabled = true // a ticket would stay valid after a change of the authorities
	return config, nil
}

// Authorities reads a PEM file of certificates.
func Authorities(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate")
	}
	return pool, nil
}
