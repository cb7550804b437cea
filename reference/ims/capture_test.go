package ims_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/capturetest"
)

// TestReplicationIsInACapture checks in a capture that with a second Sprout every
// registration crosses the network once more. This is the real work that
// clustering costs (NFV-VITAL, II.C).
func TestReplicationIsInACapture(t *testing.T) {
	for _, program := range []string{"tcpdump", "tshark"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&vitrine.Unsupported{What: "a capture", Missing: "the program " + program, Do: "run .ci/install"})
		}
	}
	s := newSite(t)
	s.homesteads(1)
	s.sprouts(2, 1)
	bono := s.bono(1, s.list(11, 2, 5060))
	file := filepath.Join(t.TempDir(), "peers.pcap")
	capture, err := capturetest.Start("", "lo", "tcp port 7000 and net "+s.prefix+"0/24", file, "-U")
	if err != nil {
		t.Fatal(err)
	}
	var phones []*phone
	for n := range 6 {
		p := s.phone(41+n, 20+n, bono)
		p.signIn(60)
		phones = append(phones, p)
	}
	last := "sip:" + phones[len(phones)-1].user + "@ims.test"
	eventually(t, "the capture has the last registration", func() bool { // otherwise tcpdump could stop before it writes it
		packets, err := os.ReadFile(file)
		return err == nil && bytes.Contains(packets, []byte(last))
	})
	if err := capture.Stop(); err != nil {
		t.Fatal(err)
	}
	seen := payloads(t, file)
	for _, p := range phones {
		identity := "sip:" + p.user + "@ims.test"
		if !strings.Contains(seen, identity) {
			t.Errorf("no Sprout sent the registration of %s to the other one", identity)
		}
	}
}

// payloads returns all TCP payloads in the capture, joined.
func payloads(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.Command("tshark", "-n", "-r", file, "-T", "fields", "-e", "tcp.payload").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for line := range strings.FieldsSeq(string(out)) {
		b, err := hex.DecodeString(strings.ReplaceAll(line, ":", ""))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}
