package s1_test

import (
	"bytes"
	"errors"
	"testing"

	"vitrine/reference/epc/s1"
	"vitrine/wire/s1ap/frame"
)

// TestReaderCutsMessagesWhereverTheyAreSplit feeds frames in pieces of each size.
func TestReaderCutsMessagesWhereverTheyAreSplit(t *testing.T) {
	messages := [][]byte{{1}, bytes.Repeat([]byte{2}, 300), bytes.Repeat([]byte{3}, frame.MaxMessage), {4, 5}}
	var stream []byte
	for _, m := range messages {
		stream = frame.Append(stream, frame.Common, m)
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
			t.Fatalf("pieces of %d: got %d messages, pending %v", piece, len(got), r.Pending())
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
		{0, 1, 0, 1, 0, 0, 0, 18, 0, 0, 0, 0},
		{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 18, 0, 0, 0, 0},
	} {
		var r s1.Reader
		r.Received(copy(r.Room(), header))
		if _, err := r.Next(); !errors.Is(err, frame.ErrLength) {
			t.Errorf("% x: got error %v, want ErrLength", header, err)
		}
	}
}
