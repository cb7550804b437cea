package service

import (
	"errors"
	"log/slog"
	"net/http"

	"vitrine"
	"vitrine/internal/access"
)

// noteDenied logs failed access.
func noteDenied(log *slog.Logger, r *http.Request) {
	given := "no token"
	if r.Header.Get("Authorization") != "" {
		given = "a token that is not known"
	}
	log.Warn("access refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "because", given)
}

// LoadTLS reads a server's certificate and key. With clientCA, clients must present a certificate
// signed by it.
func LoadTLS(cert, key, clientCA string) (*access.ServerTLS, error) {
	if cert == "" || key == "" {
		return nil, &vitrine.BadInput{File: "TLS", Found: "no certificate of the server, or no key", Want: "give both: --tls-cert and --tls-key"}
	}
	t, err := access.LoadTLS(cert, key, clientCA)
	if bad := (*access.TLSError)(nil); errors.As(err, &bad) {
		return nil, &vitrine.BadInput{File: bad.File, Found: bad.Error(), Want: bad.Want}
	}
	return t, err
}
