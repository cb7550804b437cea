package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"vitrine"
)

// An Access says where a store is, and which files authenticate with it.
type Access struct {
	URL         string // as Config.Base
	TokenFile   string // file with the token, on the first line that is not empty and not a # comment; "": no token
	Authorities string // PEM file of the authorities that certify the store; "": the host's
	Certificate string // PEM file of the client's own certificate; "": none
	Key         string // PEM file of its key
}

// Config reads the files. The error is a *vitrine.BadInput.
func (a Access) Config() (Config, error) {
	c := Config{Base: a.URL, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	var err error
	if a.TokenFile != "" {
		if c.Token, err = readToken(a.TokenFile); err != nil {
			return c, err
		}
	}
	if a.Authorities != "" {
		text, err := os.ReadFile(a.Authorities)
		if err != nil {
			return c, &vitrine.BadInput{File: a.Authorities, Found: err.Error(), Want: "a PEM file of certificates"}
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return c, &vitrine.BadInput{File: a.Authorities, Found: "no certificate", Want: "a PEM file of certificates"}
		}
	}
	if a.Certificate != "" || a.Key != "" {
		own, err := tls.LoadX509KeyPair(a.Certificate, a.Key)
		if err != nil {
			return c, &vitrine.BadInput{File: fmt.Sprintf("%q and %q", a.Certificate, a.Key), Found: err.Error(), Want: "a certificate and its key, PEM"}
		}
		c.TLS.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", &vitrine.BadInput{File: file, Found: err.Error(), Want: "a file with the token"}
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line, nil
		}
	}
	return "", &vitrine.BadInput{File: file, Found: "no token", Want: "a file with the token"}
}
