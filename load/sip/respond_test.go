package sip

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"vitrine/load"
	"vitrine/wire/sip"
)

// TestFailuresAreAcknowledgedAgain repeats each failure of an INVITE, as a function does whose ACK was
// lost. When the second copy arrives, the call has sent the INVITE with credentials, or has ended.
func TestFailuresAreAcknowledgedAgain(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 100, Duration: 100, Params: map[string]string{"scenario": RegInvite}})
	var invites [2]struct { // of the present call: without and with credentials
		uri, via []byte
		sequence uint32
		acks     int // of all calls
	}
	answer := func(m *sip.Message, source netip.AddrPort) {
		switch string(m.Method) {
		case "REGISTER":
			b.challengeFirst(m, source)
		case "INVITE":
			i, status, more := &invites[0], 401, challengeLine
			if m.Authorization != nil {
				i, status, more = &invites[1], 486, ""
			}
			i.uri, i.via, i.sequence = append(i.uri[:0], m.URI...), append(i.via[:0], m.Via...), m.Sequence
			for range 2 {
				b.reply(m, source, status, more)
			}
		case "ACK":
			tag, _ := sip.Param(m.To, "tag")
			for n := range invites {
				i := &invites[n]
				if bytes.Equal(m.URI, i.uri) && bytes.Equal(m.Via, i.via) && m.Sequence == i.sequence && bytes.Equal(tag, tagOfPeer) {
					i.acks++
				}
			}
		}
	}
	calls := 0
	play := func() {
		b.at(time.Duration(calls) * 10 * time.Millisecond)
		calls++
		for range 7 { // two REGISTERs of each party, two INVITEs, and the last ACKs
			b.requests(answer)
		}
	}
	play()
	if allocs := testing.AllocsPerRun(200, play); allocs != 0 {
		t.Errorf("%v allocations a call", allocs)
	}
	for n, i := range invites {
		if i.acks != 2*calls {
			t.Errorf("INVITE %d of %d calls: got %d ACKs, want 2 of each call", n+1, calls, i.acks)
		}
	}
	if r := b.report(); r.Failed["486"] != int64(calls) || b.stray != 0 {
		t.Errorf("failed %v, %d stray messages, want %d times 486 and none", r.Failed, b.stray, calls)
	}
}

// TestEndlessDatagramsLeaveTimeForOtherWork sends a batch of datagrams for each batch that the engine
// receives.
func TestEndlessDatagramsLeaveTimeForOtherWork(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 1, Duration: 1})
	send := func() {
		for range batch {
			b.peer.push(append(b.peer.next(), 'x'), b.targets[0].local, owner{})
		}
		b.peer.flush(func(_ owner, err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	received := 0 // batches
	b.clock = func() time.Duration {
		if received++; received <= maxBatches { // else a receive without a bound would not end
			send()
		}
		return 0
	}
	send()
	b.receive(b.targets[0])
	if received != maxBatches {
		t.Errorf("received %d batches in one turn, want %d", received, maxBatches)
	}
}

// TestACKOvertakesTheAnswer plays a back-to-back user agent. It acknowledges the callee's 200 itself,
// before it sends the 200 to the caller.
func TestACKOvertakesTheAnswer(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 1, Duration: 1, Params: map[string]string{"scenario": RegInvite}})
	b.at(0)
	for range 4 {
		b.requests(b.challengeFirst)
	}
	callee := netip.AddrPortFrom(b.targets[0].local.Addr(), b.back.local.Port())
	send := func(method string) {
		b.peer.push(fmt.Appendf(b.peer.next(), "%s sip:v%d@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %v;branch=z9hG4bK-%s\r\n"+
			"From: <sip:a@ims.test>;tag=1\r\nTo: <sip:b@ims.test>\r\nCall-ID: another\r\nCSeq: 1 %s\r\n\r\n",
			method, b.params.FirstUser+b.pairs, b.peer.local, method, method), callee, owner{})
	}
	var answer []byte // to the caller
	b.requests(func(m *sip.Message, source netip.AddrPort) {
		answer = sip.AppendEnd(sip.AppendResponse(nil, m, 200, "OK", tagOfPeer, source), nil)
		send("INVITE")
		send("ACK")
	})
	if n := b.requests(func(m *sip.Message, _ netip.AddrPort) {
		if m.Status == 200 {
			b.peer.push(append(b.peer.next(), answer...), b.targets[0].local, owner{})
		}
	}); n != 2 {
		t.Errorf("got %d answers of the callee, want 180 and 200", n)
	}
	b.requests(func(m *sip.Message, source netip.AddrPort) { // ACK and BYE
		if string(m.Method) == "BYE" {
			b.reply(m, source, 200, "")
		}
	})
	if r := b.report(); r.Succeeded != 1 {
		t.Errorf("%d calls are open, failed %v; want a success", b.window, r.Failed)
	}
}
