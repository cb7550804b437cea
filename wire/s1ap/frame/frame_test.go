package frame_test

import (
	"bytes"
	"testing"

	"vitrine/wire/s1ap/frame"
)

// TestFrameHasTheOctetsOfTheHeader checks the format octet by octet.
func TestFrameHasTheOctetsOfTheHeader(t *testing.T) {
	got := frame.Append(nil, 1, []byte{0xaa, 0xbb})
	want := []byte{0, 0, 0, 2, 0, 0, 0, 18, 0, 1, 0, 0, 0xaa, 0xbb}
	if !bytes.Equal(got, want) {
		t.Errorf("frame % x, want % x", got, want)
	}
}

// FuzzCut checks that what Cut returns is what Append frames again.
func FuzzCut(f *testing.F) {
	f.Add(frame.Append(nil, 0, []byte{1, 2, 3}))
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		message, rest, err := frame.Cut(data)
		if err != nil || message == nil {
			if len(rest) != len(data) {
				t.Fatalf("%d of %d octets were consumed without a message", len(data)-len(rest), len(data))
			}
			return
		}
		if len(message) == 0 || len(message) > frame.MaxMessage || frame.HeaderSize+len(message)+len(rest) != len(data) {
			t.Fatalf("%d octets gave a message of %d octets and a rest of %d", len(data), len(message), len(rest))
		}
		again, left, err := frame.Cut(frame.Append(nil, 0, message))
		if err != nil || len(left) != 0 || !bytes.Equal(again, message) {
			t.Fatalf("framed again: got % x, rest % x, error %v", again, left, err)
		}
	})
}

func BenchmarkCut(b *testing.B) {
	whole := frame.Append(nil, 1, make([]byte, 120))
	b.ReportAllocs()
	for b.Loop() {
		if m, _, err := frame.Cut(whole); err != nil || len(m) != 120 {
			b.Fatal(err)
		}
	}
}
