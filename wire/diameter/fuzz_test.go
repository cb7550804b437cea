package diameter_test

import (
	"bytes"
	"testing"

	"vitrine/wire/diameter"
)

// FuzzParse checks that reading does not panic or change the octets, that Frame
// and Parse agree, and that the AVPs cover the message.
func FuzzParse(f *testing.F) {
	for _, s := range golden() {
		f.Add(s.octets)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m diameter.Message
		n, err := m.Parse(data)
		if framed, bad := diameter.Frame(data, len(data)); len(data) >= 20 && (framed != n || err == nil && bad != nil) {
			t.Fatalf("Parse returned %d, %v, but Frame %d, %v", n, err, framed, bad)
		}
		if err != nil {
			return
		}
		if len(m.AVPs) != n-20 || len(m.Octets) != n {
			t.Fatalf("got %d octets of AVPs in a message of %d", len(m.AVPs), n)
		}
		walk(t, m.Each(), m.AVPs, 0)
		_ = found(&m)
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
	})
}

// walk reads AVPs and, as if all were grouped, those inside them. It checks that
// they cover the octets.
func walk(t *testing.T, a diameter.AVPs, octets []byte, depth int) {
	covered := 0
	for a.Next() {
		covered += 8 + len(a.Value)
		if a.Flags&diameter.VendorSpecific != 0 {
			covered += 4
		}
		covered = min((covered+3)&^3, len(octets))
		if depth < 8 {
			walk(t, diameter.Group(a.Value), a.Value, depth+1)
		}
	}
	if (a.Err == nil) != (covered == len(octets)) {
		t.Fatalf("the AVPs cover %d of %d octets, error %v", covered, len(octets), a.Err)
	}
}
