package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/wire/wiretest"
)

// last returns the last of the values that tshark shows for a field: that of the
// innermost layer.
func last(field string) string { return field[strings.LastIndexByte(field, ',')+1:] }

// fileOf returns the name of a capture with some frames.
func fileOf(t *testing.T, link LinkType, frames ...[]byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "frames.pcap")
	if err := os.WriteFile(name, pcapFile(binary.LittleEndian, true, link, frames...), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestTsharkFindsTheSamePayload compares the innermost datagram of each encapsulation
// with what tshark finds. Two frames are left out: tshark calls a UDP length of zero
// an error, and takes any datagram to port 4789 for VXLAN.
func TestTsharkFindsTheSamePayload(t *testing.T) {
	byLink := map[LinkType][]encapsulation{}
	for _, e := range encapsulations(t) {
		if e.name != "UDP length 0" && e.name != "VXLAN without the valid flag" {
			byLink[e.link] = append(byLink[e.link], e)
		}
	}
	for link, all := range byLink {
		t.Run(link.String(), func(t *testing.T) {
			var frames [][]byte
			for _, e := range all {
				frames = append(frames, e.frame)
			}
			rows := wiretest.File(t, fileOf(t, link, frames...), "udp", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "udp.srcport", "udp.dstport", "udp.payload", "frame.protocols")
			if len(rows) != len(all) {
				t.Fatalf("tshark found %d of %d datagrams", len(rows), len(all))
			}
			for i, row := range rows {
				src, dst := last(row[0]), last(row[1])
				if protocols := ":" + row[7]; strings.LastIndex(protocols, ":ipv6:") > strings.LastIndex(protocols, ":ip:") {
					src, dst = last(row[2]), last(row[3])
				}
				ends := []netip.AddrPort{netip.MustParseAddrPort(join6(src, last(row[4]))), netip.MustParseAddrPort(join6(dst, last(row[5])))}
				got := fmt.Sprintf("UDP %v>%v %q", ends[0], ends[1], wiretest.Octets(t, last(row[6])))
				if got != all[i].want {
					t.Errorf("%s: tshark has %s, want %s", all[i].name, got, all[i].want)
				}
			}
		})
	}
}

// join6 returns an address and a port as netip writes them.
func join6(address, port string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]:" + port
	}
	return address + ":" + port
}

// TestTsharkReassemblesTheSameFragments compares datagrams made of fragments, and the
// fields of SCTP messages in one packet.
func TestTsharkReassemblesTheSameFragments(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20)
	frames := slices.Concat(fragments4(udp4(t, text), 64), fragments6(udp6(t, text), 64))
	slices.Reverse(frames)
	rows := wiretest.File(t, fileOf(t, Raw, frames...), "udp", "udp.payload")
	var got []string
	for _, row := range rows {
		got = append(got, string(wiretest.Octets(t, row[0])))
	}
	if !slices.Equal(got, []string{text, text}) {
		t.Errorf("tshark found %q", got)
	}
	sctp := sctp4(t, dataChunk(3, 10, 1, 0, 99, "one"), []byte{4, 0, 0, 8, 0, 1, 0, 4}, dataChunk(7, 11, 2, 0, 98, "three"))
	row := wiretest.File(t, fileOf(t, Raw, sctp), "sctp", "sctp.data_payload_proto_id", "sctp.data_sid", "sctp.data_tsn_raw")[0]
	w := NewWalker(Options{})
	w.Walk(Raw, 0, Where{}, sctp)
	ours := make([][]string, 3)
	for p := w.Next(); p != nil; p = w.Next() {
		for i, s := range []string{fmt.Sprint(p.PPID), fmt.Sprintf("0x%04x", p.Stream), fmt.Sprint(p.TSN)} {
			ours[i] = append(ours[i], s)
		}
	}
	for i := range row {
		if s := strings.Join(ours[i], ","); s != row[i] {
			t.Errorf("got %s, tshark has %s", s, row[i])
		}
	}
}
