package hss

import (
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/wire/gtpc"
)

// subscribers are those that an HSS knows: a range of IMSIs with secrets that
// follow from the IMSI, and those of a file.
type subscribers struct {
	first  uint64 // IMSI
	digits int    // of the first IMSI
	count  uint64
	wrong  uint64 // every so many has another K here than in its USIM; 0: none
	file   map[string]aka.Secret
	apns   []string
	ambr   diameter.Rates
}

// secret returns what the HSS shares with the subscriber's USIM. It returns false
// for an unknown subscriber.
func (s *subscribers) secret(imsi string) (aka.Secret, bool) {
	if secret, ok := s.file[imsi]; ok {
		return secret, true
	}
	n, err := strconv.ParseUint(imsi, 10, 64)
	if err != nil || len(imsi) != s.digits || n < s.first || n-s.first >= s.count {
		return aka.Secret{}, false
	}
	secret := aka.SecretOf(imsi)
	if s.wrong != 0 && (n-s.first)%s.wrong == s.wrong-1 {
		secret.K[0] ^= 0xff
	}
	return secret, true
}

// subscription returns the subscription data: all subscribers have the same APNs.
func (s *subscribers) subscription(imsi string) diameter.Subscription {
	sub := diameter.Subscription{MSISDN: "1" + imsi[len(imsi)-min(len(imsi), 10):], AMBR: s.ambr, Default: 1}
	for i, name := range s.apns {
		sub.APNs = append(sub.APNs, diameter.APN{
			Context: uint32(i + 1), Name: name, PDN: gtpc.PDNv4, QoS: defaultQoS(name), AMBR: s.ambr,
		})
	}
	return sub
}

// defaultQoS returns the quality of service of an APN's default bearer. That of
// "ims" carries signalling (TS 23.203 table 6.1.7).
func defaultQoS(apn string) diameter.QoS {
	if apn == "ims" {
		return diameter.QoS{QCI: 5, Priority: 1}
	}
	return diameter.QoS{QCI: 9, Priority: 8, Preemptable: true}
}

// maxFile limits the subscribers of a file.
const maxFile = 1_000_000

// readFile reads subscribers: lines of IMSI, K and OPc, the latter two in
// hexadecimal, with commas between them. Lines that begin with # are comments.
func readFile(from io.Reader) (map[string]aka.Secret, error) {
	r := csv.NewReader(from)
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace, r.ReuseRecord = 3, '#', true, true
	all := map[string]aka.Secret{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		var secret aka.Secret
		switch _, known := all[row[0]]; {
		case !isIMSI(row[0]):
			return nil, fmt.Errorf("line %d: %q is no IMSI of 6 to 15 digits", line, row[0])
		case known:
			return nil, fmt.Errorf("line %d: IMSI %s again", line, row[0])
		case len(all) == maxFile:
			return nil, fmt.Errorf("line %d: more than %d subscribers", line, maxFile)
		case !readKey(&secret.K, row[1]):
			return nil, fmt.Errorf("line %d: K: want 32 hexadecimal digits", line)
		case !readKey(&secret.OPc, row[2]):
			return nil, fmt.Errorf("line %d: OPc: want 32 hexadecimal digits", line)
		}
		all[strings.Clone(row[0])] = secret
	}
}

// isIMSI reports whether the text is the digits of an IMSI (TS 23.003 clause 2.2).
func isIMSI(s string) bool {
	return len(s) >= 6 && len(s) <= 15 && strings.Trim(s, "0123456789") == ""
}

func readKey(into *[16]byte, text string) bool {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(into) {
		return false
	}
	*into = [16]byte(b)
	return true
}
