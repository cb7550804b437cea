package keep

import (
	"time"

	"vitrine/reference/ims"
	"vitrine/store/client"
)

// A Config holds the flags of the store.
type Config struct {
	access  client.Access
	space   string
	timeout time.Duration
	calls   int
}

// Flags declares the flags. what is what the store keeps, and space the default
// namespace.
func (k *Config) Flags(c *ims.Command, what, space string) {
	c.StringVar(&k.access.URL, "store", "", "keep "+what+" in the store at http://HOST:PORT or https://HOST:PORT")
	c.StringVar(&k.access.TokenFile, "store-token-file", "", "file with the token for the store, on the first line that is not empty and not a # comment")
	c.StringVar(&k.access.Authorities, "store-ca", "", "PEM file of the authorities that certify the store")
	c.StringVar(&k.access.Certificate, "store-cert", "", "PEM file of the certificate to show to the store")
	c.StringVar(&k.access.Key, "store-key", "", "PEM file of the certificate's key")
	c.StringVar(&k.space, "store-space", space, "namespace of the keys; instances with the same one serve the same users")
	c.DurationVar(&k.timeout, "store-timeout", time.Second, "how long the store's answer may take")
	c.IntVar(&k.calls, "store-calls", 64, "calls to the store at the same time; others wait")
	c.Positive("store-timeout", "store-calls")
}

// Given reports whether there is a store.
func (k *Config) Given() bool { return k.access.URL != "" }

// Check returns an error for flags that are useless without a store.
func (k *Config) Check(c *ims.Command) error {
	if !k.Given() && (k.access != client.Access{}) {
		return c.Bad("--store-token-file, --store-ca, --store-cert or --store-key without --store", "give the URL of the store")
	}
	return nil
}
