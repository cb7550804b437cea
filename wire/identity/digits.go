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
