// Package wiretest decodes messages with tshark, so that tests can compare its
// results with this project's own.
package wiretest

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fields returns, for each message, the values that a dissector of tshark reads
// for each field. Commas separate several values of one field. The test is
// skipped without tshark, and fails if tshark finds a message malformed.
func Fields(t testing.TB, dissector string, messages [][]byte, fields ...string) [][]string {
	t.Helper()
	return compare(t, userLink, messages, messages, fields,
		"-o", `uat:user_dlts:"User 0 (DLT=147)","`+dissector+`","0","","0",""`,
		"-o", "s1ap.dissect_container:FALSE") // the containers of samples hold arbitrary octets
}

// TCPFields is like Fields, for a protocol that tshark knows by its TCP port alone.
// Each message begins a connection of its own. It has at most 65,495 octets.
func TCPFields(t testing.TB, port uint16, messages [][]byte, fields ...string) [][]string {
	t.Helper()
	packets := make([][]byte, len(messages))
	for i, m := range messages {
		packets[i] = segment(endpoint{1, uint16(20000 + i)}, endpoint{2, port}, 1, m)
	}
	return compare(t, ipLink, messages, packets, fields)
}

// A Segment is a part of a TCP connection. It has at most 65,495 octets.
type Segment struct {
	FromServer bool
	Octets     []byte
}

// Connection is like Fields, for the segments of one TCP connection. Each
// segment is a whole message of the dissector.
func Connection(t testing.TB, dissector string, segments []Segment, fields ...string) [][]string {
	t.Helper()
	client, server := endpoint{1, 20000}, endpoint{2, 20001}
	var messages, packets [][]byte
	next := map[bool]uint32{false: 1, true: 1}
	for _, s := range segments {
		from, to := client, server
		if s.FromServer {
			from, to = server, client
		}
		messages, packets = append(messages, s.Octets), append(packets, segment(from, to, next[s.FromServer], s.Octets))
		next[s.FromServer] += uint32(len(s.Octets))
	}
	return compare(t, ipLink, messages, packets, fields, "-d", fmt.Sprintf("tcp.port==%d,%s", server.port, dissector))
}

// compare writes packets of a link type, each with one message, and has tshark
// decode them.
func compare(t testing.TB, link uint32, messages, packets [][]byte, fields []string, options ...string) [][]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "messages.pcap")
	if err := os.WriteFile(file, capture(link, packets), 0o600); err != nil {
		t.Fatal(err)
	}
	values := dissect(t, append([]string{"-r", file}, options...), append([]string{"_ws.malformed", "_ws.expert.message"}, fields...))
	if len(values) != len(messages) {
		t.Fatalf("tshark shows %d of %d messages", len(values), len(messages))
	}
	for i := range values {
		if malformed, expert := values[i][0], values[i][1]; malformed != "" || strings.Contains(expert, "Malformed") {
			t.Errorf("tshark finds message %d malformed: %x: %s %s", i, messages[i], malformed, expert)
		}
		values[i] = values[i][2:]
	}
	return values
}

// dissect runs tshark and returns the fields of each packet that it shows. The
// test is skipped without tshark.
func dissect(t testing.TB, arguments, fields []string) [][]string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("this test needs tshark: ", err)
	}
	arguments = append([]string{"-n", "-T", "fields", "-E", "separator=|"}, arguments...)
	for _, f := range fields {
		arguments = append(arguments, "-e", f)
	}
	command := exec.CommandContext(t.Context(), program, arguments...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, stderr.String())
	}
	var values [][]string
	for line := range strings.Lines(string(out)) {
		values = append(values, strings.Split(strings.TrimSuffix(line, "\n"), "|"))
	}
	return values
}

// The link types of captures: one reserved for private use, and one for IP
// packets.
const (
	userLink = 147
	ipLink   = 101
)

// capture returns a capture file with packets of a link type.
func capture(link uint32, packets [][]byte) []byte {
	const snapshot = 1 << 18
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = binary.LittleEndian.AppendUint32(b, 2|4<<16) // version 2.4
	b = append(b, make([]byte, 8)...)                // time zone and accuracy
	b = binary.LittleEndian.AppendUint32(b, snapshot)
	b = binary.LittleEndian.AppendUint32(b, link)
	for i, p := range packets {
		b = binary.LittleEndian.AppendUint32(b, uint32(i)) // seconds
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

// An endpoint is an end of a connection.
type endpoint struct {
	host byte // the last octet of its address in 192.0.2.0/24
	port uint16
}

// segment returns an IPv4 packet with a TCP segment. number is the sequence
// number of the first octet. The checksums are zero, because tshark does not
// check them.
func segment(from, to endpoint, number uint32, payload []byte) []byte {
	const headers, tcp = 40, 6
	b := binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(headers+len(payload)))
	b = append(b, 0, 0, 0, 0, 64, tcp, 0, 0, 192, 0, 2, from.host, 192, 0, 2, to.host)
	b = binary.BigEndian.AppendUint16(b, from.port)
	b = binary.BigEndian.AppendUint16(b, to.port)
	b = binary.BigEndian.AppendUint32(b, number)
	b = append(b, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0) // acknowledged number, PSH and ACK, window
	return append(b, payload...)
}
