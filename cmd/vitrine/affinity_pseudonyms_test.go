package main

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"vitrine/affinity/message"
)

// identitiesIn returns the identities in captures: addresses, the identifiers of users, sessions
// and tunnels, and the users and domains in user@domain. It omits numbers that identify only an
// exchange on its connection.
func identitiesIn(t *testing.T, captures ...string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, capture := range captures {
		_, err := message.Read(t.Context(), []string{capture}, message.Options{}, func(m *message.Message) error {
			all[m.Src.Addr().String()], all[m.Dst.Addr().String()] = true, true
			for _, id := range m.Identifiers {
				switch id.Kind {
				case message.EBI, message.Sequence, message.StreamID, message.HopByHop, message.EndToEnd:
					continue
				}
				all[string(id.Text)] = true
				if user, domain, ok := strings.Cut(string(id.Text), "@"); ok {
					all[user], all[domain] = true, true
				}
			}
			return nil
		})
		if err != nil {
			t.Logf("%s: %v", capture, err)
		}
	}
	delete(all, "")
	return all
}

// webUsers is a conversation over HTTP about users whose names look like words.
const webUsers = "GET /subscribers/bob/state HTTP/1.1\r\nHost: store.example\r\n\r\n" +
	"PUT /kv/reg%2Fsip:carol@ims.example?ttl=60s HTTP/1.1\r\nHost: store.example\r\nContent-Length: 0\r\n\r\n"

// TestNoIdentityIsInAnyOutput searches all output of affinity with --pseudonymise for the
// identities in its captures.
func TestNoIdentityIsInAnyOutput(t *testing.T) {
	captures, err := filepath.Glob("../../../shared/captures/*.pcap*")
	if err != nil || len(captures) == 0 {
		t.Skip("needs the public captures")
	}
	captures = append(captures, recordWeb(t, webUsers))
	identities := identitiesIn(t, captures...)
	identities["bob"], identities["carol"] = true, true
	if len(identities) < 100 {
		t.Fatalf("found only %d identities in the captures", len(identities))
	}
	t.Logf("found %d identities", len(identities))
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	run := func(args ...string) string {
		var out, errs bytes.Buffer
		root := newRoot(&out, &errs)
		root.SetArgs(append([]string{"affinity", "--pseudonymise", key}, args...))
		err := root.ExecuteContext(t.Context())
		text := out.String() + errs.String()
		if err != nil { // the capture is damaged
			text += err.Error()
		}
		return text
	}
	for i, capture := range captures {
		out := filepath.Join(dir, strconv.Itoa(i))
		outputs := map[string]string{
			"table": run(capture, "--out", out), "JSON": run(capture, "--json"),
			"messages": run(capture, "--messages"), "messages as JSON": run(capture, "--messages", "--json"),
			"explanation": run(capture, "--explain", "1"), "explanation as JSON": run(capture, "--explain", "2", "--json"),
		}
		if again := run(capture, "--messages"); again != outputs["messages"] {
			t.Errorf("%s: the pseudonyms differ between two runs", capture)
		}
		err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			outputs[strings.TrimPrefix(path, out)] = string(text)
			return err
		})
		if err != nil || len(outputs) < 8 {
			t.Fatalf("%s: got %d outputs, error %v", capture, len(outputs), err)
		}
		for name, text := range outputs {
			for _, found := range mentions(strings.ReplaceAll(text, capture, ""), identities) {
				t.Errorf("%s: identity %s appears in %s", filepath.Base(capture), found, name)
			}
		}
	}
}

// mentions returns the identities that the text contains as whole words. Punctuation ends a word.
func mentions(text string, identities map[string]bool) (found []string) {
	inside := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for id := range identities {
		for rest := text; ; {
			at := strings.Index(rest, id)
			if at < 0 {
				break
			}
			before, after := ' ', ' '
			if at > 0 {
				before = rune(rest[at-1])
			}
			if end := at + len(id); end < len(rest) {
				after = rune(rest[end])
			}
			if !inside(before) && !inside(after) {
				found = append(found, id+" in ..."+rest[max(0, at-40):min(len(rest), at+len(id)+20)])
				break
			}
			rest = rest[at+len(id):]
		}
	}
	return found
}

// recordWeb returns a capture of a TCP connection on which a client sends data to a server.
func recordWeb(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.pcap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // the test reads the file after the last write
	w := pcapgo.NewWriterNanos(file)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IPv4(203, 0, 113, 7), DstIP: net.IPv4(203, 0, 113, 8)}
	for i, payload := range []string{"", text} {
		tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: uint32(i), SYN: i == 0, ACK: i > 0, PSH: i > 0, Window: 1000}
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp, gopacket.Payload(payload)); err != nil {
			t.Fatal(err)
		}
		info := gopacket.CaptureInfo{Timestamp: time.Unix(1_700_000_000, int64(i)*1e6), CaptureLength: len(b.Bytes()), Length: len(b.Bytes())}
		if err := w.WritePacket(info, b.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
