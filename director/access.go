package director

import (
	"crypto/tls"
	"errors"

	"vitrine/internal/access"
)

// tokens are the accepted tokens.
type tokens = access.Tokens

// readAccess returns a configuration's tokens; nil without a token file.
func readAccess(c *Config) (tokens, error) { return access.ReadTokens(c.Control.TokenFile) }

// guard admits requests by their origin.
func (d *Director) guard() access.Guard {
	return access.Guard{
		Service: "director", Tokens: func() tokens { return *d.tokens.Load() }, Socket: d.socket, Reads: []string{explainPath}, Log: d.log,
	}
}

// tlsConfig returns the TLS configuration of the control interface; nil: no TLS.
func (c *Config) tlsConfig() (*tls.Config, error) {
	config, err := access.TLS(c.Control.Certificate, c.Control.Key, c.Control.Clients)
	if bad := (*access.TLSError)(nil); errors.As(err, &bad) {
		return nil, c.file.BadInput(bad.Error(), bad.Want, "control", bad.Option)
	}
	return config, err
}
