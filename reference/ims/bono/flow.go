package bono

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
)

// flows writes and reads flow tokens. A flow is the address at which a client is
// reached: the source of its requests. The token is the user part of Bono's own
// Path and Record-Route URIs. It includes a hash that only this Bono can make, so
// Bono needs no table of clients (RFC 5626 section 5.2).
type flows struct{ secret []byte }

const hashSize = 8

// token returns the token of a client's flow.
func (f flows) token(client netip.AddrPort) string {
	addr, err := client.MarshalBinary()
	if err != nil {
		return "" // an AddrPort always marshals
	}
	return base64.RawURLEncoding.EncodeToString(append(f.hash(addr), addr...))
}

// client returns the address in a token, or false if this Bono did not write the
// token.
func (f flows) client(token string) (netip.AddrPort, bool) {
	var client netip.AddrPort
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= hashSize || !hmac.Equal(b[:hashSize], f.hash(b[hashSize:])) {
		return client, false
	}
	if err := client.UnmarshalBinary(b[hashSize:]); err != nil {
		return client, false
	}
	return client, client.IsValid()
}

func (f flows) hash(addr []byte) []byte {
	mac := hmac.New(sha256.New, f.secret)
	mac.Write(addr)
	return mac.Sum(nil)[:hashSize]
}
