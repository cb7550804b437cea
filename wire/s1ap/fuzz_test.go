package s1ap_test

import (
	"bytes"
	"testing"

	"vitrine/wire/s1ap"
)

// FuzzParse checks that parsing does not panic or change the message, and that a
// message whose elements are well formed is appended from them to the same octets.
func FuzzParse(f *testing.F) {
	for _, b := range golden(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m s1ap.Message
		if m.Parse(data) != nil || len(data) > 1<<14 { // longer values cannot be appended
			return
		}
		b := s1ap.AppendHeader(nil, m.Kind, m.Procedure, m.Criticality)
		e := m.Elements()
		for e.Next() {
			_, _ = value(e.ID, e.Value)
			b = s1ap.AppendElement(b, e.ID, e.Criticality, e.Value)
		}
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
		if e.Err != nil {
			return
		}
		var again s1ap.Message
		if b = s1ap.End(b, 0); again.Parse(b) != nil || again.Check() != nil {
			t.Fatalf("message %x was encoded as %x", data, b)
		}
		for one, other := m.Elements(), again.Elements(); one.Next(); {
			if !other.Next() || one.ID != other.ID || one.Criticality != other.Criticality || !bytes.Equal(one.Value, other.Value) {
				t.Fatalf("message %x was encoded as %x", data, b)
			}
		}
	})
}

// FuzzValue checks that an element that is parsed is appended and parsed back to
// the same value.
func FuzzValue(f *testing.F) {
	for _, b := range golden(f) {
		var m s1ap.Message
		if m.Parse(b) != nil {
			f.Fatal("cannot parse a golden message")
		}
		for e := m.Elements(); e.Next(); {
			f.Add(uint16(e.ID), e.Value)
			for i := s1ap.List(e.Value); i.Next(); {
				f.Add(uint16(i.ID), i.Value)
			}
		}
	}
	f.Add(uint16(59), []byte{0, 0x00, 0xf1, 0x10, 0x80, 3, 0xaa, 0xf3, 0x40})               // a short macro eNodeB
	f.Add(uint16(52), []byte("\x0fA00 00000000\x000\x000O\x80000000000000000000000000000")) // a bit rate above the largest
	f.Fuzz(func(t *testing.T, number uint16, v []byte) {
		id := s1ap.ID(number)
		before := bytes.Clone(v)
		first, ok := value(id, v)
		if !bytes.Equal(v, before) {
			t.Fatal("the value was changed")
		}
		if !ok {
			return
		}
		var b []byte
		switch x := first.(type) {
		case s1ap.ERAB:
			if missing(x) {
				return
			}
			b = s1ap.AppendERAB(nil, id, reject, x)
		case s1ap.Cause:
			b = s1ap.AppendCause(nil, reject, x)
		case s1ap.ENB:
			b = s1ap.AppendENB(nil, reject, x)
		default:
			return
		}
		items := s1ap.List(append([]byte{0}, b...))
		if !items.Next() {
			t.Fatalf("%x: %v", b, items.Err)
		}
		if again, ok := value(id, items.Value); !ok || !equal(first, again) {
			t.Fatalf("value %+v was encoded as %x and parsed as %+v", first, b, again)
		}
	})
}

// missing reports whether an E-RAB has half of a forwarding tunnel, which
// AppendERAB does not write.
func missing(e s1ap.ERAB) bool {
	for _, f := range []s1ap.Tunnel{e.ForwardDown, e.ForwardUp} {
		if !f.V4.IsValid() && !f.V6.IsValid() && f.TEID != 0 {
			return true
		}
	}
	return false
}

func equal(a, b any) bool {
	if x, ok := a.(s1ap.ERAB); ok {
		y, ok := b.(s1ap.ERAB)
		same := ok && bytes.Equal(x.NAS, y.NAS)
		x.NAS, y.NAS = nil, nil
		return same && x.ID == y.ID && x.QoS == y.QoS && x.Tunnel == y.Tunnel && x.ForwardDown == y.ForwardDown && x.ForwardUp == y.ForwardUp && x.Cause == y.Cause
	}
	return a == b
}
