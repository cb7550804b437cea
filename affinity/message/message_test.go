package message

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/internal/capturetest"
	"vitrine/internal/hosttest"
)

var update = flag.Bool("update", false, "write the golden files")

// shared is the folder of captures of real software.
const shared = "../../../shared/captures"

// start is the time of the first packet of built captures.
const start = int64(1_700_000_000_000_000_000)

func end(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// line writes a message as tests compare it.
func line(m *Message, begin int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %.6f %s > %s %s %s %q %d B", m.ID, float64(m.Time-begin)/1e9, m.From, m.To, m.Protocol, m.Kind, m.Name, m.Bytes)
	if m.Answers != 0 {
		fmt.Fprintf(&b, " of %d", m.Answers)
	}
	if m.Failed {
		b.WriteString(" failed")
	}
	if m.Cause != "" {
		fmt.Fprintf(&b, " cause %s", m.Cause)
	}
	if m.Arrived != 0 {
		fmt.Fprintf(&b, " after %v", time.Duration(m.Arrived-m.Time))
	}
	for _, id := range m.Identifiers {
		lasts := ""
		if id.Lasting {
			lasts = "*"
		}
		fmt.Fprintf(&b, " %s%s=%s", id.Kind, lasts, id.Text)
	}
	for _, a := range m.Access {
		verb := "reads"
		if a.Write {
			verb = "writes"
		}
		if a.Reads {
			verb = "takes"
		}
		fmt.Fprintf(&b, " %s %s of %s %d B %v", verb, a.Key.Text, a.Store, a.Bytes, a.Lifetime)
	}
	return b.String()
}

// read reads captures and returns the lines of all messages.
func read(t testing.TB, o Options, files ...string) ([]string, *Summary) {
	t.Helper()
	var lines []string
	begin := int64(-1)
	s, err := Read(context.Background(), files, o, func(m *Message) error {
		if begin < 0 {
			begin = m.Time
		}
		lines = append(lines, line(m, begin))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, s
}

// each gives the messages of a capture to see.
func each(t testing.TB, file string, see func(m *Message)) {
	t.Helper()
	if _, err := Read(context.Background(), []string{file}, Options{}, func(m *Message) error { see(m); return nil }); err != nil {
		t.Fatal(err)
	}
}

// built writes a capture and returns its name.
func built(t testing.TB, write func(f *capturetest.File)) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "built.pcap")
	f, err := capturetest.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	write(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSharedCapturesHaveTheirMessages compares what is in real captures with golden
// files.
func TestSharedCapturesHaveTheirMessages(t *testing.T) {
	for _, name := range []string{"sip.pcap", "diameter.pcap", "gtp_c.pcap", "pfcp.pcapng", "http_auth.pcap", "FAX-Call-t38-CA-TDM-SIP-FB-1.pcap", "1kxun.pcap"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(shared, name)
			if _, err := os.Stat(file); err != nil {
				t.Skip("no shared captures here: ", err)
			}
			lines, s := read(t, Options{}, file)
			var b bytes.Buffer
			for _, l := range lines {
				fmt.Fprintln(&b, l)
			}
			s.Text(&b)
			hosttest.Golden(t, *update, filepath.Join("testdata", name+".txt"), b.Bytes())
		})
	}
}
