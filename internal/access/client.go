package access

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"

	"vitrine"
)

// ReadToken reads the token that a client sends: the first line that is neither empty nor a #
// comment. Without a path, it returns no token. The error is a *vitrine.BadInput.
func ReadToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", &vitrine.BadInput{File: path, Found: err.Error(), Want: "want a file with the token"}
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line, nil
		}
	}
	return "", &vitrine.BadInput{File: path, Found: "no token", Want: "want a file with the token"}
}

// IsLoopback reports whether the host of a URL is a loopback address or localhost. Beyond that, a token
// must not travel without TLS.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// ClientTLS returns a client's TLS configuration from PEM files: its own certificate and key, and
// the authorities of the server's certificate. Without a certificate and key, the client presents
// none. Without authorities, it trusts the host's authorities. The error is a *vitrine.BadInput.
func ClientTLS(certificate, key, authorities string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if certificate != "" || key != "" {
		own, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, &vitrine.BadInput{File: fmt.Sprintf("%q and %q", certificate, key), Found: err.Error(), Want: "want a certificate and its key, PEM"}
		}
		c.Certificates = []tls.Certificate{own}
	}
	if authorities == "" {
		return c, nil
	}
	var err error
	if c.RootCAs, err = Authorities(authorities); err != nil {
		return nil, &vitrine.BadInput{File: authorities, Found: err.Error(), Want: "want a PEM file of certificate authorities"}
	}
	return c, nil
}

// FollowClientTLS is like ClientTLS, but reads the certificate and its key again for each connection.
// If that fails, the last good pair stays in use. The authorities are read once.
func FollowClientTLS(certificate, key, authorities string) (*tls.Config, error) {
	c, err := ClientTLS(certificate, key, authorities)
	if err != nil || len(c.Certificates) == 0 {
		return c, err
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&c.Certificates[0])
	c.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if own, err := tls.LoadX509KeyPair(certificate, key); err == nil {
			last.Store(&own)
		}
		if own := last.Load(); request.SupportsCertificate(own) == nil {
			return own, nil
		}
		return new(tls.Certificate), nil // none, as crypto/tls does with Certificates
	}
	return c, nil
}
