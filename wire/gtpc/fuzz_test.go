package gtpc_test

import (
	"bytes"
	"testing"

	"vitrine/wire/gtpc"
	"vitrine/wire/gtpc/gtpctest"
)

// FuzzParse checks that parsing does not panic, that views stay inside the
// message, and that parsed messages are written back to the same octets.
func FuzzParse(f *testing.F) {
	mix := gtpctest.NewMix(gtpctest.Config{})
	for range 64 * gtpctest.Kinds {
		if b := mix.Append(nil); len(b) > 0 && b[11] == 0 {
			f.Add(b)
		}
	}
	f.Add(createSession(1))
	f.Add(gtpc.AppendEchoRequest(nil, 1, 2))
	f.Add([]byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m gtpc.Message
		n, err := m.Parse(data)
		if err != nil {
			if n != 0 {
				t.Fatalf("%d octets and %v", n, err)
			}
			_, _ = gtpc.ForeignSequence(data)
			return
		}
		if n < 8 || n > len(data) || len(m.Octets) != n || len(m.IEs) > n-8 {
			t.Fatalf("%d octets of %d", n, len(data))
		}
		total, e := 0, m.Elements()
		for e.Next() {
			total += 4 + len(e.Value)
			_, _ = gtpc.ParseFTEID(e.Value)
			_, _ = gtpc.ParseCause(e.Value)
			if d, ok := gtpc.ParseDigits(e.Value); ok {
				back := gtpc.AppendDigits(nil, e.Type, d.String())
				if again, ok := gtpc.ParseDigits(back[4:]); !ok || again != d {
					t.Fatalf("digits %v are written as %x", d, back)
				}
			}
		}
		if (e.Err == nil) != (total == len(m.IEs)) {
			t.Fatalf("%d octets of elements of %d, %v", total, len(m.IEs), e.Err)
		}
		_ = m.Check()
		old := m.Sequence
		m.SetSequence(^old)
		m.SetSequence(old)
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
	})
}
