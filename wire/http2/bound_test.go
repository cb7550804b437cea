package http2

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// maxMemory is the memory that the bounds allow a decoder: its block, its fields and
// their text, the table and the streams. Each buffer may have grown to twice its use.
const maxMemory = 2*maxHead + 2*maxFields*56 + 4*maxText + 2*maxTable + maxTable/overhead*24 + maxStreams*24 + 1024

func head(kind frameType, flags byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(b, flags), stream), payload...)
}

// TestHostileStreamsAreBounded checks the memory of a decoder after streams that are made
// to be expensive, and that reading continues after them.
func TestHostileStreamsAreBounded(t *testing.T) {
	large := append([]byte{0x3f, 0xe1, 0xff, 0xff, 0xff, 0x07}, 0x40, 1, 'n', 0x7f, 0x81, 0x7f) // a table of 2 GiB, an entry of 16,384 octets
	large = append(large, bytes.Repeat([]byte{'v'}, 16384)...)
	name := append([]byte{0x40, 0x7f, 0x81, 0xf6, 0x02}, bytes.Repeat([]byte{'n'}, 48000)...)
	name = append(name, 0)
	for of, frames := range map[string]func(i int) []byte{
		"empty CONTINUATION": func(i int) []byte {
			if i == 0 {
				return head(typeHeaders, 0, 1, nil)
			}
			return head(typeContinuation, 0, 1, nil)
		},
		"CONTINUATION without end": func(i int) []byte {
			if i == 0 {
				return head(typeHeaders, 0, 1, []byte{0x82})
			}
			return head(typeContinuation, 0, 1, bytes.Repeat([]byte{0x82}, 1000))
		},
		"empty DATA":    func(int) []byte { return head(typeData, 0, 1, nil) },
		"empty HEADERS": func(i int) []byte { return head(typeHeaders, flagEndHeaders, uint32(2*i+1), nil) },
		"streams":       func(i int) []byte { return head(typeHeaders, flagEndHeaders, uint32(2*i+1), []byte{0x82, 0x84, 0x86}) },
		"streams far apart": func(i int) []byte {
			return head(typeHeaders, flagEndHeaders, uint32(i<<12+1), []byte{0x82, 0x84, 0x86})
		},
		"large entries": func(i int) []byte { return head(typeHeaders, flagEndHeaders, 1, large) },
		"references to a name": func(i int) []byte {
			return head(typeHeaders, flagEndHeaders, 1, append(append([]byte{0x3f, 0xe1, 0xff, 0x03}, name...), bytes.Repeat([]byte{0xbe}, 9000)...))
		},
		"copies of a name": func(int) []byte {
			return head(typeHeaders, flagEndHeaders, 1, append(append([]byte{0x3f, 0xe1, 0xff, 0x03}, name...), bytes.Repeat([]byte{0x7e, 0}, 5000)...))
		},
		"small entries": func(int) []byte {
			return head(typeHeaders, flagEndHeaders, 1, append([]byte{0x3f, 0xe1, 0xff, 0x03}, bytes.Repeat([]byte{0x40, 0, 0}, 9000)...))
		},
		"literals": func(int) []byte {
			return head(typeHeaders, flagEndHeaders, 1, bytes.Repeat([]byte{0, 0x81, 0x1f, 0x81, 0x1f}, 13000))
		},
		"a frame of 16 MiB": func(i int) []byte {
			if i == 0 {
				return []byte{0xff, 0xff, 0xff, byte(typeHeaders), flagEndHeaders, 0, 0, 0, 1}
			}
			return make([]byte, 100<<10)
		},
	} {
		var d Decoder
		rest := head(typeSettings, 0, 0, nil)
		most := 0
		for i, count := 0, 3000; i < count; i++ {
			for e := Head; e != More; {
				n, next, err := d.Next(rest)
				if err != nil {
					t.Fatalf("%s: frame %d: %v", of, i, err)
				}
				rest, e = rest[n:], next
			}
			most = max(most, len(rest))
			rest = append(rest[:len(rest):len(rest)], frames(i)...)
			if len(rest) > 100 {
				count = 100
			}
		}
		t.Logf("%s: the decoder keeps %d octets, the caller %d", of, d.Memory(), most)
		if d.Memory() > maxMemory || most > frameHeader+maxHead {
			t.Errorf("%s: the decoder keeps %d octets, the caller %d, want at most %d and %d", of, d.Memory(), most, maxMemory, frameHeader+maxHead)
		}
	}
}

func TestManyStreamsAreForgotten(t *testing.T) {
	var d Decoder
	octets := head(typeSettings, 0, 0, nil)
	for i := range uint32(3000) {
		octets = append(octets, head(typeHeaders, flagEndHeaders, 2*i+1, []byte{0x82, 0x84, 0x86})...)
	}
	for i := range uint32(3000) {
		octets = append(octets, head(typeData, flagEndStream, 2*i+1, nil)...)
	}
	for e := Head; e != More; {
		n, next, err := d.Next(octets)
		if err != nil {
			t.Fatal(err)
		}
		octets, e = octets[n:], next
	}
	if c := d.Counts; c.Forgotten != 3000-maxStreams || c.Whole != maxStreams || c.Cut != 3000-maxStreams {
		t.Errorf("%+v", c)
	}
}

// conversation returns heads, bodies and trailers of one connection. Its entries for
// the dynamic table make it move.
func conversation() (b []byte) {
	for i := range uint32(50) {
		block := append([]byte{0x83, 0x86, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff}, 0x44, 2, '/', byte('a'+i%26))
		b = append(b, head(typeHeaders, 0, 2*i+1, block)...)
		b = append(b, head(typeContinuation, flagEndHeaders, 2*i+1, []byte{0x90, 0x53, 1, 'v'})...)
		b = append(b, head(typeData, 0, 2*i+1, []byte("body"))...)
		b = append(b, head(typeHeaders, flagEndHeaders|flagEndStream, 2*i+1, []byte{0, 3, 's', 'u', 'm', 1, '1'})...)
	}
	return b
}

// begun returns a decoder that has read a client's preface.
func begun(t testing.TB) *Decoder {
	d := &Decoder{}
	octets := slices.Concat(clientPreface, head(typeSettings, 0, 0, nil))
	for len(octets) > 0 {
		n, _, err := d.Next(octets)
		if err != nil {
			t.Fatal(err)
		}
		octets = octets[n:]
	}
	return d
}

func TestNothingIsAllocated(t *testing.T) {
	octets, d := conversation(), begun(t)
	total := 0
	run := func() {
		for rest, e := octets, Head; e != More; {
			n, next, err := d.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			if rest, e = rest[n:], next; e == Head {
				total += len(d.Message.Authority) + len(d.Message.Find("sum"))
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if c := d.Counts; c.Cut+c.Partial+c.Malformed > 0 || c.Whole != 102*50 || total != 102*50*16 {
		t.Errorf("%+v, %d", c, total)
	}
}

func BenchmarkRead(b *testing.B) {
	octets, d := conversation(), begun(b)
	b.SetBytes(int64(len(octets)))
	for b.Loop() {
		for rest, e := octets, Head; e != More; {
			n, next, err := d.Next(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest, e = rest[n:], next
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50, "ns/message")
}
