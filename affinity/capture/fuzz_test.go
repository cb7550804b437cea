package capture

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// FuzzWalk checks that no frame makes the walker panic, deliver bytes that are not in the
// frames, or exceed its memory limit.
func FuzzWalk(f *testing.F) {
	for _, frame := range mixture(f, 0) {
		f.Add(uint16(Ethernet), frame, frame)
	}
	text := strings.Repeat("x", 100)
	v4, v6 := fragments4(udp4(f, text), 64), fragments6(udp6(f, text), 64)
	f.Add(uint16(Raw), v4[0], v4[1])
	f.Add(uint16(Raw), v6[0], v6[1])
	f.Add(uint16(Raw), gtpu(f, 0x34, 255, join([]byte{0, 0, 0, 0x85, 1, 0x10, 1, 0x40, 2, 0, 0, 0, 0, 0, 0, 0}, v4[0])), v6[1])
	f.Add(uint16(Raw), sctp4(f, dataChunk(2, 9, 1, 1, 46, text)), sctp4(f, dataChunk(1, 10, 1, 1, 46, text)))
	f.Add(uint16(SLL), join(be16(0, 1, 6), make([]byte, 8), be16(etherIPv4), v4[0]), v4[1])
	f.Add(uint16(SLL2), join(be16(etherIPv6, 0), be32(3), be16(1), []byte{0, 6}, make([]byte, 8), v6[0]), v6[1])
	f.Add(uint16(Null), join([]byte{2, 0, 0, 0}, v4[0]), v4[1])
	f.Fuzz(func(t *testing.T, link uint16, first, second []byte) {
		const limit = 100_000
		w := NewWalker(Options{MaxMemory: 2 * limit})
		finder := NewFinder(1, 2)
		for i, frame := range [][]byte{first, second, first, second[len(second)/2:], second} {
			before := bytes.Clone(frame)
			w.Walk(LinkType(link), int64(i), Where{}, frame)
			for p := w.Next(); p != nil; p = w.Next() {
				if len(p.Payload) > len(first)*2+len(second)*3 || p.Missing < 0 || p.Missing > 5<<16 { // a cut fragment in each frame
					t.Fatalf("got %d bytes, %d missing", len(p.Payload), p.Missing)
				}
				finder.Find(p)
			}
			if !bytes.Equal(frame, before) {
				t.Fatal("the frame was changed")
			}
			if w.fragments.memory > limit || w.messages.memory > limit || w.fragments.memory < 0 || w.messages.memory < 0 {
				t.Fatalf("%d and %d bytes are held, above the limit", w.fragments.memory, w.messages.memory)
			}
		}
	})
}

// FuzzFile checks that no file makes the reader panic, loop for ever, or use much
// memory, and that damage is within the file.
func FuzzFile(f *testing.F) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		f.Add(pcapFile(order, true, Raw, udp4(f, "one"), udp4(f, "two")))
		f.Add(pcapngFile(f, order))
	}
	for _, c := range compressions() {
		f.Add(c.compress(f, pcapFile(binary.LittleEndian, false, Raw, udp4(f, "one"))))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := newFile("x", bytes.NewReader(content))
		if err != nil {
			return
		}
		defer file.close()
		frames, compressed := 0, isCompressed(content)
		for err = file.next(); err == nil; err = file.next() {
			if frames++; !compressed && (len(file.data) > len(content) || frames > len(content)) {
				t.Fatalf("got frame %d of %d bytes from a file of %d bytes", frames, len(file.data), len(content))
			}
			if frames > 100_000 { // a compressed file may be large
				return
			}
		}
		if file.guard.start < 0 || !compressed && file.guard.start > int64(len(content)) {
			t.Fatalf("%v at %d in a file of %d bytes", err, file.guard.start, len(content))
		}
		if cap(file.guard.record) > 3*maxFrame {
			t.Fatalf("the record buffer has %d bytes", cap(file.guard.record))
		}
	})
}

// isCompressed reports whether a file begins as gzip or zstd do.
func isCompressed(b []byte) bool {
	return bytes.HasPrefix(b, []byte{0x1f, 0x8b}) || bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd})
}
