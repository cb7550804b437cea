package client

import (
	"vitrine"
	"vitrine/internal/access"
)

// An Access says where a store is, and which files authenticate with it.
type Access struct {
	URL         string // as Config.Base
	TokenFile   string // file with the token, on the first line that is not empty and not a # comment; "": no token
	Authorities string // PEM file of the authorities that certify the store; "": the host's
	Certificate string // PEM file of the client's own certificate; "": none
	Key         string // PEM file of its key
}

// Config reads the files. The client reads the certificate and its key again for each connection. The
// error is a *vitrine.BadInput.
func (a Access) Config() (c Config, err error) {
	c.Base = a.URL
	if _, scheme, err := parseBases(a.URL); err == nil && scheme == "http" && a.Authorities+a.Certificate+a.Key != "" {
		return c, &vitrine.BadInput{File: a.URL, Found: "an address without TLS for files of certificates", Want: "want https://"}
	}
	if c.Token, err = access.ReadToken(a.TokenFile); err != nil {
		return c, err
	}
	c.TLS, err = access.FollowClientTLS(a.Certificate, a.Key, a.Authorities)
	return c, err
}
