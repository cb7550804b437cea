package aka

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/prf/subtle"
)

// A Direction is the direction of a NAS message (TS 33.401 annex B.1.1).
type Direction uint8

// The directions.
const (
	Uplink   Direction = 0
	Downlink Direction = 1
)

// An Algorithm is the identity of a ciphering or integrity algorithm (TS 33.401
// clauses 5.1.3.2 and 5.1.4.2), as in a Security Mode Command.
type Algorithm uint8

// The algorithms that this package supports. Null is only for ciphering.
const (
	Null Algorithm = 0
	AES  Algorithm = 2
)

// A Protection protects the NAS messages of one security context. Only one
// goroutine may use it at a time.
type Protection struct {
	integrity *subtle.AESCMACPRF
	cipher    cipher.Block // nil: EEA0
	scratch   []byte       // input of the message authentication code
}

// NewProtection derives the NAS keys of a security context (TS 33.401 annex A.7).
// ciphering may be Null or AES; integrity must be AES.
func NewProtection(kasme [32]byte, ciphering, integrity Algorithm) (*Protection, error) {
	if integrity != AES {
		return nil, fmt.Errorf("aka: integrity algorithm %d is not supported: use 2 (128-EIA2)", integrity)
	}
	if ciphering != Null && ciphering != AES {
		return nil, fmt.Errorf("aka: ciphering algorithm %d is not supported: use 0 (EEA0) or 2 (128-EEA2)", ciphering)
	}
	var p Protection
	if ciphering == AES {
		key := nasKey(kasme, 1, ciphering)
		block, err := aes.NewCipher(key[:])
		if err != nil {
			return nil, fmt.Errorf("aka: NAS ciphering key: %w", err)
		}
		p.cipher = block
	}
	key := nasKey(kasme, 2, integrity)
	var err error
	if p.integrity, err = subtle.NewAESCMACPRF(key[:]); err != nil {
		return nil, fmt.Errorf("aka: NAS integrity key: %w", err)
	}
	return &p, nil
}

// nasKey derives the key of an algorithm: the second half of the derived octets
// (TS 33.401 annex A.7). kind is 1 for ciphering, 2 for integrity.
func nasKey(kasme [32]byte, kind byte, of Algorithm) (key [16]byte) {
	out := derive(kasme[:], 0x15, []byte{kind}, []byte{byte(of)})
	copy(key[:], out[16:])
	return key
}

// nasBearer is the bearer identity of all NAS messages (TS 24.301 clause 4.4.3.1).
const nasBearer = 0

// MAC returns the message authentication code of 128-EIA2 for a NAS message whose
// COUNT has 32 bits (TS 33.401 annex B.2.3). covered is the protected part of the
// NAS message, from its sequence number on. A Service Request carries only the low
// 16 bits of the code.
func (p *Protection) MAC(count uint32, d Direction, covered []byte) (uint32, error) {
	return p.mac(count, nasBearer, d, covered)
}

func (p *Protection) mac(count uint32, bearer byte, d Direction, message []byte) (uint32, error) {
	p.scratch = binary.BigEndian.AppendUint32(p.scratch[:0], count)
	p.scratch = append(p.scratch, bearer<<3|byte(d)<<2, 0, 0, 0)
	p.scratch = append(p.scratch, message...)
	v, err := p.integrity.ComputePRF(p.scratch, 4)
	if err != nil {
		return 0, fmt.Errorf("aka: 128-EIA2: %w", err)
	}
	return binary.BigEndian.Uint32(v), nil
}

// Cipher ciphers or deciphers the body of a NAS message in place: with 128-EEA2
// (TS 33.401 annex B.1.3), or not at all for EEA0.
func (p *Protection) Cipher(count uint32, d Direction, body []byte) {
	p.stream(count, nasBearer, d, body)
}

func (p *Protection) stream(count uint32, bearer byte, d Direction, b []byte) {
	if p.cipher == nil {
		return
	}
	var counter [aes.BlockSize]byte
	binary.BigEndian.PutUint32(counter[:], count)
	counter[4] = bearer<<3 | byte(d)<<2
	cipher.NewCTR(p.cipher, counter[:]).XORKeyStream(b, b)
}
