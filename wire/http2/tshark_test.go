package http2_test

import (
	"strconv"
	"strings"
	"testing"

	"vitrine/wire/http2"
	"vitrine/wire/wiretest"
)

// tsharkFields are the fields that tshark reads of a frame, in the order of row.
var tsharkFields = []string{
	"http2.streamid", "http2.headers.method", "http2.headers.path", "http2.headers.authority", "http2.headers.status",
	"http2.headers.cookie", "http2.headers.link", "http2.header.value",
}

// row returns the values in one frame, as tshark prints them.
func row(d *http2.Decoder, octets []byte) ([]string, error) {
	r := make([]string, len(tsharkFields))
	for {
		n, e, err := d.Next(octets)
		if octets = octets[n:]; err != nil || e == http2.More {
			return r, err
		}
		if e != http2.Head {
			continue
		}
		m := &d.Message
		r[0] = strconv.Itoa(int(d.Stream))
		r[1], r[2], r[3] = string(m.Method), string(m.Path), string(m.Authority)
		if m.Status != 0 {
			r[4] = strconv.Itoa(m.Status)
		}
		r[5], r[6] = string(m.Find("cookie")), string(m.Find("link"))
		var values []string
		for _, f := range m.Fields {
			values = append(values, string(f.Value))
		}
		r[7] = strings.Join(values, ",")
	}
}

// TestTshark compares all heads of real traffic with tshark's reading.
func TestTshark(t *testing.T) {
	frames := record(t, exchanges()).frames()
	rows := wiretest.Connection(t, "http2", frames, tsharkFields...)
	var directions [2]http2.Decoder
	heads := compareRows(t, frames, rows, func(fromServer bool) *http2.Decoder {
		if fromServer {
			return &directions[1]
		}
		return &directions[0]
	})
	if heads < 280 {
		t.Errorf("compared only %d heads, want at least 280", heads)
	}
}

// TestTsharkFromTheMiddle compares a capture that begins within a connection: what
// both read is the same. tshark has no place for fields that are not known, so the
// two may show different numbers of them.
func TestTsharkFromTheMiddle(t *testing.T) {
	frames := record(t, exchanges()).frames()
	frames = frames[len(frames)/4:]
	rows := wiretest.Connection(t, "http2", frames, tsharkFields...)
	for _, fromServer := range []bool{false, true} {
		var octets []byte
		shown := map[string][]string{} // by stream and status
		for i, f := range frames {
			if f.FromServer != fromServer {
				continue
			}
			octets = append(octets, f.Octets...)
			if r := rows[i]; r[1]+r[4] != "" {
				shown[r[0]+" "+r[4]] = r
			}
		}
		ours, both := compareShown(t, octets, shown)
		t.Logf("from the server %v: decoded %d heads, %d of the %d that tshark shows", fromServer, ours, both, len(shown))
		if both == 0 || both < len(shown)*9/10 {
			t.Errorf("decoded %d heads, %d of the %d that tshark shows", ours, both, len(shown))
		}
	}
}

// compareShown reads octets that begin within a connection. It returns how many
// heads it reads, and how many of these tshark shows.
func compareShown(t *testing.T, octets []byte, shown map[string][]string) (ours, both int) {
	t.Helper()
	var d http2.Decoder
	d.Lost(-1)
	for {
		n, e, err := d.Next(octets)
		if octets = octets[n:]; err != nil {
			t.Fatal(err)
		}
		if e == http2.More {
			return ours, both
		}
		m := &d.Message
		if e != http2.Head || m.Kind != http2.Request && m.Kind != http2.Response {
			continue
		}
		ours++
		key := strconv.Itoa(int(d.Stream)) + " "
		if m.Status != 0 {
			key += strconv.Itoa(m.Status)
		}
		r := shown[key]
		if r == nil {
			continue
		}
		both++
		for f, got := range map[int][]byte{1: m.Method, 2: m.Path, 3: m.Authority} {
			if got != nil && r[f] != "" && string(got) != r[f] {
				t.Errorf("stream %s: %s: got %q, tshark has %q", key, tsharkFields[f], got, r[f])
			}
		}
	}
}

// compareRows returns the number of heads that both read.
func compareRows(t *testing.T, frames []wiretest.Segment, rows [][]string, of func(fromServer bool) *http2.Decoder) (heads int) {
	t.Helper()
	for i, f := range frames {
		got, err := row(of(f.FromServer), f.Octets)
		if err != nil {
			t.Fatal(err)
		}
		if got[0] == "" { // tshark shows the streams of all frames
			continue
		}
		heads++
		for k := range got {
			if got[k] != rows[i][k] {
				t.Errorf("frame %d: %s: got %.100q, tshark has %.100q", i, tsharkFields[k], got[k], rows[i][k])
			}
		}
	}
	return heads
}
