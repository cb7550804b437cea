package identity

// Digits holds the digits of an IMSI, IMEI, IMEISV or MSISDN: at most 16. The
// zero value holds none. Digits are comparable.
type Digits struct {
	digits [16]byte
	length uint8
}

// MakeDigits returns the digits of a text. It returns false if the text is empty,
// has more than 16 characters, or has one that is not a digit.
func MakeDigits(s string) (d Digits, ok bool) {
	for i := range len(s) {
		if !d.Add(s[i] - '0') {
			return Digits{}, false
		}
	}
	return d, len(s) > 0
}

// Add adds a digit, 0 to 9. It returns false if the value is not a digit or if
// there is no room.
func (d *Digits) Add(digit byte) bool {
	if digit > 9 || int(d.length) == len(d.digits) {
		return false
	}
	d.digits[d.length] = '0' + digit
	d.length++
	return true
}

// Len returns the number of digits.
func (d *Digits) Len() int { return int(d.length) }

// Bytes returns the digits in ASCII as a view.
func (d *Digits) Bytes() []byte { return d.digits[:d.length] }

func (d Digits) String() string { return string(d.digits[:d.length]) }

// AppendTBCD appends digits in ASCII, two in each octet, the first in the low half. 0xf fills
// an odd last half (TS 24.008 clause 10.5.1.4, TS 29.274 clause 8.3, TS 29.272 clause 7.3.82).
func AppendTBCD[T string | []byte](b []byte, digits T) []byte {
	for i := 0; i < len(digits); i += 2 {
		octet := 0xf0 | (digits[i] - '0')
		if i+1 < len(digits) {
			octet = (digits[i+1]-'0')<<4 | (digits[i] - '0')
		}
		b = append(b, octet)
	}
	return b
}
