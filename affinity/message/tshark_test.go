package message

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/wire/wiretest"
)

// TestTsharkFindsAsManyMessages compares the number of messages in the shared captures
// with that of packets, or of values of a field, that tshark finds.
func TestTsharkFindsAsManyMessages(t *testing.T) {
	for _, c := range []struct {
		file, filter, field string
		protocol            Protocol
		more                uint64 // that we find, for the reason beside it
	}{
		{"sip.pcap", "sip", "sip.CSeq", SIP, 0},
		{"FAX-Call-t38-CA-TDM-SIP-FB-1.pcap", "sip", "sip.CSeq", SIP, 0},
		{"diameter.pcap", "diameter", "diameter.cmd.code", Diameter, 0},
		{"gtp_c.pcap", "gtpv2", "gtpv2.message_type", GTPv2, 0},
		{"pfcp.pcapng", "pfcp", "pfcp.msg_type", PFCP, 0},
		{"http_auth.pcap", "http && tcp", "http.request.method,http.response.code", HTTP, 0},
	} {
		t.Run(c.file, func(t *testing.T) {
			rows := wiretest.Capture(t, c.file, c.filter, strings.Split(c.field, ",")...)
			var want uint64
			for _, row := range rows {
				for _, values := range row {
					if values != "" {
						want += uint64(strings.Count(values, ",")) + 1
					}
				}
			}
			_, s := read(t, Options{}, filepath.Join(shared, c.file))
			var got uint64
			for _, p := range s.Protocols {
				if p.Protocol == c.protocol.String() {
					got = p.Messages
				}
			}
			if got+s.Copies != want+c.more { // tshark does not tell the copies of a mirror port
				t.Errorf("got %d messages and %d copies, tshark has %d", got, s.Copies, want)
			}
		})
	}
}

// distinct returns the rows without copies: packets with the address and the identification, in the last
// two fields, of one before.
func distinct(rows [][]string) [][]string {
	seen := map[string]bool{}
	return slices.DeleteFunc(rows, func(row []string) bool {
		key, none := row[2]+" "+row[3], strings.Trim(row[3], "0x") == ""
		copied := seen[key] && !none
		seen[key] = true
		return copied
	})
}

// TestTsharkFindsTheSameRequests compares, for each answer in the shared captures, the
// request that tshark finds. A packet has one message in them.
func TestTsharkFindsTheSameRequests(t *testing.T) {
	for _, c := range []struct {
		file, filter, request string
		other                 map[uint64]uint64 // what tshark finds in place of what we do, for the reason beside it
	}{
		{"sip.pcap", "sip.CSeq", "sip.response-request", map[uint64]uint64{26: 25, 36: 0}}, // it takes CANCEL, of the same number, for INVITE
		{"FAX-Call-t38-CA-TDM-SIP-FB-1.pcap", "sip.CSeq", "sip.response-request", nil},
		{"diameter.pcap", "diameter", "diameter.answer_to", nil},
		{"gtp_c.pcap", "gtpv2", "gtpv2.response_to", nil},
		{"pfcp.pcapng", "pfcp", "pfcp.response_to", map[uint64]uint64{6: 5, 8: 7}}, // the types do not go together
		{"http_auth.pcap", "http.request or http.response", "http.request_in", nil},
	} {
		t.Run(c.file, func(t *testing.T) {
			rows := distinct(wiretest.Capture(t, c.file, c.filter, "frame.number", c.request, "ip.src", "ip.id"))
			messages := map[string]uint64{} // by frame
			for i, row := range rows {
				messages[row[0]] = uint64(i) + 1
			}
			each(t, filepath.Join(shared, c.file), func(m *Message) {
				if m.ID > uint64(len(rows)) {
					t.Fatalf("got message %d, tshark has only %d", m.ID, len(rows))
				}
				want := messages[rows[m.ID-1][1]]
				if other, differs := c.other[m.ID]; m.Kind != Answer || differs && want == other {
					return // tshark relates an ACK, too
				}
				if m.Answers != want {
					t.Errorf("message %d, %s, answers %d; tshark reports %d", m.ID, m.Name, m.Answers, want)
				}
			})
		})
	}
}
