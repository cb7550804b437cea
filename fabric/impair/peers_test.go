package impair

import (
	"net/netip"
	"testing"
)

// TestImpairAddresses checks which address of a frame belongs to the peer.
func TestImpairAddresses(t *testing.T) {
	frame := func(kind []byte, packet ...byte) []byte {
		return append(append(make([]byte, macSize), kind...), packet...)
	}
	v4 := make([]byte, 20)
	copy(v4[12:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
	v6 := make([]byte, 40)
	v6[8], v6[23], v6[24], v6[39] = 0xfd, 1, 0xfd, 2
	for name, c := range map[string]struct {
		frame    []byte
		from, to string // empty: none
	}{
		"IPv4":       {frame([]byte{8, 0}, v4...), "192.0.2.1", "192.0.2.2"},
		"IPv6":       {frame([]byte{0x86, 0xdd}, v6...), "fd00::1", "fd00::2"},
		"VLAN":       {frame([]byte{0x81, 0, 0, 5, 8, 0}, v4...), "192.0.2.1", "192.0.2.2"},
		"two VLANs":  {frame([]byte{0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x86, 0xdd}, v6...), "fd00::1", "fd00::2"},
		"ARP":        {frame([]byte{8, 6}, v4...), "", ""},
		"cut":        {frame([]byte{8, 0}, v4[:19]...), "", ""},
		"cut IPv6":   {frame([]byte{0x86, 0xdd}, v6[:39]...), "", ""},
		"cut in tag": {frame([]byte{0x81, 0, 0}), "", ""},
		"empty":      {nil, "", ""},
	} {
		for way, want := range map[string]string{In: c.from, Out: c.to} {
			got, ok := addressIn(c.frame, way)
			if ok != (want != "") || ok && got != netip.MustParseAddr(want) {
				t.Errorf("%s, %s: got %s, %t, want %q", name, way, got, ok, want)
			}
		}
	}
	p := peersOf([]netip.Addr{netip.MustParseAddr("::ffff:192.0.2.1")})
	packet := frame([]byte{8, 0}, v4...)
	if !p.impairs(packet, In) || p.impairs(packet, Out) || !peers(nil).impairs(packet, Out) {
		t.Error("a packet was assigned to the wrong peer or direction")
	}
	if n := testing.AllocsPerRun(100, func() { p.impairs(packet, In) }); n > 0 {
		t.Errorf("%g allocations per frame", n)
	}
}
