package keep

import (
	"time"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/store/client"
)

// A Config says where the store is and how to use it. Flags sets the defaults.
type Config struct {
	Access  client.Access
	Space   string        // namespace of the keys
	Timeout time.Duration // of a call
	Calls   int           // concurrent calls at most

	Messages *truth.Log // nil: messages are not logged
}

// Flags declares the flags. what names the stored data in the help, and space is
// the default namespace.
func (k *Config) Flags(c *ims.Command, what, space string) {
	c.StringVar(&k.Access.URL, "store", "", "keep "+what+" in the store at http://HOST:PORT or https://HOST:PORT; several stores over one Redis or etcd with commas between them")
	c.StringVar(&k.Access.TokenFile, "store-token-file", "", "file with the token for the store, on the first line that is not empty and not a # comment")
	c.StringVar(&k.Access.Authorities, "store-ca", "", "PEM file of the authorities that certify the store")
	c.StringVar(&k.Access.Certificate, "store-cert", "", "PEM file of the certificate to show to the store")
	c.StringVar(&k.Access.Key, "store-key", "", "PEM file of the certificate's key")
	c.StringVar(&k.Space, "store-space", space, "namespace of the keys; instances with the same one serve the same users")
	c.DurationVar(&k.Timeout, "store-timeout", time.Second, "how long the store's answer may take")
	c.IntVar(&k.Calls, "store-calls", 64, "calls to the store at the same time; others wait")
	c.Positive("store-timeout", "store-calls")
}

// Given reports whether the flags name a store.
func (k *Config) Given() bool { return k.Access.URL != "" }

// Check returns an error for flags that are useless without a store.
func (k *Config) Check(c *ims.Command) error {
	if !k.Given() && (k.Access != client.Access{}) {
		return c.Bad("--store-token-file, --store-ca, --store-cert or --store-key without --store", "give the URL of the store")
	}
	return nil
}
