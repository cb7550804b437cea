package guest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

func TestFramesComeAsTheyWereSent(t *testing.T) {
	var port bytes.Buffer
	w := NewWriter(&port)
	want := Request{Op: OpStart, Command: &Command{Args: []string{"a", "b c"}, Env: []string{"X=1"}, Dir: "/"}}
	if err := w.Value(KindRequest, 7, want); err != nil {
		t.Fatal(err)
	}
	if err := w.Frame(Frame{Kind: KindClosed, Number: 1 << 31}); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(&port)
	f, err := ReadFrame(in)
	var got Request
	if err != nil || f.Kind != KindRequest || f.Number != 7 || json.Unmarshal(f.Payload, &got) != nil {
		t.Fatalf("%+v, %v", f, err)
	}
	if got.Op != want.Op || len(got.Command.Args) != 2 || got.Command.Args[1] != "b c" {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f, err = ReadFrame(in); err != nil || f.Kind != KindClosed || f.Number != 1<<31 || len(f.Payload) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := ReadFrame(in); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: got %v, want EOF", err)
	}
}

// FuzzReadFrame checks that ReadFrame bounds payloads, and that a frame that it accepts has the
// same bytes when written. The host must not trust a guest's frames.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 'o', 0, 0, 0, 1, 'h', 'i'})
	f.Add([]byte{0, 0, 0, 2, 'o', 0, 0, 0, 1, 'h'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'u', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, sent []byte) {
		frame, err := ReadFrame(bufio.NewReader(bytes.NewReader(sent)))
		if err != nil {
			return
		}
		if len(frame.Payload) > MostPayload {
			t.Fatalf("got a payload of %d bytes", len(frame.Payload))
		}
		var again bytes.Buffer
		if err := NewWriter(&again).Frame(frame); err != nil || !bytes.HasPrefix(sent, again.Bytes()) {
			t.Errorf("read %q, wrote it back as %q: %v", sent, again.Bytes(), err)
		}
	})
}
