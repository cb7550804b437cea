package pfcp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"vitrine/wire/pfcp"
)

func parse(t testing.TB, b []byte) *pfcp.Message {
	t.Helper()
	var m pfcp.Message
	if n, err := m.Parse(b); err != nil || n != len(b) || m.Check() != nil {
		t.Fatalf("parsed %d of %d octets, errors %v, %v", n, len(b), err, m.Check())
	}
	return &m
}

func TestReadsASessionsEstablishment(t *testing.T) {
	m := parse(t, golden()[5])
	if m.Type != pfcp.SessionEstablishmentRequest || m.Type.IsResponse() || !m.HasSEID || m.SEID != 0 || m.Sequence != 3 {
		t.Errorf("%+v", m)
	}
	v, _ := m.Find(pfcp.FSEID)
	if f, ok := pfcp.ParseFSEID(v); !ok || f != (pfcp.Endpoint{SEID: 0x0102030405060708, V4: netip.MustParseAddr("192.0.2.1")}) {
		t.Errorf("got F-SEID %+v, %v", f, ok)
	}
	var pdrs, fars, qers []uint32
	var enterprise uint16
	for e := m.Elements(); e.Next(); {
		enterprise = e.Enterprise
		if e.Type != pfcp.CreatePDR {
			continue
		}
		for inner := pfcp.Group(e.Value); inner.Next(); {
			switch inner.Type {
			case pfcp.PDRID:
				pdrs = append(pdrs, uint32(binary.BigEndian.Uint16(inner.Value)))
			case pfcp.FARID:
				fars = append(fars, binary.BigEndian.Uint32(inner.Value))
			case pfcp.QERID:
				qers = append(qers, binary.BigEndian.Uint32(inner.Value))
			}
		}
	}
	if len(pdrs) != 2 || pdrs[1] != 2 || len(fars) != 2 || fars[1] != 2 || len(qers) != 3 || qers[2] != 8 || enterprise != 10415 {
		t.Errorf("got PDRs %v, FARs %v, QERs %v, last element of enterprise %d", pdrs, fars, qers, enterprise)
	}
}

func TestReadsAnAssociationsSetup(t *testing.T) {
	m := parse(t, golden()[3])
	if m.HasSEID || m.Sequence != 0xfffffe || !m.Type.IsResponse() {
		t.Errorf("%+v", m)
	}
	v, _ := m.Find(pfcp.Cause)
	if c, ok := pfcp.ParseCause(v); !ok || !c.Accepted() {
		t.Errorf("got cause %d, %v", c, ok)
	}
}

func TestReadsBundledMessages(t *testing.T) {
	first, second := golden()[9], golden()[0]
	first[0] |= 4 | 2
	first[15] = 0x50
	var m pfcp.Message
	n, err := m.Parse(append(bytes.Clone(first), second...))
	if err != nil || n != len(first) || !m.Follows || !m.HasPriority || m.Priority != 5 || m.SEID != 9 {
		t.Errorf("parsed %d octets, error %v: %+v", n, err, m)
	}
}

func TestRejectsMalformedMessages(t *testing.T) {
	good := golden()[5]
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		octets []byte
		want   error
	}{
		"empty":                {nil, pfcp.ErrShort},
		"half a header":        {good[:7], pfcp.ErrShort},
		"cut":                  {good[:len(good)-1], pfcp.ErrLength},
		"version 2":            {change(0, 0x41), pfcp.ErrVersion},
		"no room for the SEID": {append([]byte{0x21, 1, 0, 11}, make([]byte, 11)...), pfcp.ErrLength},
	} {
		var m pfcp.Message
		if n, err := m.Parse(c.octets); !errors.Is(err, c.want) || n != 0 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	for name, elements := range map[string][]byte{
		"half a header":                  {0, 19, 0},
		"longer than the rest":           {0, 19, 0, 2, 1},
		"no room for an enterprise":      {0x80, 1, 0, 1, 0, 0},
		"longer than the group it is in": group(pfcp.CreatePDR, []byte{0, 2, 0, 8, 1, 2, 3, 4}),
	} {
		var m pfcp.Message
		if _, err := m.Parse(node(pfcp.HeartbeatRequest, 1, elements)); err != nil || !errors.Is(m.Check(), pfcp.ErrIE) {
			t.Errorf("%s: %v, %v", name, err, m.Check())
		}
	}
}

func TestRejectsShortValues(t *testing.T) {
	for n := range 9 {
		if _, ok := pfcp.ParseFSEID(fseidV4[4 : 4+n]); ok {
			t.Errorf("ParseFSEID accepted an F-SEID of %d octets", n)
		}
	}
	for name, ok := range map[string]bool{
		"F-SEID without its IPv4 address": second(pfcp.ParseFSEID(fseidV4[4:16])),
		"F-SEID without its IPv6 address": second(pfcp.ParseFSEID(fseidBoth[4:20])),
		"cause of none":                   second(pfcp.ParseCause(nil)),
	} {
		if ok {
			t.Error(name)
		}
	}
}

func second[T any](_ T, ok bool) bool { return ok }

func TestNothingIsAllocated(t *testing.T) {
	messages := golden()
	total := uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range messages {
			var m pfcp.Message
			if _, err := m.Parse(b); err != nil || m.Check() != nil {
				t.Fatal(err)
			}
			total += uint64(len(m.Type.String())) + m.SEID
			for e := m.Elements(); e.Next(); {
				total += values(e.Type, e.Value)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// values reads a value and, of a group, those inside it. It returns a sum of
// them.
func values(of pfcp.Element, v []byte) (sum uint64) {
	switch of {
	case pfcp.FSEID:
		f, _ := pfcp.ParseFSEID(v)
		sum += f.SEID
	case pfcp.Cause:
		c, _ := pfcp.ParseCause(v)
		sum += uint64(c)
	}
	if of.IsGroup() {
		for e := pfcp.Group(v); e.Next(); {
			sum += uint64(e.Type) + uint64(len(e.Value))
		}
	}
	return sum
}

func BenchmarkRead(b *testing.B) {
	messages := golden()
	for i := 0; b.Loop(); i++ {
		var m pfcp.Message
		if _, err := m.Parse(messages[i%len(messages)]); err != nil {
			b.Fatal(err)
		}
		for e := m.Elements(); e.Next(); {
			values(e.Type, e.Value)
		}
	}
}
