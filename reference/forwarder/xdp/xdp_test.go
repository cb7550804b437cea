package xdp

import (
	"encoding/binary"
	"testing"

	"vitrine/internal/bpftest"
	"vitrine/internal/hosttest"
)

func load(t testing.TB) *Forwarder {
	t.Helper()
	f := &Forwarder{}
	err := unsupported(f.load(Config{In: 1, Out: 1, Own: [6]byte{2, 0, 0, 0, 0, 1}, Source: [6]byte{2, 0, 0, 0, 0, 2}, Next: [6]byte{2, 0, 0, 0, 0, 3}}))
	hosttest.Need(t, err)
	hosttest.AtEnd(t, f.Close)
	return f
}

func packet(size int, kinds ...uint16) []byte {
	p := make([]byte, max(size, 14+4*len(kinds)))
	copy(p, []byte{2, 0, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9})
	for i, kind := range kinds {
		binary.BigEndian.PutUint16(p[12+4*i:], kind)
	}
	return p[:size]
}

// TestProgramClassifies has the cases of the forwarder's TestClassify, which tests frame.go.
// The two must classify alike.
func TestProgramClassifies(t *testing.T) {
	f := load(t)
	const pass, redirect = 2, 4
	other := packet(60, 0x0800)
	other[5]++
	for _, tt := range []struct {
		name  string
		frame []byte
		want  uint32
		count func(Counters) uint64
	}{
		{"IPv4", packet(60, 0x0800), redirect, func(c Counters) uint64 { return c.Forwarded }},
		{"IPv6", packet(60, 0x86dd), redirect, func(c Counters) uint64 { return c.Forwarded }},
		{"tagged", packet(60, 0x8100, 0x0800), redirect, func(c Counters) uint64 { return c.Forwarded }},
		{"tagged twice", packet(60, 0x88a8, 0x8100, 0x86dd), redirect, func(c Counters) uint64 { return c.Forwarded }},
		{"tagged thrice", packet(60, 0x88a8, 0x8100, 0x8100, 0x0800), pass, func(c Counters) uint64 { return c.NotIP }},
		{"ARP", packet(60, 0x0806), pass, func(c Counters) uint64 { return c.NotIP }},
		{"cut in its tag", packet(16, 0x8100), pass, func(c Counters) uint64 { return c.Short }},
		{"headers alone", packet(14, 0x0800), redirect, func(c Counters) uint64 { return c.Forwarded }},
		{"for another", other, pass, func(c Counters) uint64 { return c.NotOurs }},
	} {
		before, err := f.Counters()
		if err != nil {
			t.Fatal(err)
		}
		got, out, err := f.objects.Forward.Test(tt.frame)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		after, err := f.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if got != tt.want || tt.count(after) != tt.count(before)+1 {
			t.Errorf("%s: action %d, want %d; counted %+v, then %+v", tt.name, got, tt.want, before, after)
		}
		if got == redirect && (out[5] != 3 || out[11] != 2 || string(out[12:]) != string(tt.frame[12:])) {
			t.Errorf("%s: became %x", tt.name, out)
		}
	}
}

// TestObjectIsOfTheSource checks that the object was compiled again after the C file changed.
func TestObjectIsOfTheSource(t *testing.T) {
	object, err := loadProgram()
	if err != nil {
		t.Fatal(err)
	}
	bpftest.CompiledFrom(t, object, "forwarder.bpf.c")
}

func BenchmarkProgram(b *testing.B) {
	f := load(b)
	b.ResetTimer()
	if _, _, err := f.objects.Forward.Benchmark(packet(64, 0x0800), b.N, b.ResetTimer); err != nil {
		b.Fatal(err)
	}
}
