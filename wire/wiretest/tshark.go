// Package wiretest shows messages to tshark, so that tests can compare its
// reading of them with this project's own.
package wiretest

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fields returns, for each message, the values that a dissector of tshark reads
// for each field. Several values of one field have commas between them. The test
// is skipped without tshark, and fails if tshark finds a message malformed.
func Fields(t testing.TB, dissector string, messages [][]byte, fields ...string) [][]string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("this test needs tshark: ", err)
	}
	file := filepath.Join(t.TempDir(), "messages.pcap")
	if err := os.WriteFile(file, capture(messages), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := []string{
		"-n", "-r", file, "-o", `uat:user_dlts:"User 0 (DLT=147)","` + dissector + `","0","","0",""`,
		"-o", "s1ap.dissect_container:FALSE", // samples have other octets in there
		"-T", "fields", "-E", "separator=|", "-e", "_ws.malformed", "-e", "_ws.expert.message",
	}
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
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(messages) {
		t.Fatalf("tshark shows %d of %d messages: %s", len(lines), len(messages), stderr.String())
	}
	values := make([][]string, len(lines))
	for i, line := range lines {
		values[i] = strings.Split(line, "|")
		if malformed, expert := values[i][0], values[i][1]; malformed != "" || strings.Contains(expert, "Malformed") {
			t.Errorf("tshark finds message %d malformed: %x: %s %s", i, messages[i], malformed, expert)
		}
		values[i] = values[i][2:]
	}
	return values
}

// capture returns a capture file with a packet for each message, of the link type
// that is reserved for private use.
func capture(messages [][]byte) []byte {
	const linkType, snapshot = 147, 1 << 18
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = binary.LittleEndian.AppendUint32(b, 2|4<<16) // version 2.4
	b = append(b, make([]byte, 8)...)                // time zone and accuracy
	b = binary.LittleEndian.AppendUint32(b, snapshot)
	b = binary.LittleEndian.AppendUint32(b, linkType)
	for i, m := range messages {
		b = binary.LittleEndian.AppendUint32(b, uint32(i)) // seconds
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(m)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(m)))
		b = append(b, m...)
	}
	return b
}
