// Package subscriber has the keys and the subscription data of the reference EPC's
// subscribers. It computes most of them on request.
package subscriber

import (
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/reference/ims"
	"vitrine/wire/gtpc"
)

// A Set is a range of IMSIs whose secrets derive from the IMSI, and the subscribers
// of a file. It is immutable, so any goroutine may use it.
type Set struct {
	first  uint64 // first IMSI of the range
	digits int    // number of digits of first
	count  uint64
	wrong  uint64 // every wrong-th subscriber has another K than its USIM; 0: none
	file   map[string]aka.Secret
	apns   []string
	ambr   diameter.Rates
}

// Flags declares the flags of a set. The caller calls parsed after parsing the
// command line.
func Flags(c *ims.Command) (parsed func() (*Set, error)) {
	s := &Set{}
	c.Uint64Var(&s.count, "subscribers", 1<<20, "subscribers whose keys follow from the IMSI")
	first := c.String("first", "001010000000001", "IMSI of the first of them")
	c.Uint64Var(&s.wrong, "wrong-key-every", 0, "every N-th subscriber has another key here than in its USIM; 0: none")
	file := c.String("file", "", "file of further subscribers: lines of IMSI,K,OPc, keys in hexadecimal")
	apns := c.String("apn", "internet,ims", "access point names of all subscribers, comma-separated, the default first")
	c.Uint32Var(&s.ambr.Up, "ambr-up", 50_000_000, "aggregate maximum bit rate uplink, bit/s")
	c.Uint32Var(&s.ambr.Down, "ambr-down", 150_000_000, "aggregate maximum bit rate downlink, bit/s")
	return func() (*Set, error) { return s, s.fill(c, *first, *file, *apns) }
}

// Limits that make a subscription fit into a message. An encoded name has at most
// 100 octets, including the length octet at its start (TS 23.003 clause 9.1).
const (
	maxAPN  = 99
	maxAPNs = 16
)

// fill converts the flags whose values are text.
func (s *Set) fill(c *ims.Command, first, file, apns string) error {
	var err error
	if s.first, err = strconv.ParseUint(first, 10, 64); err != nil || !isIMSI(first) {
		return c.Bad(fmt.Sprintf("--first %q", first), "want an IMSI of 6 to 15 digits")
	}
	s.digits, s.apns = len(first), strings.Split(apns, ",")
	for _, apn := range s.apns {
		if apn == "" || len(apn) > maxAPN || len(s.apns) > maxAPNs {
			return c.Bad(fmt.Sprintf("--apn %q", apns), fmt.Sprintf("want 1 to %d names of 1 to %d characters", maxAPNs, maxAPN))
		}
	}
	if last := s.first + s.count; s.count > 0 && len(strconv.FormatUint(last-1, 10)) > s.digits {
		return c.Bad(fmt.Sprintf("--subscribers %d from --first %s", s.count, first), "want IMSIs of as many digits as the first")
	}
	s.file = map[string]aka.Secret{}
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return c.Bad(fmt.Sprintf("--file %q: %v", file, err), "want a file that can be read")
	}
	defer f.Close()
	if s.file, err = readFile(f); err != nil {
		return c.Bad(fmt.Sprintf("--file %s: %v", file, err), "want lines of IMSI,K,OPc")
	}
	return nil
}

// Secret returns the secret that the HSS and the subscriber's USIM share. It returns
// false for an unknown subscriber.
func (s *Set) Secret(imsi string) (aka.Secret, bool) {
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

// Subscription returns the subscription data: all subscribers have the same APNs.
func (s *Set) Subscription(imsi string) diameter.Subscription {
	sub := diameter.Subscription{MSISDN: "1" + imsi[len(imsi)-min(len(imsi), 10):], AMBR: s.ambr, Default: 1}
	for i, name := range s.apns {
		sub.APNs = append(sub.APNs, diameter.APN{
			Context: uint32(i + 1), Name: name, PDN: gtpc.PDNv4, QoS: defaultQoS(name), AMBR: s.ambr,
		})
	}
	return sub
}

// defaultQoS returns the quality of service of an APN's default bearer. The APN
// "ims" carries signalling (TS 23.203 table 6.1.7).
func defaultQoS(apn string) diameter.QoS {
	if apn == "ims" {
		return diameter.QoS{QCI: 5, Priority: 1}
	}
	return diameter.QoS{QCI: 9, Priority: 8, Preemptable: true}
}

// maxFile limits the subscribers of a file.
const maxFile = 1_000_000

// readFile reads subscribers from lines of IMSI, K and OPc, separated by commas. K
// and OPc are in hexadecimal. Lines that begin with # are comments.
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

// isIMSI reports whether the text is an IMSI in digits (TS 23.003 clause 2.2).
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
