// Package ims holds what the components of the reference IMS share: the
// identities of its subscribers, the documents that pass between Homestead and
// Sprout, and how a component's command line is read. The components are the
// packages below: bono, sprout, homestead, homer and ralf.
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

// User is the user part of subscriber n: "sub000001".
func User(n int) string { return fmt.Sprintf("sub%06d", n) }

// Password is the subscriber's: "pw-" and the user part.
func Password(user string) string { return "pw-" + user }

// Number is n of the n-th subscriber's user part, as User writes it; false for
// any other text.
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

// UserOf is the user part of an identity: a SIP URI ("sip:sub000001@ims.test"),
// a private identity ("sub000001@ims.test") or the bare user part. It is empty
// when the identity belongs to another domain.
func UserOf(identity string) string {
	identity = strings.TrimPrefix(identity, "sip:")
	user, host, found := strings.Cut(identity, "@")
	if found && host != Domain {
		return ""
	}
	return user
}

// PublicID is the public identity (address of record) of a user part.
func PublicID(user string) string { return "sip:" + user + "@" + Domain }

// HA1 is H(A1) of RFC 7616 section 3.4.2 for algorithm MD5: lower-case hex of
// MD5(username:realm:password). The username is taken as the client wrote it,
// so that it may carry the domain or not.
func HA1(username string) string {
	user := UserOf(username)
	sum := md5.Sum([]byte(username + ":" + Domain + ":" + Password(user)))
	return hex.EncodeToString(sum[:])
}
