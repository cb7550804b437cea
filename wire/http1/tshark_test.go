package http1_test

import (
	"strconv"
	"strings"
	"testing"

	"vitrine/wire/http1"
	"vitrine/wire/wiretest"
)

// fields are the fields that tshark reads of a message, in the order of row.
var fields = []string{
	"http.request.method", "http.request.uri", "http.response.code", "http.response.phrase", "http.host", "http.user_agent",
	"http.content_length_header", "http.transfer_encoding", "http.server", "http.content_type",
}

// row returns the fields of a message as tshark prints them.
func row(m *http1.Message) []string {
	r := make([]string, len(fields))
	if m.Request {
		r[0], r[1] = string(m.Method), string(m.Target)
	} else {
		r[2], r[3] = strconv.Itoa(m.Status), string(m.Reason)
	}
	for i, name := range []string{"host", "user-agent", "content-length", "transfer-encoding", "server", "content-type"} {
		r[4+i] = string(m.Find(name))
	}
	return r
}

// TestRealTraffic compares all messages in TCP streams of real software with tshark's
// reading. Streams with gaps are compared up to the first one.
func TestRealTraffic(t *testing.T) {
	for _, name := range []string{"http_auth.pcap", "1kxun.pcap"} {
		t.Run(name, func(t *testing.T) {
			shown := map[string][][]string{} // by connection and sender
			for _, r := range wiretest.Capture(t, name, "http && tcp", append([]string{"tcp.stream", "ip.src", "tcp.srcport"}, fields...)...) {
				if key := r[0] + " " + r[1] + ":" + r[2]; strings.Join(r[3:6], "") != "" {
					shown[key] = append(shown[key], r[3:])
				}
			}
			compared := 0
			for _, s := range wiretest.Streams(t, name) {
				if want := shown[s.Connection+" "+s.From]; len(want) > 0 {
					compared += compareStream(t, s, want)
				}
			}
			total := 0
			for _, rows := range shown {
				total += len(rows)
			}
			t.Logf("compared %d of %d messages", compared, total)
			if compared < total*9/10 {
				t.Errorf("compared only %d of %d messages", compared, total)
			}
		})
	}
}

// compareStream returns the number of messages that both read the same.
func compareStream(t *testing.T, s *wiretest.Stream, want [][]string) (count int) {
	t.Helper()
	var d http1.Decoder
	for at, ended := 0, 0; ; {
		n, e, err := d.Next(s.Octets[at:])
		at += n
		if err != nil {
			t.Errorf("connection %s from %s, message %d: got %v at %d of %d", s.Connection, s.From, count, err, at, len(s.Octets))
			return count
		}
		if e == http1.More {
			break
		}
		if e == http1.End {
			ended++
		}
		if ended > len(want) {
			t.Errorf("connection %s from %s: got more than the %d messages of tshark", s.Connection, s.From, count)
			return count
		}
		if count == len(want) || e != http1.Head { // tshark does not show a message that the capture's end cuts
			continue
		}
		for f, got := range row(&d.Message) {
			if got != want[count][f] {
				t.Errorf("connection %s from %s, message %d: %s: got %q, tshark has %q", s.Connection, s.From, count, fields[f], got, want[count][f])
			}
		}
		count++
	}
	if s.Whole && count != len(want) {
		t.Errorf("connection %s from %s: got %d of the %d messages of tshark", s.Connection, s.From, count, len(want))
	}
	return count
}
