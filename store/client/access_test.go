package client_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"vitrine"
	"vitrine/internal/certtest"
	"vitrine/store/client"
)

func TestAccess(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"token": "\n# a comment\n  secret  \nother\n", "empty": "# none\n"} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certtest.Write(t, &x509.Certificate{}, nil, file("cert.pem"), file("key.pem"))
	c, err := client.Access{
		URL: "https://127.0.0.1:1", TokenFile: file("token"), Authorities: file("cert.pem"), Certificate: file("cert.pem"), Key: file("key.pem"),
	}.Config()
	if err != nil {
		t.Fatal(err)
	}
	if c.Base != "https://127.0.0.1:1" || c.Token != "secret" || c.TLS.RootCAs == nil || len(c.TLS.Certificates) != 1 {
		t.Errorf("got configuration %+v", c)
	}
	for name, bad := range map[string]client.Access{
		"no token":         {TokenFile: file("empty")},
		"no token file":    {TokenFile: file("none")},
		"no authorities":   {Authorities: file("none")},
		"a key as CA":      {Authorities: file("key.pem")},
		"no key":           {Certificate: file("cert.pem")},
		"no certificate":   {Key: file("key.pem")},
		"swapped key, CA":  {Certificate: file("key.pem"), Key: file("cert.pem")},
		"a token for a CA": {Authorities: file("token")},
		"a CA for http":    {URL: "http://127.0.0.1:1", Authorities: file("cert.pem")},
		"a pair for http":  {URL: "http://127.0.0.1:1", Certificate: file("cert.pem"), Key: file("key.pem")},
	} {
		if _, err := bad.Config(); !vitrine.IsBadInput(err) {
			t.Errorf("%s: %v, want a bad input", name, err)
		}
	}
}
