// Package ims holds what the components of the reference IMS share: the
// identities of its subscribers, the documents exchanged between Homestead and
// Sprout, and the command line of a component. The components are the packages
// below: bono, sprout, homestead, homer and ralf.
package ims

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Domain is the home network's domain and the realm of digest authentication.
const Domain = "ims.test"

// User returns the user part of subscriber n: "sub000001".
func User(n int) string { return fmt.Sprintf("sub%06d", n) }

// Password returns the subscriber's password: "pw-" and the user part.
func Password(user string) string { return "pw-" + user }

// Number returns n for the user part of subscriber n, as User writes it. It
// returns false for any other text.
func Number(user string) (int, bool) {
	digits, ok := strings.CutPrefix(user, "sub")
	if !ok || len(digits) < 6 || (len(digits) > 6 && digits[0] == '0') {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	return n, true
}

// UserOf returns the user part of an identity: a SIP URI
// ("sip:sub000001@ims.test"), a private identity ("sub000001@ims.test") or the
// bare user part. It returns an empty string for an identity of another domain.
func UserOf(identity string) string {
	identity = strings.TrimPrefix(identity, "sip:")
	user, host, found := strings.Cut(identity, "@")
	if found && host != Domain {
		return ""
	}
	return user
}

// PublicID returns the public identity (address of record) of a user part.
func PublicID(user string) string { return "sip:" + user + "@" + Domain }

// HA1 returns H(A1) of RFC 7616 section 3.4.2 for algorithm MD5: lower-case hex
// of MD5(username:realm:password). It uses the username exactly as the client
// wrote it, with or without the domain.
func HA1(username string) string {
	user := UserOf(username)
	sum := md5.Sum([]byte(username + ":" + Domain + ":" + Password(user)))
	return hex.EncodeToString(sum[:])
}
