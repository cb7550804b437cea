package service

import (
	"errors"

	"vitrine"
	"vitrine/internal/access"
)

// LoadTLS reads a server's certificate and key. With clientCA, clients must present a certificate
// signed by it.
func LoadTLS(cert, key, clientCA string) (*access.ServerTLS, error) {
	if cert == "" || key == "" {
		return nil, &vitrine.BadInput{File: "TLS", Found: "no certificate of the server, or no key", Want: "give both: --tls-cert and --tls-key"}
	}
	t, err := access.LoadTLS(cert, key, clientCA)
	if bad, ok := errors.AsType[*access.TLSError](err); ok {
		return nil, &vitrine.BadInput{File: bad.File, Found: bad.Error(), Want: bad.Want}
	}
	return t, err
}
