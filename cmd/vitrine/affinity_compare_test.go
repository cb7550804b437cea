package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"vitrine/affinity/compare"
)

// TestACaptureDoesNotDifferFromItself compares public captures with themselves and with earlier
// analyses of them, with and without pseudonyms. With pseudonyms, an earlier analysis without them
// must be refused.
func TestACaptureDoesNotDifferFromItself(t *testing.T) {
	captures, err := filepath.Glob("../../../shared/captures/*.pcap*")
	if err != nil || len(captures) == 0 {
		t.Skip("needs the public captures")
	}
	for _, capture := range captures {
		t.Run(filepath.Base(capture), func(t *testing.T) {
			dir := t.TempDir()
			plain, hidden, key := filepath.Join(dir, "plain"), filepath.Join(dir, "hidden"), filepath.Join(dir, "key")
			affinityOf(t, exitDone, capture, "--out", plain)
			affinityOf(t, exitDone, capture, "--out", hidden, "--pseudonymise", key)
			for _, sources := range [][]string{{capture, capture}, {plain, capture}, {capture, plain}, {hidden, capture, "--pseudonymise", key}, {hidden, hidden}} {
				var c compare.Comparison
				if err := json.Unmarshal([]byte(affinityOf(t, exitDone, append(sources, "--compare", "--json")...)), &c); err != nil {
					t.Fatal(err)
				}
				if c.Changes != 0 {
					t.Errorf("%v: %+v", sources, c)
				}
			}
			for _, sources := range [][]string{{plain, capture}, {capture, plain}, {plain, plain}} {
				printed := affinityOf(t, exitBadInput, append(slices.Clone(sources), "--compare", "--pseudonymise", key)...)
				if want := "affinity.json: it was written without the key of --pseudonymise"; !strings.Contains(printed, want) {
					t.Errorf("%v: %s", sources, printed)
				}
			}
		})
	}
}

// TestHalvesOfPublicCapturesDoNotDiffer checks that the two halves of a public capture show no
// change, because they have too few transactions for that.
func TestHalvesOfPublicCapturesDoNotDiffer(t *testing.T) {
	captures, err := filepath.Glob("../../../shared/captures/*.pcap")
	if err != nil || len(captures) == 0 {
		t.Skip("needs the public captures")
	}
	for _, capture := range captures {
		t.Run(filepath.Base(capture), func(t *testing.T) {
			first, second := halvesOf(t, capture)
			var c compare.Comparison
			if err := json.Unmarshal([]byte(affinityOf(t, exitDone, "--compare", first, second, "--json")), &c); err != nil {
				t.Fatal(err)
			}
			if c.Changes != 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// halvesOf writes the first and the second half of a capture's packets to two files.
func halvesOf(t *testing.T, capture string) (first, second string) {
	t.Helper()
	file, err := os.Open(capture)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // opened read-only
	in, err := pcapgo.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	type packet struct {
		info gopacket.CaptureInfo
		data []byte
	}
	var packets []packet
	for {
		data, info, err := in.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, packet{info, data})
	}
	write := func(name string, packets []packet) string {
		path := filepath.Join(t.TempDir(), name)
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := pcapgo.NewWriter(out)
		err = w.WriteFileHeader(1<<18, in.LinkType())
		for _, p := range packets {
			err = errors.Join(err, w.WritePacket(p.info, p.data))
		}
		if err := errors.Join(err, out.Close()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("first.pcap", packets[:len(packets)/2]), write("second.pcap", packets[len(packets)/2:])
}

// affinityOf runs affinity and returns its output. The exit code must be status.
func affinityOf(t *testing.T, status int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"affinity"}, args...), &out, &errs); code != status {
		t.Fatalf("affinity %v: got exit code %d: %s", args, code, errs.String())
	}
	return out.String() + errs.String()
}
