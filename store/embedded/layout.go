package embedded

import (
	"encoding/binary"
	"errors"

	"vitrine/store"
)

// Layout of the keys in Pebble:
//
//	m                                  revision (8 bytes), count of records (8)
//	r SPACE 0 NAME                     version (8), encoded record
//	t SPACE 0 TAG 0 VALUE 0 NAME       empty: NAME has the tag
//	x EXPIRES(8) SPACE 0 NAME          empty: NAME expires then
//
// Numbers are big endian. No text holds a NUL, so the order of keys is the order of their parts.
var keyState = []byte{'m'}

func appendRecordKey(b []byte, space, name string) []byte {
	b = append(b, 'r')
	b = append(b, space...)
	b = append(b, 0)
	return append(b, name...)
}

func appendTagBase(b []byte, space, tag string) []byte {
	b = append(b, 't')
	b = append(b, space...)
	b = append(b, 0)
	b = append(b, tag...)
	return append(b, 0)
}

func appendTagKey(b []byte, space, tag, value, name string) []byte {
	b = append(appendTagBase(b, space, tag), value...)
	b = append(b, 0)
	return append(b, name...)
}

func appendExpiryKey(b []byte, ms int64, space, name string) []byte {
	b = append(b, 'x')
	b = binary.BigEndian.AppendUint64(b, uint64(ms))
	b = append(b, space...)
	b = append(b, 0)
	return append(b, name...)
}

var errMalformed = errors.New("store: a stored record is cut short")

// decode reads the value of a record's key into r.
func decode(r *store.Record, b []byte) error {
	if len(b) < 8 {
		return errMalformed
	}
	r.Version = binary.BigEndian.Uint64(b)
	return r.Decode(b[8:])
}
