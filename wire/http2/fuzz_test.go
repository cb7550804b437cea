package http2_test

import (
	"bytes"
	"testing"

	"vitrine/wire/http2"
)

// FuzzRead checks that a stream with a gap is read the same whole and in pieces, and
// that the counts agree with the events. A gap below zero is of unknown length.
func FuzzRead(f *testing.F) {
	for _, s := range streams() {
		if len(s.octets) < 1000 {
			at, lost := uint16(len(s.octets)), int16(0)
			if len(s.gaps) > 0 {
				at, lost = uint16(s.gaps[0].at), int16(s.gaps[0].lost)
			}
			f.Add([]byte(s.octets), at, lost, uint8(3))
		}
	}
	f.Fuzz(func(t *testing.T, octets []byte, at uint16, lost int16, size uint8) {
		if len(octets) > 1<<12 {
			return
		}
		before := bytes.Clone(octets)
		s := script{octets: octets}
		if int(at) < len(octets) && lost != 0 {
			s.gaps = []gap{{int(at), int64(lost)}}
		}
		var whole, pieces http2.Decoder
		first, firstErr := read(&whole, s, len(octets)+1)
		second, secondErr := read(&pieces, s, int(size)+1)
		if len(first) != len(second) || (firstErr == nil) != (secondErr == nil) || whole.Counts != pieces.Counts {
			t.Fatalf("whole: %q, %v, %+v; in pieces of %d: %q, %v, %+v", first, firstErr, whole.Counts, int(size)+1, second, secondErr, pieces.Counts)
		}
		for i := range first {
			if first[i] != second[i] {
				t.Fatalf("whole: %q; in pieces: %q", first[i], second[i])
			}
		}
		c := whole.Counts
		if c.Partial > c.Heads || c.Unknown+c.Dropped > c.Fields || c.UnknownPaths > c.Partial || c.Skipped > uint64(len(octets)) {
			t.Fatalf("%+v", c)
		}
		goOn(t, octets)
		if !bytes.Equal(octets, before) {
			t.Fatal("the stream was changed")
		}
	})
}

// goOn reads on after each error. Every search reads octets, so this ends.
func goOn(t *testing.T, octets []byte) {
	var d http2.Decoder
	for errors := 0; ; {
		n, e, err := d.Next(octets)
		if octets = octets[n:]; err != nil {
			if errors++; errors > 1<<12 {
				t.Fatalf("got %d errors: %v", errors, err)
			}
			if len(octets) > 0 {
				octets = octets[1:]
			}
			d.Lost(0)
		} else if e == http2.More {
			return
		}
	}
}
