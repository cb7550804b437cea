package meter

import (
	"net/netip"
	"testing"
	"time"

	"vitrine/director/table"
)

// TestDrops checks that drops are counted by protocol and cause. They must count as failures unless
// they concern the transport. Only a few of them are samples.
func TestDrops(t *testing.T) {
	m := New(64, table.Transition)
	var samples []Sample
	m.OnDrop(func(s Sample) { samples = append(samples, s) })
	one, two := m.Worker(), m.Worker()
	one.Protocol, two.Protocol = "sip", "gtpc"
	peer := netip.MustParseAddrPort("192.0.2.1:5060")
	for i := range 1000 {
		now := time.Hour + time.Duration(i)*20*time.Millisecond // 20 seconds in all
		for _, c := range Causes() {
			one.Drop(now, NoType, c, peer)
		}
		two.Drop(now, NoType, Malformed, peer)
	}
	types := m.Types()
	failures := types[len(types)-1].Failures
	for _, c := range Causes() {
		if n := m.Drops("sip")[c.String()]; n != 1000 {
			t.Errorf("cause %s: got %d drops of SIP, want 1000", c, n)
		}
		want := uint64(1000)
		if c == Malformed {
			want = 2000
		}
		if n, has := failures[c.String()]; has == c.isTransport() || has && n != want {
			t.Errorf("%s: got %d failures, counted %v", c, n, has)
		}
	}
	if n := m.Drops("gtpc"); n["malformed"] != 1000 || n["looped"] != 0 {
		t.Errorf("drops of GTP-C: got %v", n)
	}
	if want := 2 * (int(causes) + 1); len(samples) != want {
		t.Fatalf("got %d samples, want %d", len(samples), want)
	}
	if s := samples[0]; s != (Sample{Protocol: "sip", Cause: NoInstance, Peer: peer, Total: 1}) {
		t.Errorf("%+v", s)
	}
	if s := samples[len(samples)-1]; s.Protocol != "gtpc" || s.Total != 501 {
		t.Errorf("%+v", s)
	}
}
