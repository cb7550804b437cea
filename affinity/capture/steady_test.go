package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// mixture returns frames of many kinds, of one link type. If n differs, the fragments of each SCTP message
// have TSNs of their own, and those of each datagram an identification.
func mixture(t testing.TB, n uint32) [][]byte {
	text := strings.Repeat("x", 500)
	tcp := build(t, ip4Layer(layers.IPProtocolTCP), &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}, gopacket.Payload(text))
	packets := [][]byte{
		udp4(t, text), tcp, udp4(t, text), tcp, vxlan(t, framed(udp4(t, text), etherIPv4)), gtpu(t, 0x30, 255, tcp),
		sctp4(t, dataChunk(3, 1, 1, 1, 46, text), dataChunk(3, 2, 1, 2, 46, text)),
		sctp4(t, dataChunk(2, 2*n+3, 1, 3, 46, text)), sctp4(t, dataChunk(1, 2*n+4, 1, 3, 46, text)),
	}
	for _, f := range fragments4(udp4(t, text), 256) {
		binary.BigEndian.PutUint16(f[4:], uint16(n))
		packets = append(packets, f)
	}
	frames := [][]byte{framed(udp6(t, text), etherVLAN, etherIPv6)}
	for _, f := range fragments6(udp6(t, text), 256) {
		binary.BigEndian.PutUint32(f[44:], n)
		frames = append(frames, framed(f, etherIPv6))
	}
	for _, p := range packets {
		frames = append(frames, framed(p, etherIPv4))
	}
	return frames
}

// TestSteadyStateDoesNotAllocate checks reading, merging, walking and finding copies.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	le := binary.LittleEndian
	var frames [][]byte
	for n := range uint32(600) {
		frames = append(frames, mixture(t, n)...)
	}
	ng := join(section(le), description(le, Ethernet), description(le, SLL2))
	for i, f := range frames {
		at := start + int64(i)*int64(time.Millisecond)
		ng = append(ng, enhanced(le, 0, at, f)...)
		ng = append(ng, enhanced(le, 1, at, join(f[12:14], be16(0), be32(3), be16(1), []byte{0, 6}, make([]byte, 8), f[14:]))...)
	}
	for _, content := range [][]byte{pcapFile(le, true, Ethernet, frames...), ng} {
		f, err := newFile("x", bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r, finder := newReader([]*file{f}, Options{}), NewFinder(50*time.Millisecond, 1000)
		const packets = 1000
		several := func() {
			for range packets {
				p := r.Next()
				if p == nil {
					t.Fatal("the capture is too short")
				}
				finder.Find(p)
			}
		}
		several() // buffers grow
		if n := testing.AllocsPerRun(5, several); n > packets/1000 {
			t.Errorf("got %v allocations for %d packets", n, packets)
		}
	}
}

// BenchmarkReader reads a capture in memory.
func BenchmarkReader(b *testing.B) {
	le := binary.LittleEndian
	var frames [][]byte
	for n := range uint32(200) {
		frames = append(frames, mixture(b, n)...)
	}
	ng := join(section(le), description(le, Ethernet))
	for i, f := range frames {
		ng = append(ng, enhanced(le, 0, start+int64(i)*1000, f)...)
	}
	for name, content := range map[string][]byte{"pcap": pcapFile(le, true, Ethernet, frames...), "pcapng": ng} {
		for _, files := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/files=%d", name, files), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(content) / len(frames)))
				for n := 0; n < b.N; {
					var all []*file
					for range files {
						f, err := newFile("x", bytes.NewReader(content))
						if err != nil {
							b.Fatal(err)
						}
						all = append(all, f)
					}
					r := newReader(all, Options{})
					for p := r.Next(); p != nil && n < b.N; p = r.Next() {
						n++
					}
				}
			})
		}
	}
}

// BenchmarkWalker splits frames of each kind into packets.
func BenchmarkWalker(b *testing.B) {
	text := strings.Repeat("x", 500)
	kinds := map[string][]byte{
		"UDP":   framed(udp4(b, text), etherIPv4),
		"VXLAN": framed(vxlan(b, framed(udp6(b, text), etherIPv6)), etherIPv4),
		"SCTP":  framed(sctp4(b, dataChunk(3, 1, 1, 1, 46, text)), etherIPv4),
	}
	for name, frame := range kinds {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(frame)))
			w := NewWalker(Options{})
			for b.Loop() {
				w.Walk(Ethernet, 0, Where{}, frame)
				for w.Next() != nil {
				}
			}
		})
	}
}

// BenchmarkFinder finds copies: each packet is seen at two places.
func BenchmarkFinder(b *testing.B) {
	b.ReportAllocs()
	f := NewFinder(50*time.Millisecond, 1<<16)
	p := Packet{Payload: make([]byte, 500)}
	for n := range b.N {
		p.Time, p.Seq, p.Where.Interface = int64(n)*2000, uint32(n/2), uint16(n%2)
		f.Find(&p)
	}
}
