package forwarder

import (
	"bytes"
	"testing"
)

// TestClassify has the cases of xdp's TestProgramClassifies, which tests the program in the
// kernel. The two must classify alike.
func TestClassify(t *testing.T) {
	a := addresses{own: [6]byte{2, 0, 0, 0, 0, 1}}
	packet := func(size int, kinds ...byte) []byte {
		p := make([]byte, max(size, 12+len(kinds)))
		copy(p, a.own[:])
		for i := 0; i < len(kinds); i += 2 { // all kinds but the last are those of VLAN tags
			copy(p[12+2*i:], kinds[i:i+2])
		}
		return p[:size]
	}
	other := packet(60, 0x08, 0x00)
	other[5]++
	for name, tt := range map[string]struct {
		frame []byte
		want  verdict
	}{
		"IPv4":            {packet(60, 0x08, 0x00), forwarded},
		"IPv6":            {packet(60, 0x86, 0xdd), forwarded},
		"tagged":          {packet(60, 0x81, 0x00, 0x08, 0x00), forwarded},
		"tagged twice":    {packet(60, 0x88, 0xa8, 0x81, 0x00, 0x86, 0xdd), forwarded},
		"tagged thrice":   {packet(60, 0x88, 0xa8, 0x81, 0x00, 0x81, 0x00, 0x08, 0x00), notIP},
		"ARP":             {packet(60, 0x08, 0x06), notIP},
		"cut in its tag":  {packet(16, 0x81, 0x00), short},
		"headers alone":   {packet(14, 0x08, 0x00), forwarded},
		"cut in its type": {packet(13, 0x08, 0x00), short},
		"for another":     {other, notOurs},
	} {
		if got := a.classify(tt.frame); got != tt.want {
			t.Errorf("%s: got verdict %d, want %d", name, got, tt.want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	a := addresses{own: [6]byte{2, 0, 0, 0, 0, 1}, source: [6]byte{2, 0, 0, 0, 0, 2}, next: [6]byte{2, 0, 0, 0, 0, 3}}
	ip := frame(a.own, a.next, 60, 1)
	f.Add(ip)
	f.Add(ip[:13])
	f.Add(append(append(append([]byte(nil), ip[:12]...), 0x81, 0, 0, 1), ip[12:]...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		v := a.classify(data)
		if v >= verdicts {
			t.Fatalf("got the unknown verdict %d", v)
		}
		if len(data) < headerSize && v != short || v == forwarded && !bytes.HasPrefix(data, a.own[:]) {
			t.Fatalf("got verdict %d for %x", v, data)
		}
		if v != forwarded {
			return
		}
		rest := bytes.Clone(data[12:])
		a.rewrite(data)
		if !bytes.Equal(data[:6], a.next[:]) || !bytes.Equal(data[6:12], a.source[:]) || !bytes.Equal(data[12:], rest) {
			t.Fatalf("the frame was rewritten to %x", data)
		}
	})
}
