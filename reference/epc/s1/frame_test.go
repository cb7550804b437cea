package s1_test

import (
	"bytes"
	"errors"
	"testing"

	"vitrine/reference/epc/s1"
)

// TestFrameHasTheOctetsOfTheHeader checks the format octet by octet.
func TestFrameHasTheOctetsOfTheHeader(t *testing.T) {
	got := s1.AppendFrame(nil, 1, []byte{0xaa, 0xbb})
	want := []byte{0, 0, 0, 2, 0, 0, 0, 18, 0, 1, 0, 0, 0xaa, 0xbb}
	if !bytes.Equal(got, want) {
		t.Errorf("frame % x, want % x", got, want)
	}
}

// TestReaderCutsMessagesWhereverTheyAreSplit feeds frames in pieces of each size.
func TestReaderCutsMessagesWhereverTheyAreSplit(t *testing.T) {
	messages := [][]byte{{1}, bytes.Repeat([]byte{2}, 300), bytes.Repeat([]byte{3}, s1.MaxMessage), {4, 5}}
	var stream []byte
	for _, m := range messages {
		stream = s1.AppendFrame(stream, 0, m)
	}
	for _, piece := range []int{1, 7, 12, 13, 1000, len(stream)} {
		var r s1.Reader
		var got [][]byte
		for rest := stream; len(rest) > 0; {
			n := copy(r.Room(), rest[:min(piece, len(rest))])
			r.Received(n)
			rest = rest[n:]
			for {
				m, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				if m == nil {
					break
				}
				got = append(got, bytes.Clone(m))
			}
		}
		if len(got) != len(messages) || r.Pending() {
			t.Fatalf("pieces of %d: %d messages, pending %v", piece, len(got), r.Pending())
		}
		for i := range got {
			if !bytes.Equal(got[i], messages[i]) {
				t.Errorf("pieces of %d: message %d differs", piece, i)
			}
		}
	}
}

func TestReaderRefusesFramesWithoutALengthItAllows(t *testing.T) {
	for _, header := range [][]byte{
		{0, 0, 0, 0, 0, 0, 0, 18, 0, 0, 0, 0},
		{0, 0, 0x40, 0x41, 0, 0, 0, 18, 0, 0, 0, 0},
		{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 18, 0, 0, 0, 0},
	} {
		var r s1.Reader
		r.Received(copy(r.Room(), header))
		if _, err := r.Next(); !errors.Is(err, s1.ErrLength) {
			t.Errorf("% x: error %v", header, err)
		}
	}
}

// FuzzCut checks that what Cut returns is what AppendFrame frames again.
func FuzzCut(f *testing.F) {
	f.Add(s1.AppendFrame(nil, 0, []byte{1, 2, 3}))
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		message, rest, err := s1.Cut(data)
		if err != nil || message == nil {
			if len(rest) != len(data) {
				t.Fatalf("%d of %d octets are gone without a message", len(data)-len(rest), len(data))
			}
			return
		}
		if len(message) == 0 || len(message) > s1.MaxMessage || s1.HeaderSize+len(message)+len(rest) != len(data) {
			t.Fatalf("%d octets gave a message of %d and a rest of %d", len(data), len(message), len(rest))
		}
		again, left, err := s1.Cut(s1.AppendFrame(nil, 0, message))
		if err != nil || len(left) != 0 || !bytes.Equal(again, message) {
			t.Fatalf("framed again: % x, rest % x, %v", again, left, err)
		}
	})
}

func BenchmarkCut(b *testing.B) {
	frame := s1.AppendFrame(nil, 1, make([]byte, 120))
	b.ReportAllocs()
	for b.Loop() {
		if m, _, err := s1.Cut(frame); err != nil || len(m) != 120 {
			b.Fatal(err)
		}
	}
}
