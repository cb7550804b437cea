package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"vitrine"
)

// start is when the captures of tests begin, in nanoseconds since 1970.
const start = 1_700_000_000_123_456_789

// pcapFile returns a pcap file with raw IP packets, one each millisecond.
func pcapFile(order binary.AppendByteOrder, nanoseconds bool, link LinkType, packets ...[]byte) []byte {
	magic, unit := uint32(0xa1b2c3d4), int64(1000)
	if nanoseconds {
		magic, unit = 0xa1b23c4d, 1
	}
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(order.AppendUint16(b, 2), 4)
	b = append(b, make([]byte, 8)...)
	b = order.AppendUint32(order.AppendUint32(b, maxFrame), uint32(link))
	for i, p := range packets {
		at := start + int64(i)*int64(time.Millisecond)
		b = order.AppendUint32(order.AppendUint32(b, uint32(at/1e9)), uint32(at%1e9/unit))
		b = order.AppendUint32(order.AppendUint32(b, uint32(len(p))), uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

// block returns a block of pcapng.
func block(order binary.AppendByteOrder, kind uint32, body ...[]byte) []byte {
	b := join(body...)
	b = append(b, make([]byte, padding(len(b)))...)
	length := uint32(len(b) + blockEdges)
	return order.AppendUint32(append(order.AppendUint32(order.AppendUint32(nil, kind), length), b...), length)
}

// section returns a section header.
func section(order binary.AppendByteOrder) []byte {
	b := order.AppendUint16(order.AppendUint16(order.AppendUint32(nil, byteOrderMagic), 1), 0)
	return block(order, sectionHeader, b, bytes.Repeat([]byte{0xff}, 8))
}

// description returns an interface description with times in nanoseconds.
func description(order binary.AppendByteOrder, link LinkType) []byte {
	b := order.AppendUint32(order.AppendUint16(order.AppendUint16(nil, uint16(link)), 0), 0)
	b = append(order.AppendUint16(order.AppendUint16(b, 2), 3), 'e', 't', 'h', 0)
	b = append(order.AppendUint16(order.AppendUint16(b, timeResolution), 1), 9, 0, 0, 0)
	return block(order, interfaceBlock, b, []byte{0, 0, 0, 0})
}

// enhanced returns an enhanced packet with a comment.
func enhanced(order binary.AppendByteOrder, index uint32, at int64, frame []byte) []byte {
	b := order.AppendUint32(nil, index)
	b = order.AppendUint32(order.AppendUint32(b, uint32(at>>32)), uint32(at))
	b = order.AppendUint32(order.AppendUint32(b, uint32(len(frame))), uint32(len(frame)))
	b = append(append(b, frame...), make([]byte, padding(len(frame)))...)
	b = append(order.AppendUint16(order.AppendUint16(b, 1), 5), 'h', 'e', 'l', 'l', 'o', 0, 0, 0)
	return block(order, enhancedPacket, b, []byte{0, 0, 0, 0})
}

// pcapngFile returns a pcapng file with two interfaces of different link types, a
// block that packets do not need, and a second section.
func pcapngFile(t testing.TB, order binary.AppendByteOrder) []byte {
	simple := order.AppendUint32(nil, uint32(len(udp4(t, "four"))))
	return join(
		section(order), description(order, Raw), description(order, SLL2),
		enhanced(order, 0, start, udp4(t, "one")),
		block(order, 4, make([]byte, 100)), // name resolution
		enhanced(order, 1, start+1e6, join(be16(etherIPv4, 0), be32(3), be16(1), []byte{0, 6}, make([]byte, 8), udp4(t, "two"))),
		section(order), description(order, Ethernet), enhanced(order, 0, start+2e6, framed(udp4(t, "three"), etherIPv4)),
		section(order), description(order, Raw), block(order, simplePacket, simple, udp4(t, "four")),
	)
}

// read returns the payloads of a capture and what Err says. times are relative to
// start.
func read(t testing.TB, content []byte) (payloads []string, times []int64, places []Where, err error) {
	t.Helper()
	f, err := newFile("x.pcap", bytes.NewReader(content))
	if err != nil {
		return nil, nil, nil, err
	}
	r := newReader([]*file{f}, Options{})
	defer r.Close()
	for p := r.Next(); p != nil; p = r.Next() {
		payloads, times, places = append(payloads, string(p.Payload)), append(times, p.Time-start), append(places, p.Where)
	}
	return payloads, times, places, r.Err()
}

// TestFormats checks files of each format, byte order, resolution and compression.
func TestFormats(t *testing.T) {
	one, two := udp4(t, "one"), udp4(t, "two")
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		t.Run("pcap "+order.String(), func(t *testing.T) {
			for nano, lost := range map[bool]int64{true: 0, false: start % 1000} {
				payloads, times, _, err := read(t, pcapFile(order, nano, Raw, one, two))
				if err != nil || !slices.Equal(payloads, []string{"one", "two"}) || !slices.Equal(times, []int64{-lost, 1e6 - lost}) {
					t.Errorf("got %v at %v, error %v", payloads, times, err)
				}
			}
		})
		t.Run("pcapng "+order.String(), func(t *testing.T) {
			payloads, times, places, err := read(t, pcapngFile(t, order))
			if err != nil || !slices.Equal(payloads, []string{"one", "two", "three", "four"}) || !slices.Equal(times, []int64{0, 1e6, 2e6, 2e6}) {
				t.Errorf("got %v at %v, error %v", payloads, times, err)
			}
			if want := []Where{{}, {Interface: 1, Link: 3}, {Interface: 2}, {Interface: 3}}; !slices.Equal(places, want) {
				t.Errorf("got %v, want %v", places, want)
			}
		})
	}
	t.Run("pcapng of version 1.2", func(t *testing.T) {
		content := pcapngFile(t, binary.LittleEndian)
		content[14] = 2 // the minor version of the first section
		if payloads, _, _, err := read(t, content); err != nil || len(payloads) != 4 {
			t.Errorf("got %q, error %v", payloads, err)
		}
	})
	t.Run("pcapng in units of powers of two", func(t *testing.T) {
		const seconds = start / 1_000_000_000
		order := binary.LittleEndian
		for _, exponent := range []uint8{20, 30, 32} {
			described := description(order, Raw)
			unit := bytes.Index(described, []byte{timeResolution, 0, 1, 0}) + 4
			described[unit] = 0x80 | exponent
			at := int64(seconds)<<exponent | 3<<(exponent-2) // three quarters of a second
			_, times, _, err := read(t, join(section(order), described, enhanced(order, 0, at, one)))
			if want := []int64{seconds*1_000_000_000 + 750_000_000 - start}; err != nil || !slices.Equal(times, want) {
				t.Errorf("2^-%d s: got times %v, want %v, error %v", exponent, times, want, err)
			}
		}
	})
	t.Run("pcapng of another writer", func(t *testing.T) {
		var b bytes.Buffer
		w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeRaw)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(0, start)
		if err := errors.Join(w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(one), Length: len(one)}, one), w.Flush()); err != nil {
			t.Fatal(err)
		}
		payloads, times, _, err := read(t, b.Bytes())
		if err != nil || !slices.Equal(payloads, []string{"one"}) || times[0] != 0 {
			t.Errorf("got %v at %v, error %v", payloads, times, err)
		}
	})
	for _, c := range compressions() {
		t.Run(c.name, func(t *testing.T) {
			payloads, _, _, err := read(t, c.compress(t, pcapFile(binary.LittleEndian, true, Raw, one, two)))
			if err != nil || !slices.Equal(payloads, []string{"one", "two"}) {
				t.Errorf("%v, %v", payloads, err)
			}
		})
	}
}

