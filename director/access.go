package director

import (
	"crypto/tls"
	"errors"
	"net/http"

	"vitrine/internal/access"
)

// tokens are the accepted tokens.
type tokens = access.Tokens

// readAccess returns a configuration's tokens; nil without a token file.
func readAccess(c *Config) (tokens, error) { return access.ReadTokens(c.Control.TokenFile) }

// guarded admits requests by their origin.
func (d *Director) guarded(next http.Handler) http.Handler {
	return access.Guard{
		Service: "director", Tokens: func() tokens { return *d.tokens.Load() }, Socket: d.socket, Reads: []string{explainPath}, Log: d.log,
	}.Wrap(next)
}

// tlsConfig returns the TLS configuration of the control interface; nil: no TLS.
func (c *Config) tlsConfig() (*tls.Config, error) {
	config, err := access.TLS(c.Control.Certificate, c.Control.Key, c.Control.Clients)
	if bad := (*access.TLSError)(nil); errors.As(err, &bad) {
		return nil, c.file.BadInput(bad.Error(), bad.Want, "control", bad.Option)
	}
	return config, err
}
