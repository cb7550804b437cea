package gtpc

import (
	"vitrine/director/table"
)

// A TEID that an instance hands out has, from the high bits:
//
//   - 3 bits of the number of its aggregate type, 1 to 7
//   - 7 bits of the instance's ID, 1 to 127
//   - 12 bits of the session's key
//   - 10 bits that the instance chooses
//
// A sequence number has 23 bits below the command bit (TS 29.274 clause 7.6). The highest
// of them is 1 in the numbers of instances and 0 in the numbers of the director. In an
// instance's number, the same 3 and 7 bits follow, and then a count of 12 bits.
const (
	typeBits   = 3
	idBits     = 7
	keyBits    = 12
	serialBits = 32 - typeBits - idBits - keyBits

	ownBit       = 1 << 22 // of a sequence number: an instance chose it
	countBits    = 22 - typeBits - idBits
	MaxNumber    = 1<<typeBits - 1 // MaxNumber is the highest number of a type with prefixes
	MaxID        = 1<<idBits - 1   // MaxID is the highest ID of an instance with a prefix
	maxSerial    = 1<<serialBits - 1
	MaxCount     = 1<<countBits - 1 // MaxCount is the highest of an instance's own sequence numbers
	numberOfKeys = 1 << keyBits
)

// A Prefix is given to an instance at its start, if its function can use one. The
// instance also gets the director's address, for its F-TEIDs, and the restart counter
// that all instances share.
type Prefix struct {
	TEID     uint32 // the 10 high bits of every TEID that it hands out
	Sequence uint32 // the 11 high bits, below the command bit, of its sequence numbers
}

// PrefixOf returns the prefix of the instance with that ID of the type with that number.
// It returns false if one of them is 0 or too high. The director then learns the
// instance's TEIDs.
func PrefixOf(number uint8, id uint16) (Prefix, bool) {
	if number == 0 || number > MaxNumber || id == 0 || id > MaxID {
		return Prefix{}, false
	}
	p := uint32(number)<<idBits | uint32(id)
	return Prefix{TEID: p << (keyBits + serialBits), Sequence: ownBit | p<<countBits}, true
}

// SessionTEID returns the TEID of a session. key is SessionKey of its IMSI; serial
// distinguishes the instance's sessions with the same key.
func (p Prefix) SessionTEID(key uint16, serial uint32) uint32 {
	return p.TEID | uint32(key&(numberOfKeys-1))<<serialBits | serial&maxSerial
}

// Number returns the sequence number of an exchange that the instance begins; count grows
// by one with each exchange. In a command, the sequence number also has the command bit.
func (p Prefix) Number(count uint32) uint32 { return p.Sequence | count&MaxCount }

// SessionKey returns the key that a TEID carries: the low bits of the hash of the IMSI's
// digits in ASCII (table.Key), the same in every director and instance.
func SessionKey(imsi []byte) uint16 { return uint16(table.Key(imsi) & (numberOfKeys - 1)) }

// splitTEID returns the parts of a TEID; number or id is 0 if it has no prefix.
func splitTEID(teid uint32) (number uint8, id, key uint16) {
	return uint8(teid >> (32 - typeBits)), uint16(teid>>(keyBits+serialBits)) & MaxID, uint16(teid>>serialBits) & (numberOfKeys - 1)
}

// splitSequence returns the parts of an instance's sequence number; number is 0 if the
// director or a function without prefix chose it.
func splitSequence(sequence uint32) (number uint8, id uint16) {
	if sequence&ownBit == 0 {
		return 0, 0
	}
	return uint8(sequence>>(countBits+idBits)) & MaxNumber, uint16(sequence>>countBits) & MaxID
}
