package gtpc

import (
	"vitrine/director/table"
)

// How a TEID that an instance hands out is laid out, from the high bits: 3 of
// the number of its aggregate type (1 to 7), 7 of its ID (1 to 127), 12 of the
// session's key, 10 that are the instance's own.
//
// Of the 23 bits of a sequence number below the command bit (TS 29.274 clause
// 7.6), the highest tells instances (1) from the director itself (0); then come
// the same 3 and 7 bits, and 12 that count.
const (
	typeBits   = 3
	idBits     = 7
	keyBits    = 12
	serialBits = 32 - typeBits - idBits - keyBits

	ownBit       = 1 << 22 // of a sequence number: an instance gave it
	countBits    = 22 - typeBits - idBits
	MaxNumber    = 1<<typeBits - 1 // MaxNumber is the highest number of a type with prefixes
	MaxID        = 1<<idBits - 1   // MaxID is the highest ID of an instance with a prefix
	MaxSerial    = 1<<serialBits - 1
	MaxCount     = 1<<countBits - 1 // MaxCount is the highest of an instance's own sequence numbers
	numberOfKeys = 1 << keyBits
)

// A Prefix is what an instance that can is given at its start, together with
// the director's address, which it puts into its F-TEIDs, and the restart
// counter that all instances share.
type Prefix struct {
	TEID     uint32 // the 10 high bits of every TEID that it hands out
	Sequence uint32 // the 11 high bits, below the command bit, of its sequence numbers
}

// PrefixOf is the prefix of the instance with that ID of the type with that
// number; false: one of them is 0 or too high, and the director learns the TEIDs
// of the instance instead.
func PrefixOf(number uint8, id uint16) (Prefix, bool) {
	if number == 0 || number > MaxNumber || id == 0 || id > MaxID {
		return Prefix{}, false
	}
	p := uint32(number)<<idBits | uint32(id)
	return Prefix{TEID: p << (keyBits + serialBits), Sequence: ownBit | p<<countBits}, true
}

// SessionTEID is the TEID of a session: key is SessionKey of its IMSI, serial
// tells the instance's sessions of one key apart.
func (p Prefix) SessionTEID(key uint16, serial uint32) uint32 {
	return p.TEID | uint32(key&(numberOfKeys-1))<<serialBits | serial&MaxSerial
}

// Number is a sequence number for an exchange that the instance begins; count
// goes up by one from each to the next. The sequence number of a command has
// the command bit too.
func (p Prefix) Number(count uint32) uint32 { return p.Sequence | count&MaxCount }

// SessionKey is the key that a TEID carries: the low bits of the hash of the
// IMSI's digits in ASCII (table.Key), the same in every director and instance.
func SessionKey(imsi []byte) uint16 { return uint16(table.Key(imsi) & (numberOfKeys - 1)) }

// splitTEID takes a TEID apart; number or id is 0 when it has no prefix.
func splitTEID(teid uint32) (number uint8, id, key uint16) {
	return uint8(teid >> (32 - typeBits)), uint16(teid>>(keyBits+serialBits)) & MaxID, uint16(teid>>serialBits) & (numberOfKeys - 1)
}

// splitSequence takes an instance's sequence number apart; number is 0 when it
// is none.
func splitSequence(sequence uint32) (number uint8, id uint16) {
	if sequence&ownBit == 0 {
		return 0, 0
	}
	return uint8(sequence>>(countBits+idBits)) & MaxNumber, uint16(sequence>>countBits) & MaxID
}
