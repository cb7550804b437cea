package gtpc_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vitrine/wire/gtpc"
	"vitrine/wire/wiretest"
)

// TestTshark compares the fields of a message of each type with tshark's reading.
func TestTshark(t *testing.T) {
	var names []string
	var messages [][]byte
	for name, m := range samples() {
		names, messages = append(names, name), append(messages, m.Append(nil, 0xdeadbeef, 0x123456))
	}
	rows := wiretest.Fields(t, "gtpv2", messages, "gtpv2.message_type", "gtpv2.teid", "gtpv2.seq", "gtpv2.ie_type",
		"gtpv2.cause", "gtpv2.ebi", "gtpv2.f_teid_gre_key", "gtpv2.f_teid_interface_type", "gtpv2.bearer_qos_label_qci",
		"gtpv2.rec", "gtpv2.apn", "gtpv2.rat_type", "gtpv2.pdn_addr_and_prefix.ipv4", "e212.imsi")
	for i, row := range rows {
		want := fields(messages[i])
		for f := range row {
			if got := strings.Join(want[f], ","); !same(got, row[f]) {
				t.Errorf("%s: field %d: got %s, tshark has %s", names[i], f, got, row[f])
			}
		}
	}
}

// same compares values that tshark writes in decimal or in hexadecimal.
func same(ours, theirs string) bool {
	a, b := strings.Split(ours, ","), strings.Split(theirs, ",")
	return slices.EqualFunc(a, b, func(a, b string) bool {
		x, errX := strconv.ParseUint(a, 0, 64)
		y, errY := strconv.ParseUint(b, 0, 64)
		return a == b || errX == nil && errY == nil && x == y
	})
}

// fields returns what this package reads of the fields that the test asks tshark
// for.
func fields(b []byte) [14][]string {
	var m gtpc.Message
	if _, err := m.Parse(b); err != nil {
		panic(err)
	}
	var f [14][]string
	add := func(field int, v any) { f[field] = append(f[field], fmt.Sprint(v)) }
	add(0, uint8(m.Type))
	add(1, m.TEID)
	add(2, m.Sequence)
	var walk func(e gtpc.Elements)
	walk = func(e gtpc.Elements) {
		for e.Next() {
			add(3, uint8(e.Type))
			switch e.Type {
			case gtpc.BearerContext:
				walk(gtpc.Group(e.Value))
			case gtpc.Cause:
				r, _ := gtpc.ParseResult(e.Value)
				add(4, uint8(r.Cause))
			case gtpc.EBI:
				add(5, e.Value[0])
			case gtpc.FTEID:
				endpoint, _ := gtpc.ParseFTEID(e.Value)
				add(6, endpoint.TEID)
				add(7, uint8(endpoint.Interface))
			case gtpc.BearerQoS:
				q, _ := gtpc.ParseQoS(e.Value)
				add(8, q.QCI)
			case gtpc.Recovery:
				add(9, e.Value[0])
			case gtpc.APN:
				add(10, "internet.example")
			case gtpc.RATType:
				add(11, e.Value[0])
			case gtpc.PAA:
				a, _ := gtpc.ParseAddress(e.Value)
				add(12, a.V4)
			case gtpc.IMSI:
				d, _ := gtpc.ParseDigits(e.Value)
				add(13, d)
			}
		}
	}
	walk(m.Elements())
	return f
}
