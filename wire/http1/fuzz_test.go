package http1_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"

	"vitrine/wire/http1"
)

// FuzzRead checks that a stream is read the same whole and in pieces, and that
// net/http finds the same messages in it. net/http refuses what this package does
// not and reverse, so only messages that both accept are compared.
func FuzzRead(f *testing.F) {
	for _, s := range streams() {
		if len(s.octets) < 1000 {
			f.Add([]byte(s.octets), s.method, uint8(3))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, method string, size uint8) {
		if len(data) > 1<<12 {
			return
		}
		before := bytes.Clone(data)
		whole, first := read(string(data), method, len(data)+1)
		pieces, second := read(string(data), method, int(size)+1)
		if len(whole) != len(pieces) || (first == nil) != (second == nil) {
			t.Fatalf("whole: %q, %v; in pieces of %d: %q, %v", whole, first, int(size)+1, pieces, second)
		}
		for i := range whole {
			if whole[i] != pieces[i] {
				t.Fatalf("whole: %q; in pieces: %q", whole[i], pieces[i])
			}
		}
		compare(t, data, method)
		if !bytes.Equal(data, before) {
			t.Fatal("the stream was changed")
		}
	})
}

// compare reads the first message of a stream here and with net/http. It reports
// whether both accept it and could be compared.
func compare(t *testing.T, data []byte, method string) bool {
	t.Helper()
	var d http1.Decoder
	n, e, err := d.Next(data)
	if e != http1.Head || err != nil || bytes.HasPrefix(data, []byte("\n")) || bytes.HasPrefix(data, []byte("\r")) {
		return false // net/http does not skip empty lines
	}
	d.Answer([]byte(method))
	in := bufio.NewReaderSize(bytes.NewReader(data), 1<<13)
	var body io.ReadCloser
	m := d.Message
	if m.Request {
		r, err := http.ReadRequest(in)
		if err != nil {
			return false
		}
		if r.Method != string(m.Method) || r.RequestURI != string(m.Target) || r.ProtoMinor != m.Minor {
			t.Fatalf("%q: got %s %s, net/http has %s %s", data, m.Method, m.Target, r.Method, r.RequestURI)
		}
		body = r.Body
	} else {
		r, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil || r.StatusCode == http.StatusSwitchingProtocols || method == http.MethodConnect {
			return false // net/http leaves tunnels to its caller
		}
		if r.StatusCode != m.Status || r.ProtoMinor != m.Minor {
			t.Fatalf("%q: got status %d, net/http has %d", data, m.Status, r.StatusCode)
		}
		body = r.Body
	}
	want, theirs := io.ReadAll(body)
	var got []byte
	for {
		var took int
		took, e, err = d.Next(data[n:])
		n += took
		if err != nil || theirs != nil {
			return false
		}
		if e == http1.Body {
			got = append(got, d.Data...)
			continue
		}
		if e == http1.More {
			if complete, err := d.Close(); !complete || err != nil {
				t.Fatalf("%q: the message is incomplete, but net/http has the body %q", data, want)
			}
		}
		break
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%q: got body %q, net/http has %q", data, got, want)
	}
	if left, err := io.ReadAll(in); err != nil || e == http1.End && len(data)-n != len(left) {
		t.Fatalf("%q: %d octets follow the message, but net/http leaves %d, %v", data, len(data)-n, len(left), err)
	}
	return true
}

// TestNetHTTP checks that net/http reads the samples as the decoder does.
func TestNetHTTP(t *testing.T) {
	both := 0
	for _, s := range streams() {
		if s.err == nil && compare(t, []byte(s.octets), s.method) {
			both++
		}
	}
	if both < 11 {
		t.Errorf("compared only %d streams, want at least 11", both)
	}
}
