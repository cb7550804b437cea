package diameter_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"vitrine/wire/diameter"
	"vitrine/wire/wiretest"
)

// fields are compared with tshark's, in the order of read.
var fields = []string{
	"diameter.cmd.code", "diameter.flags", "diameter.applicationId", "diameter.hopbyhopid", "diameter.endtoendid",
	"diameter.Session-Id", "diameter.Origin-Host", "diameter.Destination-Host", "diameter.User-Name", "diameter.Public-Identity",
	"diameter.Result-Code", "diameter.Experimental-Result-Code", "diameter.CC-Request-Type", "diameter.avp.code",
}

// read returns the message's fields as tshark prints them.
func read(m *diameter.Message) []string {
	w := found(m)
	row := []string{
		strconv.Itoa(int(m.Command)), fmt.Sprintf("0x%02x", uint8(m.Flags)), strconv.FormatUint(uint64(m.Application), 10),
		fmt.Sprintf("0x%08x", m.HopByHop), fmt.Sprintf("0x%08x", m.EndToEnd),
		w.session, w.origin, w.destination, w.user, w.public,
		"", "", "", strings.Join(codes(m.Each()), ","),
	}
	if r, ok := m.Result(); ok && r.Vendor == 0 {
		row[10] = strconv.Itoa(int(r.Code))
	} else if ok {
		row[11] = strconv.Itoa(int(r.Code))
	}
	if w.kind != 0 {
		row[12] = strconv.Itoa(int(w.kind))
	}
	return row
}

// codes returns the codes of AVPs in order, and of those inside the groups that
// the samples and captures have.
func codes(a diameter.AVPs) (all []string) {
	for a.Next() {
		all = append(all, strconv.Itoa(int(a.Code)))
		switch a.Code {
		case diameter.ExperimentalResult, diameter.SubscriptionID, diameter.UserIdentity, 413, 437, 440, 445, 446, 431:
			all = append(all, codes(diameter.Group(a.Value))...)
		}
	}
	return all
}

func compare(t *testing.T, octets []byte, row []string) {
	t.Helper()
	var m diameter.Message
	if n, err := m.Parse(octets); err != nil || n != len(octets) {
		t.Fatalf("parsed %d of %d octets, error %v", n, len(octets), err)
	}
	for f, got := range read(&m) {
		if got != row[f] {
			t.Errorf("%s: %s: got %q, tshark has %q", m.Name(), fields[f], got, row[f])
		}
	}
	if types, data := row[len(fields)], row[len(fields)+1]; types != "" {
		values := strings.Split(data, ",")
		for i, of := range strings.Split(types, ",") {
			n, err := strconv.Atoi(of)
			if got := identity(&m, diameter.SubscriptionType(n)); err != nil || string(got) != values[i] {
				t.Errorf("%s: subscription of type %s: got %q, tshark has %q", m.Name(), of, got, values[i])
			}
		}
	}
}

// TestTshark compares fields of all golden messages with tshark's reading.
func TestTshark(t *testing.T) {
	var messages [][]byte
	for _, s := range golden() {
		messages = append(messages, s.octets)
	}
	all := append(fields[:len(fields):len(fields)], "diameter.Subscription-Id-Type", "diameter.Subscription-Id-Data")
	for i, row := range wiretest.Fields(t, "diameter", messages, all...) {
		compare(t, messages[i], row)
	}
}

// TestRealTraffic compares credit control of real software with tshark's reading.
func TestRealTraffic(t *testing.T) {
	all := append(fields[:len(fields):len(fields)], "diameter.Subscription-Id-Type", "diameter.Subscription-Id-Data", "tcp.payload")
	for _, row := range wiretest.Capture(t, "diameter.pcap", "diameter", all...) {
		compare(t, wiretest.Octets(t, row[len(row)-1]), row)
	}
}
