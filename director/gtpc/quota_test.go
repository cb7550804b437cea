package gtpc_test

import (
	"fmt"
	"net/netip"
	"testing"

	director "vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/wire/gtpc"
)

// TestQuota checks that a peer over its quota loses only the requests that begin something.
// Instances and other peers lose nothing.
func TestQuota(t *testing.T) {
	b := newBench(t, 1, 1<<12)
	policy, err := director.NewPolicy([]string{"gateway"}, []director.TypeOption{{Type: "gateway", Number: 1}}, []director.Rule{{Type: "gateway"}})
	if err != nil {
		t.Fatal(err)
	}
	policy.Quota = overload.NewQuota(overload.QuotaConfig{Rate: 1. / 3600, Burst: 2, Sources: 64})
	b.d.SetPolicy(policy)
	peer, other := netip.MustParseAddrPort("127.0.0.9:2123"), netip.MustParseAddrPort("127.0.0.10:2123")
	sequence := uint32(0)
	attach := func(from netip.AddrPort) {
		sequence++
		b.handle(createSession(fmt.Sprintf("0010100000%05d", sequence), sequence, from, 1000+sequence), from)
	}
	expect := func(what string, forwarded, over uint64) {
		t.Helper()
		b.sender.Flush()
		if n := b.counters(t); n.Forwarded != forwarded || n.OverQuota != over {
			t.Errorf("%s: %d forwarded, %d over the quota, want %d and %d", what, n.Forwarded, n.OverQuota, forwarded, over)
		}
	}
	for range 5 {
		attach(peer)
	}
	expect("a peer", 2, 3)
	attach(other)
	expect("another peer", 3, 3)
	for range 5 {
		attach(b.of.Instance(0).Address)
	}
	expect("an instance", 8, 3)
	b.handle(gtpc.AppendEchoRequest(nil, 1, 1), peer)
	if n := b.counters(t); n.Echoes != 1 {
		t.Errorf("answered %d Echo Requests, want 1", n.Echoes)
	}
	b.handle(plain(gtpc.DeleteBearerCommand, 7, 5|gtpc.CommandSequence), peer)
	b.handle(plain(gtpc.UpdateBearerRequest, 7, 6|gtpc.CommandSequence), peer) // of no known command
	expect("commands", 8, 5)
	if n := b.meter.Drops("gtpc")["over_quota"]; n != 5 {
		t.Errorf("counted %d drops, want 5", n)
	}
	message, room := createSession("001010000000001", 1, peer, 1000), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(500, func() { b.handle(append(room, message...), peer) }); n != 0 {
		t.Errorf("%v allocations for a message over the quota", n)
	}
}

// TestOverloadedCommandIsDropped checks that a command that the gate refuses is dropped and
// counted, because no answer to it exists.
func TestOverloadedCommandIsDropped(t *testing.T) {
	b := newBench(t, 1, 1<<12)
	gate := overload.New(overload.Config{Initial: 1e-3, Min: 1e-3, Burst: 1}, 0)
	gate.Admit(b.now, overload.Begins)
	policy, err := director.NewPolicy([]string{"gateway"}, []director.TypeOption{{Type: "gateway", Number: 1, Gate: gate}}, []director.Rule{{Type: "gateway"}})
	if err != nil {
		t.Fatal(err)
	}
	b.d.SetPolicy(policy)
	peer := netip.MustParseAddrPort("127.0.0.9:2123")
	b.handle(plain(gtpc.DeleteBearerCommand, 7, 5|gtpc.CommandSequence), peer)
	b.handle(createSession("001010000000001", 1, peer, 1000), peer) // answered
	if n := b.meter.Drops("gtpc")[meter.Overloaded.String()]; n != 1 {
		t.Errorf("counted %d drops by overload, want 1", n)
	}
	if n := b.meter.Types()[0].Failures[meter.Overloaded.String()]; n != 2 {
		t.Errorf("counted %d refusals by overload, want 2", n)
	}
}
