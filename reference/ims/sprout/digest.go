package sprout

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"

	"vitrine/reference/ims"
	"vitrine/reference/keep"
)

// nonceLife is how long a challenge may stay unanswered.
const nonceLife = 40 * time.Second

// A challenge is the cluster's state of a nonce. With it any Sprout can check the
// answer.
type challenge struct {
	Username string `json:"username"`
	Public   string `json:"impu"` // the identity that may register with this nonce
	HA1      string `json:"ha1"`
	Count    int    `json:"nc"` // the highest nonce count seen
}

func challengeKey(nonce string) string { return "auth/" + nonce }

// A verdict is the result of authentication.
type verdict int

const (
	accepted verdict = iota
	wrong            // the password, username, realm or public identity is wrong
	unknown          // no usable credentials: send a first challenge
	stale            // the nonce is unknown or its count was used before: challenge again
)

// parseCredentials parses an Authorization header. IMS clients first send
// credentials without nonce or response, to identify themselves (TS 24.229
// section 5.1.1.2). Only the Username of those is used.
func parseCredentials(header sip.Header) (digest.Credentials, error) {
	if header == nil {
		return digest.Credentials{}, nil
	}
	c, err := digest.ParseCredentials(header.Value())
	if err != nil {
		return digest.Credentials{}, fmt.Errorf("authorization: %w", err)
	}
	return *c, nil
}

// authenticate checks the credentials of a request for a public identity (RFC 7616
// with MD5, as in the SIP digest of TS 24.229 annex N). An accepted nonce is kept
// until nonceLife after until.
func (s *server) authenticate(ctx context.Context, method, impu string, c digest.Credentials, until time.Time) (verdict, error) {
	if c.Nonce == "" || c.Response == "" {
		return unknown, nil
	}
	have, err := s.records.Get(ctx, challengeKey(c.Nonce))
	if err != nil {
		return unknown, err
	}
	if len(have.Value) == 0 {
		return stale, nil
	}
	var known challenge
	if err := json.Unmarshal(have.Value, &known); err != nil {
		return unknown, fmt.Errorf("challenge %s: %w", c.Nonce, err)
	}
	want := digestResponse(known.HA1, method, c)
	if c.Username != known.Username || impu != known.Public || c.Realm != ims.Domain ||
		subtle.ConstantTimeCompare([]byte(want), []byte(c.Response)) != 1 {
		return wrong, nil
	}
	count := c.Nc
	if c.QOP == "" { // RFC 2069 clients send no count, so they may use a nonce once
		count = 1
	}
	if count <= known.Count {
		return stale, nil
	}
	known.Count = count
	value, err := json.Marshal(known)
	if err != nil {
		return unknown, err
	}
	err = s.records.Put(ctx, challengeKey(c.Nonce), keep.Record{Value: value, Tag: have.Tag, Expires: until.Add(nonceLife)}, keep.Move{})
	if errors.Is(err, keep.ErrChanged) {
		return stale, nil // the same answer arrived twice
	}
	return accepted, err
}

// digestResponse returns the response of RFC 7616 section 3.4.1.
func digestResponse(ha1, method string, c digest.Credentials) string {
	ha2 := md5Hex(method + ":" + c.URI)
	if c.QOP == "" {
		return md5Hex(ha1 + ":" + c.Nonce + ":" + ha2)
	}
	return md5Hex(fmt.Sprintf("%s:%s:%08x:%s:%s:%s", ha1, c.Nonce, c.Nc, c.Cnonce, c.QOP, ha2))
}

func md5Hex(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// challenge makes a nonce, stores it in the cluster with a new authentication
// vector, and returns the challenge header.
func (s *server) challenge(ctx context.Context, impi, impu string, isStale bool) (sip.Header, error) {
	vector, err := s.vector(ctx, impi, impu)
	if err != nil {
		return nil, err
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	nonce := hex.EncodeToString(random[:])
	value, err := json.Marshal(challenge{Username: impi, Public: impu, HA1: vector.Digest.HA1})
	if err != nil {
		return nil, err
	}
	if err := s.records.Put(ctx, challengeKey(nonce), keep.Record{Value: value, Expires: s.records.Now().Add(nonceLife)}, keep.Move{}); err != nil {
		return nil, err
	}
	c := digest.Challenge{Realm: vector.Digest.Realm, Nonce: nonce, Stale: isStale, Algorithm: "MD5", QOP: []string{vector.Digest.QoP}}
	return sip.NewHeader("WWW-Authenticate", c.String()), nil
}
