package director

import (
	"crypto/tls"
	"errors"

	"vitrine/internal/access"
)

// guard admits requests by their origin.
func (d *Director) guard() access.Guard {
	return access.Guard{
		Service: "director", Tokens: func() access.Tokens { return *d.tokens.Load() }, Socket: d.socket, Reads: []string{explainPath}, Log: d.log,
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
