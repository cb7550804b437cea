package nas

// A QoS is an EPS quality of service (clause 9.9.4.3). Rates are in kbit/s; 0
// means not given. Bearers without a guaranteed rate have only a QCI.
type QoS struct {
	QCI                          uint8
	MaxUp, MaxDown               uint32
	GuaranteedUp, GuaranteedDown uint32
}

// ParseQoS parses the value of an EPS quality of service: 1, 5, 9 or 13 octets.
func ParseQoS(v []byte) (q QoS, ok bool) {
	if len(v) != 1 && len(v) != 5 && len(v) != 9 && len(v) != 13 {
		return q, false
	}
	q.QCI = v[0]
	for i, rate := range q.rates() {
		if 1+i < len(v) {
			*rate = baseRate(v[1+i])
		}
		if 5+i < len(v) && v[5+i] != 0 {
			*rate = extendedRate(v[5+i])
		}
		if 9+i < len(v) && v[9+i] != 0 {
			*rate = secondRate(v[9+i])
		}
	}
	return q, true
}

// rates returns the rates in the order of octets.
func (q *QoS) rates() [4]*uint32 {
	return [4]*uint32{&q.MaxUp, &q.MaxDown, &q.GuaranteedUp, &q.GuaranteedDown}
}

// Append appends the value of an EPS quality of service. It rounds rates down
// to values that the encoding has.
func (q QoS) Append(b []byte) []byte {
	b = append(b, q.QCI)
	most := max(q.MaxUp, q.MaxDown, q.GuaranteedUp, q.GuaranteedDown)
	if most == 0 {
		return b
	}
	var octets [12]byte
	for i, rate := range q.rates() {
		octets[i], octets[4+i], octets[8+i] = encodeRate(*rate)
	}
	return append(b, octets[:rateGroups(most)*4]...)
}

// An AMBR is an aggregate maximum bit rate of an APN, in kbit/s (clause 9.9.4.2).
type AMBR struct {
	Down, Up uint32
}

// ParseAMBR parses the value of an APN-AMBR: 2, 4 or 6 octets. The second
// extension counts units of 256 Mbit/s, which add to the rate of the other
// octets.
func ParseAMBR(v []byte) (a AMBR, ok bool) {
	if len(v) != 2 && len(v) != 4 && len(v) != 6 {
		return a, false
	}
	for i, rate := range [2]*uint32{&a.Down, &a.Up} {
		*rate = baseRate(v[i])
		if len(v) > 2 && v[2+i] != 0 {
			*rate = extendedRate(v[2+i])
		}
		if len(v) > 4 && v[4+i] != 0 && v[4+i] != 0xff {
			*rate += uint32(v[4+i]) * unitAMBR
		}
	}
	return a, true
}

const unitAMBR = 256_000 // kbit/s, of the second extension of an AMBR

// Append appends the value of an APN-AMBR. It rounds rates down to values that
// the encoding has, at most 65,280 Mbit/s.
func (a AMBR) Append(b []byte) []byte {
	var octets [6]byte
	n := 2
	for i, rate := range [2]uint32{a.Down, a.Up} {
		if rate > topRate {
			units := min(rate/unitAMBR, 254)
			octets[4+i] = byte(units)
			rate = min(rate-units*unitAMBR, topRate)
			n = 6
		}
		if rate > topBase {
			n = max(n, 4)
		}
		octets[i], octets[2+i], _ = encodeRate(rate)
	}
	return append(b, octets[:n]...)
}

const (
	topBase  = 8_640      // kbit/s, the highest rate of one octet
	topRate  = 256_000    // kbit/s, the highest rate of one octet and its extension
	topTotal = 10_000_000 // kbit/s, the highest rate with the second extension
)

// rateGroups returns how many octets encode a rate.
func rateGroups(rate uint32) int {
	switch {
	case rate <= topBase:
		return 1
	case rate <= topRate:
		return 2
	}
	return 3
}

// baseRate decodes the first octet of a rate: steps of 1, 8 and 64 kbit/s (TS
// 24.301 table 9.9.4.3.1).
func baseRate(v byte) uint32 {
	n := uint32(v)
	switch {
	case n <= 63:
		return n
	case n <= 127:
		return 64 + (n-64)*8
	case n <= 254:
		return 576 + (n-128)*64
	}
	return 0
}

// extendedRate decodes the extension of a rate: steps of 100 kbit/s, 1 and 2
// Mbit/s.
func extendedRate(v byte) uint32 {
	n := uint32(v)
	switch {
	case n <= 74:
		return 8_600 + n*100
	case n <= 186:
		return 16_000 + (n-74)*1_000
	}
	return 128_000 + (min(n, 250)-186)*2_000
}

// secondRate decodes the second extension of a rate: steps of 4, 10 and 100
// Mbit/s.
func secondRate(v byte) uint32 {
	n := uint32(v)
	switch {
	case n <= 61:
		return 256_000 + n*4_000
	case n <= 161:
		return 500_000 + (n-61)*10_000
	}
	return 1_500_000 + (min(n, 246)-161)*100_000
}

// encodeRate returns the three octets of a rate. Octets of extensions that the
// rate does not need are zero.
func encodeRate(rate uint32) (base, extended, second byte) {
	switch {
	case rate == 0:
		return 0xff, 0, 0 // zero kbit/s; an octet of zero means the subscribed rate
	case rate <= 63:
		return byte(rate), 0, 0
	case rate < 576:
		return byte(64 + (rate-64)/8), 0, 0
	case rate < 8_700:
		return byte(128 + (min(rate, topBase)-576)/64), 0, 0
	case rate < 17_000:
		return 0xfe, byte(min((rate-8_600)/100, 74)), 0
	case rate < 130_000:
		return 0xfe, byte(74 + min((rate-16_000)/1_000, 112)), 0
	case rate <= topRate:
		return 0xfe, byte(186 + (rate-128_000)/2_000), 0
	case rate < 260_000:
		return 0xfe, 0xfa, 0
	case rate < 510_000:
		return 0xfe, 0xfa, byte(min((rate-256_000)/4_000, 61))
	case rate < 1_600_000:
		return 0xfe, 0xfa, byte(61 + min((rate-500_000)/10_000, 100))
	}
	return 0xfe, 0xfa, byte(161 + (min(rate, topTotal)-1_500_000)/100_000)
}
