package stream_test

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
	"vitrine/wire/wiretest"
)

// shared returns the paths of the shared captures.
func shared(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("../../../shared/captures/*.pcap*")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Skip("no shared captures here")
	}
	return names
}

// TestPayloadsAreThoseOfTshark compares each transport payload of the shared captures
// with what tshark reads. The packets that ICMP errors quote are not messages, so the
// filter leaves them out. So are frames that the capture cut off: none of these
// captures has any.
func TestPayloadsAreThoseOfTshark(t *testing.T) {
	for _, name := range shared(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var want, got []string
			for _, row := range wiretest.Capture(t, filepath.Base(name), "(udp || tcp || sctp) && !icmp && !icmpv6",
				"ip.src", "ipv6.src", "udp.srcport", "tcp.srcport", "udp.payload", "tcp.payload", "tcp.seq_raw") {
				source := netip.MustParseAddr(row[0] + row[1])
				kind := "UDP"
				if row[3] != "" {
					kind = "TCP"
				}
				want = append(want, strings.Join([]string{kind, source.String(), row[2] + row[3], string(wiretest.Octets(t, row[4]+row[5])), row[6]}, "|"))
			}
			r, err := capture.Open([]string{name}, capture.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for p := r.Next(); p != nil; p = r.Next() {
				seq := ""
				if p.Transport == capture.TCP {
					seq = strconv.FormatUint(uint64(p.Seq), 10)
				}
				got = append(got, strings.Join([]string{p.Transport.String(), p.Src.Addr().String(), strconv.Itoa(int(p.Src.Port())), string(p.Payload), seq}, "|"))
			}
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if len(got) != len(want) {
				t.Fatalf("got %d messages, tshark has %d: %+v", len(got), len(want), r.Counts())
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("message %d: got %.200q, tshark has %.200q", i, got[i], want[i])
				}
			}
			t.Logf("%d messages: %+v", len(got), *r.Counts())
		})
	}
}

// A follower keeps the bytes of each direction up to its first gap.
type follower struct {
	streams []*followed
}

type followed struct {
	from   string
	octets []byte
	whole  bool
}

func (f *follower) of(h *stream.Half) *followed {
	if h.State == nil {
		s := &followed{from: h.Src.String(), whole: true}
		f.streams, h.State = append(f.streams, s), s
	}
	return h.State.(*followed)
}

func (f *follower) Data(h *stream.Half, _ int64, b []byte) {
	if s := f.of(h); s.whole {
		s.octets = append(s.octets, b...)
	}
}

func (f *follower) Gap(h *stream.Half, _ int64, _ int) { f.of(h).whole = false }
func (f *follower) End(*stream.Half, stream.Reason)    {}

// TestStreamsAreThoseOfTshark compares the bytes of each direction of the TCP
// connections of the shared captures, up to the first gap, with what tshark reads.
func TestStreamsAreThoseOfTshark(t *testing.T) {
	for _, name := range shared(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			r, err := capture.Open([]string{name}, capture.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			f := &follower{}
			a := stream.NewAssembler(f, stream.Options{})
			for p := r.Next(); p != nil; p = r.Next() {
				if p.Transport == capture.TCP {
					a.Add(p)
				}
			}
			a.Flush()
			if r.Counts().TCP == 0 {
				return
			}
			want := wiretest.Streams(t, filepath.Base(name))
			got := f.streams
			for _, w := range want {
				found := false
				for i, g := range got {
					if g != nil && g.from == w.From && bytes.Equal(g.octets, w.Octets) && g.whole == w.Whole {
						got[i], found = nil, true
						break
					}
				}
				if !found {
					t.Errorf("connection %s from %s: no stream has the %d bytes that tshark has, whole %v", w.Connection, w.From, len(w.Octets), w.Whole)
				}
			}
			for _, g := range got {
				if g != nil && len(g.octets) > 0 {
					t.Errorf("from %s: got %d bytes that tshark does not have, whole %v", g.from, len(g.octets), g.whole)
				}
			}
			t.Logf("%d directions: %+v", len(want), *a.Counts())
		})
	}
}