type compression struct {
	name     string
	compress func(t testing.TB, b []byte) []byte
}

func compressions() []compression {
	through := func(w io.WriteCloser, err error) func(t testing.TB, b []byte, to *bytes.Buffer) []byte {
		return func(t testing.TB, b []byte, to *bytes.Buffer) []byte {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			_, failed := w.Write(b)
			if err := errors.Join(failed, w.Close()); err != nil {
				t.Fatal(err)
			}
			return to.Bytes()
		}
	}
	return []compression{
		{"gzip", func(t testing.TB, b []byte) []byte {
			var to bytes.Buffer
			return through(gzip.NewWriter(&to), nil)(t, b, &to)
		}},
		{"zstd", func(t testing.TB, b []byte) []byte {
			var to bytes.Buffer
			w, err := zstd.NewWriter(&to)
			return through(w, err)(t, b, &to)
		}},
	}
}

// TestFilesThatAreNoCaptures checks that Open refuses them and names the file.
func TestFilesThatAreNoCaptures(t *testing.T) {
	tests := []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty", nil, "the file is empty"},
		{"text", []byte("hello, world"), "not a capture"},
		{"one byte", []byte{0xa1}, "not a capture"},
		{"text in gzip", compressions()[0].compress(t, []byte("hello, world")), "not a capture"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "bad.pcap")
			if err := os.WriteFile(name, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open([]string{name}, Options{})
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if _, err := Open([]string{"absent.pcap"}, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	f, err := newFile("x", strings.NewReader("text"))
	if !vitrine.IsBadInput(err) {
		t.Error(f, err)
	}
}

// TestADamagedHeaderHidesNoOtherFile checks that the packets of the files before and after a
// file with a damaged header are delivered, and that Err names that file.
func TestADamagedHeaderHidesNoOtherFile(t *testing.T) {
	pcap := pcapFile(binary.LittleEndian, false, Raw, udp4(t, "one"))
	otherVersion := bytes.Clone(pcap)
	otherVersion[4] = 3
	tests := []struct {
		name    string
		content []byte
		want    string
	}{
		{"pcap that ends in its header", pcap[:20], "truncated in the record at byte 0"},
		{"pcap of another version", otherVersion, "major version 3"},
		{"pcapng without byte order", be32(sectionHeader, 28, 1, 1, 1, 1, 28), "without byte order"},
		{"pcapng header that is too short", block(binary.BigEndian, sectionHeader, be32(byteOrderMagic)), "truncated"},
		{"gzip header alone", []byte{0x1f, 0x8b, 8, 0}, "truncated"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			var names []string
			for i, content := range [][]byte{pcap, test.content, pcap} {
				names = append(names, filepath.Join(dir, string(rune('a'+i))))
				if err := os.WriteFile(names[i], content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r, err := Open(names, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var from []uint16
			for p := r.Next(); p != nil; p = r.Next() {
				from = append(from, p.Where.File)
			}
			if !slices.Equal(from, []uint16{0, 2}) {
				t.Errorf("got packets of files %v, want 0 and 2", from)
			}
			damage, ok := errors.AsType[*Damage](r.Err())
			if !ok || damage.File != names[1] || !strings.Contains(damage.Error(), test.want) {
				t.Errorf("got error %v, want %q", r.Err(), test.want)
			}
		})
	}
}

// TestDamagedFilesAreReadUpToTheDamage checks that the packets before the damage are
// delivered, and that the error has the file and the offset.
func TestDamagedFilesAreReadUpToTheDamage(t *testing.T) {
	le := binary.LittleEndian
	one, two := udp4(t, "one"), udp4(t, "two")
	pcap := pcapFile(le, false, Raw, one, two)
	second := int64(24 + 16 + len(one))
	ng := join(section(le), description(le, Raw), enhanced(le, 0, start, one))
	after := int64(len(ng))
	edit := func(b []byte, at int64, value byte) []byte {
		b = bytes.Clone(b)
		b[at] = value
		return b
	}
	huge := join(be32(0, 0, 1<<31), be32(1<<31, 1<<31))
	slices.Reverse(huge) // little endian
	tests := []struct {
		name    string
		content []byte
		offset  int64
		want    string
	}{
		{"pcap, in a header", pcap[:second+8], second, "truncated"},
		{"pcap, in a frame", pcap[:len(pcap)-1], second, "truncated"},
		{"pcap, a huge frame", edit(pcap, second+11, 0xff), second, "longer than"},
		{"pcap, a frame longer than on the network", edit(pcap, second+12, 1), second, "exceeds"},
		{"pcapng, in a header", join(ng, enhanced(le, 0, start, two)[:6]), after, "truncated"},
		{"pcapng, in a frame", join(ng, enhanced(le, 0, start, two)[:40]), after, "truncated"},
		{"pcapng, a huge block", join(ng, le.AppendUint32(le.AppendUint32(nil, 99), 0xfffffffc)), after, "truncated"},
		{"pcapng, a block shorter than its edges", join(ng, le.AppendUint32(le.AppendUint32(nil, 99), 8)), after, "a block of 8 bytes"},
		{"pcapng, a frame longer than its block", edit(join(ng, enhanced(le, 0, start, two)), after+21, 1), after, "longer than its block"},
		{"pcapng, a huge frame", edit(join(ng, enhanced(le, 0, start, two)), after+23, 1), after, "longer than 262144"},
		{"pcapng, an option longer than its block", join(ng, block(le, interfaceBlock, make([]byte, 8), []byte{2, 0, 0xff, 0xff})), after, "option 2 of 65535"},
		{"pcapng, lengths that differ", edit(join(ng, enhanced(le, 0, start, two)), int64(len(ng)+len(enhanced(le, 0, start, two))-4), 0), after, "ends as one of"},
		{"pcapng, an unknown interface", join(ng, enhanced(le, 7, start, two)), after, "Interface id 7"},
		{"pcapng, a simple packet of another length", join(ng, block(le, simplePacket, huge)), after, "a frame"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			payloads, _, _, err := read(t, test.content)
			if damage, ok := errors.AsType[*Damage](err); !ok || damage.Offset != test.offset || damage.File != "x.pcap" || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q at %d", err, test.want, test.offset)
			}
			if !slices.Equal(payloads, []string{"one"}) {
				t.Errorf("got payloads %q, want one", payloads)
			}
		})
	}
	for _, c := range compressions() {
		t.Run(c.name, func(t *testing.T) {
			many := make([][]byte, 5000)
			for i := range many {
				many[i] = udp4(t, string(rune(i)))
			}
			whole := c.compress(t, pcapFile(le, false, Raw, many...))
			payloads, _, _, err := read(t, whole[:len(whole)-10])
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(payloads) < 100 {
				t.Errorf("got %d payloads, error %v", len(payloads), err)
			}
		})
	}
}

// TestHugeLengthsDoNotAllocate checks that lengths stated in a small file do not determine
// the memory for reading it.
func TestHugeLengthsDoNotAllocate(t *testing.T) {
	le := binary.LittleEndian
	huge := le.AppendUint32(nil, 0xfffffff0)
	head := join(section(le), description(le, Raw))
	for name, content := range map[string][]byte{
		"snap length and frame of pcap": join(pcapFile(le, false, Raw)[:16], huge, make([]byte, 12), huge, huge),
		"block":                         join(head, le.AppendUint32(nil, enhancedPacket), huge, make([]byte, 12), huge, huge),
		"frame in a block":              join(head, block(le, enhancedPacket, make([]byte, 12), huge, huge)),
		"name records":                  join(head, le.AppendUint32(nil, 4), huge, bytes.Repeat([]byte{1, 0, 0xff, 0xff}, 1000)),
		"secrets":                       join(head, le.AppendUint32(nil, 10), huge, huge, huge),
		"section":                       join(le.AppendUint32(nil, sectionHeader), huge, le.AppendUint32(nil, byteOrderMagic), make([]byte, 12)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, _, err := read(t, content)
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; err == nil || used > 4*readAhead {
				t.Errorf("used %d bytes, error %v", used, err)
			}
		})
	}
}

// TestTooManyInterfaces checks that interface descriptions cannot use up memory.
func TestTooManyInterfaces(t *testing.T) {
	le := binary.LittleEndian
	_, _, _, err := read(t, join(section(le), bytes.Repeat(description(le, Raw), maxInterfaces+1)))
	if err == nil || !strings.Contains(err.Error(), "more than 4096 interfaces") {
		t.Error(err)
	}
}

// TestMerge checks that files merge by corrected time, and that damage to one does
// not hide the others.
func TestMerge(t *testing.T) {
	le := binary.LittleEndian
	frames := func(payloads ...string) (all [][]byte) {
		for _, p := range payloads {
			all = append(all, udp4(t, p))
		}
		return all
	}
	a := pcapFile(le, true, Raw, frames("a0", "a1", "a2", "a3")...)
	b := pcapFile(le, true, Raw, frames("b0", "b1", "b2")...)
	c := pcapFile(le, true, Raw, frames("c0", "c1")...)
	var files []*file
	for _, content := range [][]byte{a, b, c[:len(c)-1]} {
		f, err := newFile("x", bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	r := newReader(files, Options{Correct: func(file int, at int64) int64 {
		if file == 1 {
			return at - 1500*int64(time.Microsecond)
		}
		return at
	}})
	var got []string
	for p := r.Next(); p != nil; p = r.Next() {
		got = append(got, string(p.Payload))
	}
	if want := "b0 b1 a0 c0 b2 a1 a2 a3"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if err := r.Err(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if r.Next() != nil {
		t.Error("got a packet after the end")
	}
}
