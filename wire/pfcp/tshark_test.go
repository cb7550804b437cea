package pfcp_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vitrine/wire/pfcp"
	"vitrine/wire/wiretest"
)

var (
	headers = []string{"pfcp.msg_type", "pfcp.seqno", "pfcp.ie_type"}
	fields  = []string{
		"pfcp.seid", "pfcp.pdr_id", "pfcp.far_id", "pfcp.qer_id", "pfcp.cause", "pfcp.f_seid.ipv4", "pfcp.f_seid.ipv6",
	}
)

// A table collects values of fields in the order of the message.
type table map[string][]string

func (t table) add(field string, v any) { t[field] = append(t[field], fmt.Sprint(v)) }

// walk adds elements and, of groups, those inside them.
func (t table) walk(e pfcp.Elements) {
	for e.Next() {
		if e.Enterprise == 0 { // tshark shows others elsewhere
			t.add("pfcp.ie_type", e.Type)
		}
		switch e.Type {
		case pfcp.PDRID:
			t.add("pfcp.pdr_id", binary.BigEndian.Uint16(e.Value))
		case pfcp.FARID:
			t.add("pfcp.far_id", binary.BigEndian.Uint32(e.Value))
		case pfcp.QERID:
			t.add("pfcp.qer_id", binary.BigEndian.Uint32(e.Value))
		}
		if c, ok := pfcp.ParseCause(e.Value); ok && e.Type == pfcp.Cause {
			t.add("pfcp.cause", uint8(c))
		}
		if f, ok := pfcp.ParseFSEID(e.Value); ok && e.Type == pfcp.FSEID {
			t.add("pfcp.seid", fmt.Sprintf("0x%016x", f.SEID))
			if f.V4.IsValid() {
				t.add("pfcp.f_seid.ipv4", f.V4)
			}
			if f.V6.IsValid() {
				t.add("pfcp.f_seid.ipv6", f.V6)
			}
		}
		if e.Type.IsGroup() {
			t.walk(pfcp.Group(e.Value))
		}
	}
}

func header(m *pfcp.Message) table {
	t := table{}
	t.add("pfcp.msg_type", uint8(m.Type))
	t.add("pfcp.seqno", m.Sequence)
	if m.HasSEID {
		t.add("pfcp.seid", fmt.Sprintf("0x%016x", m.SEID))
	}
	return t
}

// TestTshark compares fields of all golden messages with tshark's reading.
func TestTshark(t *testing.T) {
	all := slices.Concat(headers, fields)
	for i, row := range wiretest.Fields(t, "pfcp", golden(), all...) {
		m := parse(t, golden()[i])
		read := header(m)
		read.walk(m.Elements())
		for f, name := range all {
			if got := strings.Join(read[name], ","); got != row[f] {
				t.Errorf("%s: %s: got %s, tshark has %s", m.Type, name, got, row[f])
			}
		}
	}
}

// TestGeneratedTraffic compares headers and elements of a capture with tshark's reading.
// The capture's elements have random types. Among them are groups that this package does
// not name; tshark also shows the elements inside these groups.
func TestGeneratedTraffic(t *testing.T) {
	all := append(headers[:len(headers):len(headers)], "pfcp.seid", "udp.payload")
	for _, row := range wiretest.Capture(t, "pfcp.pcapng", "pfcp", all...) {
		var m pfcp.Message
		octets := wiretest.Octets(t, row[len(row)-1])
		if n, err := m.Parse(octets); err != nil || n != len(octets) {
			t.Fatalf("parsed %d of %d octets, error %v", n, len(octets), err)
		}
		read := header(&m)
		if first, _, _ := strings.Cut(row[3], ","); row[0] != read["pfcp.msg_type"][0] || row[1] != read["pfcp.seqno"][0] || m.HasSEID && first != read["pfcp.seid"][0] {
			t.Errorf("%s: got %v, tshark has %v", m.Type, read, row[:4])
		}
		shown, e := strings.Split(row[2], ","), m.Elements()
		for e.Next() {
			if e.Type >= 0x8000 { // of a vendor: tshark shows them elsewhere
				continue
			}
			at := slices.Index(shown, strconv.Itoa(int(e.Type)))
			if at < 0 {
				t.Errorf("%s: element %d is missing in tshark's %v", m.Type, e.Type, row[2])
				break
			}
			shown = shown[at+1:]
		}
		if e.Err != nil {
			t.Errorf("%s: %v", m.Type, e.Err)
		}
	}
}

// TestNames compares the names of types with tshark's, which have the protocol's
// name before them.
func TestNames(t *testing.T) {
	var types []pfcp.Type
	var messages [][]byte
	for of := range pfcp.Type(64) {
		if !strings.HasPrefix(of.String(), "Message ") {
			types, messages = append(types, of), append(messages, binary.BigEndian.AppendUint32([]byte{0x21, byte(of), 0, 12, 0, 0, 0, 0, 0, 0, 0, 0}, 1<<8))
		}
	}
	for i, row := range wiretest.Fields(t, "pfcp", messages, "_ws.col.Info") {
		if want := "PFCP " + types[i].String(); row[0] != want {
			t.Errorf("got %s, tshark has %s", want, row[0])
		}
		if strings.HasSuffix(row[0], "Response") != types[i].IsResponse() {
			t.Errorf("%s: got response %v", row[0], types[i].IsResponse())
		}
	}
	if len(types) != 25 {
		t.Errorf("got %d types, want 25", len(types))
	}
}
