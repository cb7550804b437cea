package nas_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"vitrine/wire/nas"
	"vitrine/wire/wiretest"
)

// TestTshark compares fields of all golden messages with tshark's reading.
func TestTshark(t *testing.T) {
	names, messages := map[string][]string{}, map[string][][]byte{}
	for name, b := range golden(t) {
		var p nas.PDU
		if err := p.Parse(b); err != nil {
			t.Fatal(err)
		}
		dissector := "nas-eps"
		if p.Security == nas.Plain {
			dissector = "nas-eps_plain"
		}
		names[dissector], messages[dissector] = append(names[dissector], name), append(messages[dissector], b)
	}
	for dissector, of := range messages {
		rows := wiretest.Fields(t, dissector, of,
			"nas_eps.nas_msg_emm_type", "nas_eps.nas_msg_esm_type", "nas_eps.bearer_id", "nas_eps.esm.proc_trans_id",
			"nas_eps.security_header_type", "nas_eps.seq_no", "nas_eps.seq_no_short")
		for i, row := range rows {
			if want := read(t, of[i], row); !slices.Equal(row, want) {
				t.Errorf("%s: got %q, tshark has %q", names[dissector][i], want, row)
			}
		}
	}
}

// read returns the fields of a message as tshark shows them. row supplies the fields of
// an ESM message inside an EMM message.
func read(t *testing.T, b []byte, row []string) []string {
	t.Helper()
	var p nas.PDU
	if err := p.Parse(b); err != nil {
		t.Fatal(err)
	}
	if p.Security == nas.ServiceRequestHeader {
		return []string{"", "", "", "", "12", "", strconv.Itoa(int(p.Sequence))}
	}
	h, err := nas.ParseHeader(p.Body)
	if err != nil {
		t.Fatal(err)
	}
	kind := fmt.Sprintf("0x%02x", uint8(h.Type))
	if h.Discriminator == nas.ESM {
		return []string{"", kind, strconv.Itoa(int(h.EBI)), strconv.Itoa(int(h.PTI)), "", "", ""}
	}
	if p.Security == nas.Plain {
		return []string{kind, row[1], row[2], row[3], "0", "", ""}
	}
	return []string{kind, row[1], row[2], row[3], fmt.Sprintf("%d,0", p.Security), strconv.Itoa(int(p.Sequence)), ""}
}

// TestTsharkValues compares values inside messages with tshark's reading.
func TestTsharkValues(t *testing.T) {
	g := golden(t)
	rows := wiretest.Fields(t, "nas-eps_plain", [][]byte{g["attach-request-imsi"], g["attach-accept"], g["security-mode-command"], g["dedicated-bearer-request"]},
		"e212.imsi", "gsm_a.gm.sm.apn", "nas_eps.emm.m_tmsi", "nas_eps.emm.mme_code", "nas_eps.emm.tai_tac", "nas_eps.esm.qci",
		"nas_eps.esm.pdn_ipv4", "nas_eps.emm.toc", "nas_eps.esm.linked_bearer_id")
	want := [][]string{
		{"001010123456789", "internet.example", "", "", "", "", "", "", ""},
		{"", "internet.example", strconv.Itoa(0xdeadbeef), "3", "12345", "9", "45.45.0.2", "", ""},
		{"", "", "", "", "", "", "", "0", ""},
		{"", "", "", "", "", "1", "", "", "5"},
	}
	for i := range want {
		if !slices.Equal(rows[i], want[i]) {
			t.Errorf("message %d: tshark has %q, want %q", i, rows[i], want[i])
		}
	}
}
