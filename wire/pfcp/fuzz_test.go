package pfcp_test

import (
	"bytes"
	"testing"

	"vitrine/wire/pfcp"
)

// FuzzParse checks that reading does not panic or change the octets, and that the
// elements cover the message.
func FuzzParse(f *testing.F) {
	for _, b := range golden() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m pfcp.Message
		n, err := m.Parse(data)
		if err != nil {
			if n != 0 {
				t.Fatalf("parsed %d octets with error %v, want 0", n, err)
			}
			return
		}
		size := 8
		if m.HasSEID {
			size = 16
		}
		if len(m.Octets) != n || len(m.IEs) != n-size {
			t.Fatalf("got %d octets of elements in a message of %d", len(m.IEs), n)
		}
		covered, e := 0, m.Elements()
		for e.Next() {
			covered += 4 + len(e.Value)
			if e.Type >= 0x8000 {
				covered += 2
			}
			values(e.Type, e.Value)
		}
		if (e.Err == nil) != (covered == len(m.IEs)) {
			t.Fatalf("the elements cover %d of %d octets, error %v", covered, len(m.IEs), e.Err)
		}
		if err := m.Check(); err == nil && e.Err != nil {
			t.Fatalf("Check accepted a message with the error %v", e.Err)
		}
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
	})
}
