package sip

import (
	"bytes"
	"crypto/md5" // RFC 3261 section 22.4 and 3GPP TS 33.203 require MD5; it protects nothing here
	"encoding/hex"
)

// A Challenge is a WWW-Authenticate or Proxy-Authenticate value of the Digest
// scheme (RFC 2617). Its slices are views. Quoted values have no quotes.
type Challenge struct {
	Realm, Nonce, Opaque []byte
	Algorithm            []byte // empty means MD5
	QOP                  bool   // qop=auth is offered; if false, there is no qop (RFC 2069)
	Stale                bool   // the password is right, but the nonce has expired
}

// ParseChallenge parses a challenge. ok is false unless Credentials can answer
// it: Digest, MD5, qop=auth or none.
func ParseChallenge(value []byte) (c Challenge, ok bool) {
	scheme, rest, _ := bytes.Cut(value, space)
	var qop []byte
	for len(rest) > 0 {
		var key, v []byte
		key, v, rest = cutAuthParam(rest)
		switch {
		case EqualFold(key, "realm"):
			c.Realm = v
		case EqualFold(key, "nonce"):
			c.Nonce = v
		case EqualFold(key, "opaque"):
			c.Opaque = v
		case EqualFold(key, "algorithm"):
			c.Algorithm = v
		case EqualFold(key, "stale"):
			c.Stale = EqualFold(v, "true")
		case EqualFold(key, "qop"):
			qop = v
		}
	}
	c.QOP = hasToken(qop, "auth")
	isMD5 := len(c.Algorithm) == 0 || EqualFold(c.Algorithm, "md5")
	return c, EqualFold(scheme, "digest") && isMD5 && c.Realm != nil && len(c.Nonce) > 0 && (c.QOP || qop == nil)
}

// AuthParam returns a parameter of a challenge or of credentials, or nil if there
// is none. Escapes in a quoted value stay as they are.
func AuthParam(value []byte, name string) []byte {
	_, rest, _ := bytes.Cut(value, space) // the scheme
	for len(rest) > 0 {
		var key, v []byte
		if key, v, rest = cutAuthParam(rest); EqualFold(key, name) {
			return v
		}
	}
	return nil
}

// cutAuthParam splits the first name=value (auth-param, RFC 3261 section 25.1)
// from the rest of a list. The value has no quotes. It is nil without an equals
// sign.
func cutAuthParam(list []byte) (name, value, rest []byte) {
	name, rest = CutElement(list)
	name, value, _ = bytes.Cut(name, equals)
	return trim(name), Unquote(trim(value)), rest
}

var equals = []byte("=")

// A Hash is an MD5 hash in lower-case hexadecimal.
type Hash [32]byte

func hashOf(text []byte) (h Hash) {
	sum := md5.Sum(text)
	hex.Encode(h[:], sum[:])
	return h
}

// HA1 returns the hash of user, realm and password. It overwrites scratch.
func HA1(scratch []byte, user, realm, password []byte) Hash {
	b := append(append(scratch[:0], user...), ':')
	b = append(append(b, realm...), ':')
	return hashOf(append(b, password...))
}

// HA2 returns the hash of method and URI. It overwrites scratch.
func HA2(scratch []byte, method string, uri []byte) Hash {
	b := append(append(scratch[:0], method...), ':')
	return hashOf(append(b, uri...))
}

// Credentials are the answer to a Challenge.
type Credentials struct {
	User, Realm, Nonce, Opaque, URI []byte

	HA1, HA2 Hash
	QOP      bool
	Count    uint32 // nc: number of uses of the nonce, including this one
	CNonce   []byte
}

// Response returns the response parameter. It overwrites scratch.
func (c *Credentials) Response(scratch []byte) Hash {
	b := append(append(scratch[:0], c.HA1[:]...), ':')
	b = append(append(b, c.Nonce...), ':')
	if c.QOP {
		b = append(appendCount(b, c.Count), ':')
		b = append(append(b, c.CNonce...), ":auth:"...)
	}
	return hashOf(append(b, c.HA2[:]...))
}

// AppendAuthorization appends the value of an Authorization or
// Proxy-Authorization header.
func (c *Credentials) AppendAuthorization(b []byte) []byte {
	n := len(b)
	response := c.Response(b[n:]) // uses b's free space as scratch, before that space is written
	b = append(append(b, `Digest username="`...), c.User...)
	b = append(append(b, `",realm="`...), c.Realm...)
	b = append(append(b, `",nonce="`...), c.Nonce...)
	b = append(append(b, `",uri="`...), c.URI...)
	b = append(append(b, `",response="`...), response[:]...)
	b = append(b, `",algorithm=MD5`...)
	if c.QOP {
		b = appendCount(append(b, `,qop=auth,nc=`...), c.Count)
		b = append(append(append(b, `,cnonce="`...), c.CNonce...), '"')
	}
	if c.Opaque != nil {
		b = append(append(append(b, `,opaque="`...), c.Opaque...), '"')
	}
	return b
}

// appendCount appends nc: eight hexadecimal digits.
func appendCount(b []byte, n uint32) []byte {
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return b
}
