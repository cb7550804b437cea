package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A frame is a record of a pcap file.
type frame struct {
	at   int64 // nanoseconds since 1970
	wire uint32
	data []byte
}

// The sizes of a pcap file's header and of a record's.
const (
	fileHeader   = 24
	recordHeader = 16
)

// readFrames reads a pcap file of this host's byte order, with nanoseconds, as tcpdump
// writes it.
func readFrames(t testing.TB, name string) (header []byte, frames []frame) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) < fileHeader || binary.NativeEndian.Uint32(data) != 0xa1b23c4d {
		t.Fatalf("%s is not a capture with nanosecond timestamps", name)
	}
	header, data = data[:fileHeader], data[fileHeader:]
	for len(data) >= recordHeader {
		n := int(binary.NativeEndian.Uint32(data[8:]))
		frames = append(frames, frame{
			at:   int64(binary.NativeEndian.Uint32(data))*int64(time.Second) + int64(binary.NativeEndian.Uint32(data[4:])),
			wire: binary.NativeEndian.Uint32(data[12:]), data: data[recordHeader : recordHeader+n],
		})
		data = data[recordHeader+n:]
	}
	return header, frames
}

// writeFrames writes a pcap file and returns its name.
func writeFrames(t testing.TB, name string, header []byte, frames []frame) string {
	t.Helper()
	out := append([]byte(nil), header...)
	for _, f := range frames {
		out = binary.NativeEndian.AppendUint32(out, uint32(f.at/int64(time.Second)))
		out = binary.NativeEndian.AppendUint32(out, uint32(f.at%int64(time.Second)))
		out = binary.NativeEndian.AppendUint32(out, uint32(len(f.data)))
		out = binary.NativeEndian.AppendUint32(out, f.wire)
		out = append(out, f.data...)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, out, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// without drops a share of the packets.
func without(frames []frame, share float64, seed uint64) (out []frame) {
	random := rand.New(rand.NewPCG(seed, 1))
	for _, f := range frames {
		if random.Float64() >= share {
			out = append(out, f)
		}
	}
	return out
}

// twice duplicates a share of the packets, 1 us later.
func twice(frames []frame, share float64, seed uint64) (out []frame) {
	random := rand.New(rand.NewPCG(seed, 2))
	for _, f := range frames {
		out = append(out, f)
		if random.Float64() < share {
			f.at += int64(time.Microsecond)
			out = append(out, f)
		}
	}
	return out
}

// seenBy returns the packets from or to an address as a host at that address captures them,
// with a clock that is ahead.
func seenBy(header []byte, frames []frame, addr [4]byte, ahead time.Duration) (out []frame) {
	const src, dst = 12, 16 // offsets in IPv4
	ip := ipOffset(header)
	for _, f := range frames {
		if len(f.data) < ip+20 || [4]byte(f.data[ip+src:]) != addr && [4]byte(f.data[ip+dst:]) != addr {
			continue
		}
		f.at += int64(ahead + 50*time.Microsecond)
		out = append(out, f)
	}
	return out
}

// ipOffset returns where IPv4 begins in the frames of a capture.
func ipOffset(header []byte) int {
	const linux = 276 // LINKTYPE_LINUX_SLL2
	if binary.NativeEndian.Uint32(header[20:]) == linux {
		return 20
	}
	return 14 // Ethernet
}
