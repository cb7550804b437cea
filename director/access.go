package director

import (
	"errors"

	"vitrine/internal/access"
)

// guard admits requests by their origin.
func (d *Director) guard() access.Guard {
	return access.Guard{
		Service: "director", Tokens: func() access.Tokens { return d.tokens.Load().Tokens() }, Socket: d.socket, Reads: []string{explainPath}, Log: d.log,
	}
}

// locateTLS returns the error of a TLS file as an error of the option that names the file.
func (c *Config) locateTLS(err error) error {
	if bad := (*access.TLSError)(nil); errors.As(err, &bad) {
		return c.file.BadInput(bad.Error(), bad.Want, "control", bad.Option)
	}
	return err
}
