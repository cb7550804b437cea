// Package pseudonym replaces identities by keyed pseudonyms. With the key, an identity has
// the same pseudonym each time. Without the key, nobody can find the identity by trying all
// of them.
package pseudonym

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"

	"vitrine"
	"vitrine/internal/durable"
)

// keySize is the size of a key in bytes: the size of the hash (RFC 2104 section 3).
const keySize = sha256.Size

// A Key makes pseudonyms. It is not safe for concurrent use.
type Key struct {
	mac   hash.Hash
	sum   [sha256.Size]byte
	names map[string]string // see Name
}

// New returns the Key of a secret.
func New(secret []byte) *Key {
	return &Key{mac: hmac.New(sha256.New, secret), names: map[string]string{}}
}

// Load returns the key in a file of 64 hexadecimal digits. If the file does not exist, it
// creates the file, with mode 0600 and a random key. The file is complete or absent after a crash of the
// machine. A file that others may read is an error, because they could reverse the pseudonyms.
func Load(path string) (*Key, error) {
	if _, err := os.Lstat(path); err == nil {
		return read(path)
	}
	secret := make([]byte, keySize)
	_, _ = rand.Read(secret) // never fails
	err := durable.Create(path, []byte(hex.EncodeToString(secret)+"\n"), 0o600)
	switch {
	case errors.Is(err, fs.ErrExist): // another process has just made it
		return read(path)
	case err != nil:
		return nil, &vitrine.BadInput{File: path, Found: "the file of the key cannot be made: " + err.Error(), Want: "name a file in a folder that you may write to"}
	}
	return New(secret), nil
}

func read(path string) (*Key, error) {
	bad := func(found, want string) (*Key, error) {
		return nil, &vitrine.BadInput{File: path, Found: found, Want: want}
	}
	const want = "name a file with 64 hexadecimal digits, or one that does not exist yet: it is made"
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return bad(err.Error(), want)
	case !info.Mode().IsRegular():
		return bad("no regular file", want)
	case info.Mode().Perm()&0o077 != 0:
		return bad(fmt.Sprintf("others may use the key: its mode is %04o", info.Mode().Perm()), "chmod 600 "+path)
	}
	file, err := os.Open(path)
	if err != nil {
		return bad(err.Error(), want)
	}
	defer file.Close()                                            // opened read-only
	text, err := io.ReadAll(io.LimitReader(file, 2*keySize+1024)) // with room for white space
	if err != nil {
		return bad(err.Error(), want)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != keySize {
		return bad("no key", want)
	}
	return New(secret), nil
}

// ID identifies the key without revealing it.
func (k *Key) ID() string { return k.text("key", "") }

// digits are the base 32 digits in the order of their values, in lower case (RFC 4648
// section 7).
var digits = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// size is the number of hash bytes in a pseudonym. Among a billion identities, two have the
// same pseudonym with a probability of 4e-7.
const size = 10

// prefix is the beginning of each pseudonym that is text.
const prefix = "p-"

// text returns the pseudonym of a value. Equal values of different classes have different
// pseudonyms.
func (k *Key) text(class, value string) string {
	return prefix + digits.EncodeToString(k.hash(class, value)[:size])
}

// hash returns HMAC-SHA256 of class and value, valid until the next call.
func (k *Key) hash(class, value string) []byte {
	k.mac.Reset()
	_, _ = io.WriteString(k.mac, class)
	_, _ = k.mac.Write([]byte{0}) // ends the class, because no class contains a zero byte
	_, _ = io.WriteString(k.mac, value)
	return k.mac.Sum(k.sum[:0])
}
