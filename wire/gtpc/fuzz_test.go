package gtpc_test

import (
	"bytes"
	"errors"
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
				t.Fatalf("parsed %d octets with error %v, want 0", n, err)
			}
			_, _ = gtpc.ForeignSequence(data)
			return
		}
		if n < 8 || n > len(data) || len(m.Octets) != n || len(m.IEs) > n-8 {
			t.Fatalf("parsed %d of %d octets", n, len(data))
		}
		total, e := 0, m.Elements()
		for e.Next() {
			total += 4 + len(e.Value)
			if f, ok := gtpc.ParseFTEID(e.Value); ok {
				gtpc.SetFTEID(e.Value, ^f.TEID)
				if again, ok := gtpc.ParseFTEID(e.Value); !ok || again.TEID != ^f.TEID || again.Addr() != f.Addr() {
					t.Fatalf("F-TEID %+v became %+v", f, again)
				}
				gtpc.SetFTEID(e.Value, f.TEID)
			}
			_, _ = gtpc.ParseCause(e.Value)
			if d, ok := gtpc.ParseDigits(e.Value); ok {
				back := gtpc.AppendDigits(nil, e.Type, d.String())
				if again, ok := gtpc.ParseDigits(back[4:]); !ok || again != d {
					t.Fatalf("digits %v were encoded as %x", d, back)
				}
			}
		}
		if (e.Err == nil) != (total == len(m.IEs)) {
			t.Fatalf("the elements cover %d of %d octets, error %v", total, len(m.IEs), e.Err)
		}
		_ = m.Check()
		old := m.Sequence
		m.SetSequence(^old)
		m.SetSequence(old)
		teid := m.TEID
		m.SetTEID(^teid)
		if m.HasTEID != (m.TEID == ^teid) {
			t.Fatalf("TEID %#x became %#x", teid, m.TEID)
		}
		m.SetTEID(teid)
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
	})
}

// FuzzMessage checks that a message, after it is parsed and built again, parses to the
// same values, and that a refused message has a cause.
func FuzzMessage(f *testing.F) {
	for _, m := range samples() {
		f.Add(m.Append(nil, 1, 2))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var header gtpc.Message
		if _, err := header.Parse(data); err != nil {
			return
		}
		m := reader(header.Type)
		if m == nil {
			return
		}
		err := m.Parse(&header)
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
		if err != nil {
			if r, ok := errors.AsType[gtpc.Result](err); !ok || r.Cause == 0 {
				t.Fatalf("error %v has no cause", err)
			}
			return
		}
		first := m.Append(nil, header.TEID, header.Sequence)
		again := fresh(m)
		var back gtpc.Message
		if _, err := back.Parse(first); err != nil {
			t.Fatalf("%x: %v", first, err)
		}
		if err := again.Parse(&back); err != nil {
			t.Fatalf("message %+v was encoded as %x, which Parse refused: %v", m, first, err)
		}
		if second := again.Append(nil, header.TEID, header.Sequence); !bytes.Equal(first, second) {
			t.Fatalf("message %+v was encoded as %x and then as %x", m, first, second)
		}
	})
}

// reader returns the message that reads a type.
func reader(t gtpc.Type) sample {
	switch t {
	case gtpc.CreateSessionRequest:
		return &gtpc.CreateSession{}
	case gtpc.CreateSessionResponse:
		return &gtpc.CreateSessionAnswer{}
	case gtpc.ModifyBearerRequest:
		return &gtpc.ModifyBearer{}
	case gtpc.DeleteSessionRequest:
		return &gtpc.DeleteSession{}
	case gtpc.ReleaseAccessBearersRequest:
		return &gtpc.ReleaseAccessBearers{}
	case gtpc.CreateBearerRequest:
		return &gtpc.CreateBearer{}
	case gtpc.DeleteBearerRequest:
		return &gtpc.DeleteBearer{}
	case gtpc.DownlinkData:
		return &gtpc.DownlinkDataNotification{}
	case gtpc.BearerResourceCommand:
		return &gtpc.BearerResource{}
	case gtpc.BearerResourceFailure:
		return &gtpc.BearerFailure{}
	}
	if t.IsTriggered() && t != gtpc.EchoResponse && t != gtpc.VersionNotSupported {
		return &gtpc.Answer{}
	}
	return nil
}
