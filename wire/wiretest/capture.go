package wiretest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// captures is the folder of captures of real software, relative to a package
// folder below wire/.
const captures = "../../../shared/captures"

// Capture returns, for each packet of a shared capture that passes a display
// filter (wireshark-filter(4)), the values that tshark reads for each field.
// Commas separate several values of one field. The test is skipped without
// tshark or the capture, and fails if no packet passes.
func Capture(t testing.TB, name, filter string, fields ...string) [][]string {
	t.Helper()
	file := filepath.Join(captures, name)
	if _, err := os.Stat(file); err != nil {
		t.Skip("no shared captures here: ", err)
	}
	return File(t, file, filter, fields...)
}

// File is like Capture, for any capture file.
func File(t testing.TB, file, filter string, fields ...string) [][]string {
	t.Helper()
	rows := dissect(t, []string{"-r", file, "-Y", filter}, fields)
	if len(rows) == 0 {
		t.Fatalf("no packet of %s passes %s", file, filter)
	}
	return rows
}

// Octets returns the octets of a field that tshark shows in hexadecimal.
func Octets(t testing.TB, field string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(field, ":", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A Stream is one direction of a TCP connection of a capture.
type Stream struct {
	Connection, From string // tshark's number of the connection; address and port of the sender
	Octets           []byte // up to the first gap
	Whole            bool   // no gap
}

// Streams returns the directions with octets of the TCP connections of a shared
// capture. For retransmitted octets, it keeps the first copy.
func Streams(t testing.TB, name string) []*Stream {
	t.Helper()
	var all []*Stream
	next := map[*Stream]int{}
	rows := Capture(t, name, "tcp.len > 0", "tcp.stream", "ip.src", "tcp.srcport", "tcp.seq", "tcp.payload")
	slices.SortStableFunc(rows, func(a, b []string) int { return number(t, a[3]) - number(t, b[3]) })
	for _, row := range rows {
		from := row[1] + ":" + row[2]
		i := slices.IndexFunc(all, func(s *Stream) bool { return s.Connection == row[0] && s.From == from })
		at, payload := number(t, row[3]), Octets(t, row[4])
		if i < 0 {
			i, all = len(all), append(all, &Stream{Connection: row[0], From: from, Whole: true})
			next[all[i]] = 1 // tshark's number of the first octet
		}
		s := all[i]
		switch repeated := next[s] - at; {
		case repeated < 0:
			s.Whole = false
		case repeated < len(payload) && s.Whole:
			s.Octets = append(s.Octets, payload[repeated:]...)
			next[s] = at + len(payload)
		}
	}
	return all
}

func number(t testing.TB, field string) int {
	t.Helper()
	n, err := strconv.Atoi(field)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
