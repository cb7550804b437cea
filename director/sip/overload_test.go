package sip

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

func TestOverload(t *testing.T) {
	c := rulesConfig()
	gate := overload.New(overload.Config{Target: time.Second, Initial: 1, Min: 1, Burst: 1}, 0)
	c.Options = map[string]TypeOptions{"registration": {Gate: gate}}
	c.Feedback, c.Overload = true, overload.NewFeedback()
	s := newStage(t, c)
	text := strings.Replace(register, ";rport", ";rport;oc;oc-algo=\"loss,A\"", 1)
	r, _ := s.must(text, client, udp4)
	if !strings.Contains(r.text, `;oc;oc-algo="loss"`) {
		t.Errorf("the request does not ask for overload feedback:\n%s", r.text)
	}
	back, m := s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4)
	_, _, sequence := c.Overload.Values()
	if want := fmt.Sprintf(`SIP/2.0/UDP 192.0.2.7:5060;rport=5060;received=192.0.2.7;branch=z9hG4bKclient;oc=0;oc-algo="loss";oc-validity=1000;oc-seq=%d.0`, sequence); string(m.Via) != want {
		t.Errorf("got Via %s, want %s in\n%s", m.Via, want, back.text)
	}
	c.Overload.Tell(30)
	told := fmt.Sprintf(`;oc=30;oc-algo="loss";oc-validity=1000;oc-seq=%d.0`, sequence+1)
	r, m = s.status(500, strings.Replace(text, "reg1", "reg2", 1), client, udp4)
	if !strings.Contains(r.text, "\r\nRetry-After: 1\r\n") || !strings.HasSuffix(string(m.Via), told) {
		t.Errorf("%s", r.text)
	}
	r, _ = s.must(lines("INVITE sip:b@example.com SIP/2.0", "Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bKsession;oc"), client, udp4)
	if back, m = s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4); !strings.HasSuffix(string(m.Via), told) {
		t.Errorf("the feedback must be the same for all types, but a response has Via %s, want %s in\n%s", m.Via, told, back.text)
	}
	dialog := strings.Replace(register, "To: <sip:a@example.com>", "To: <sip:a@example.com>;tag=x", 1)
	s.status(500, dialog, client, udp4) // a To tag proves nothing, because any client can write one
	in := func(callID string) string {
		route := s.route('i', s.targetOf(s.epochs.View().Table.ByName("reg-2").Address.String()), callID)
		return strings.Replace(dialog, "\r\nMax-Forwards", "\r\nRoute: "+route+"\r\nMax-Forwards", 1)
	}
	s.status(500, in("another dialog's"), client, udp4)
	s.status(500, strings.Replace(in("reg1"), "To: <sip:a@example.com>;tag=x", "To: <sip:a@example.com>", 1), client, udp4)
	if r, m := s.must(in("reg1"), client, udp4); !m.IsRequest() || r.to != "10.0.0.2:5060" {
		t.Errorf("a request in a dialog was not forwarded to its instance:\n%s", r.text)
	}
	if s.failures(0, meter.Overloaded) != 4 {
		t.Error("the refusals were not counted as overload")
	}
}

// TestInstanceFeedback checks that the director refuses the share of requests that an instance asks
// for, as long as the feedback is valid. All messages of a transaction must be treated alike.
func TestInstanceFeedback(t *testing.T) {
	c := rulesConfig()
	c.Feedback = true
	s := newStage(t, c)
	refused := func() (n int) {
		for i := range 400 {
			text := lines("MESSAGE sip:b@example.com SIP/2.0", fmt.Sprintf("Call-ID: m%d", i))
			r, m := s.must(text, client, udp4)
			if again, _ := s.must(text, client, udp4); again != r {
				t.Errorf("a retransmission was forwarded as\n%s", again.text)
			}
			if m.Status == 500 {
				n++
			}
		}
		return n
	}
	r, m := s.must(lines("MESSAGE sip:b@example.com SIP/2.0"), client, udp4)
	tell := func(parameters, from string) {
		own := string(m.Via)
		answer := strings.Replace(respond(r.text, 200, ""), own, strings.Replace(own, `;oc;oc-algo="loss"`, parameters, 1), 1)
		if !strings.Contains(answer, parameters) {
			t.Fatalf("%s", answer)
		}
		s.must(answer, netip.MustParseAddrPort(from), udp6)
	}
	const six = "[2001:db8::5]:5060" // address of the instance
	for _, step := range []struct {
		parameters string
		low, high  int
	}{
		{`;oc=0;oc-algo="loss";oc-validity=1000;oc-seq=1.0`, 0, 0},
		{`;oc=50;oc-algo="loss";oc-validity=1000;oc-seq=2.5`, 140, 260},
		{`;oc=0;oc-algo="loss";oc-validity=1000;oc-seq=2.4`, 140, 260}, // an older sequence number
		{`;oc=101;oc-seq=3.0`, 140, 260},
		{`;oc=x;oc-seq=3.0`, 140, 260},
		{`;oc=100;oc-validity=1000;oc-seq=10.0`, 400, 400},
		{`;oc=20;oc-validity=0;oc-seq=11`, 0, 0}, // no longer valid
		{`;oc=100;oc-seq=12`, 400, 400},
	} {
		tell(step.parameters, six)
		if n := refused(); n < step.low || n > step.high {
			t.Errorf("%s: refused %d of 400 requests", step.parameters, n)
		}
	}
	s.now += 501 * time.Millisecond
	if n := refused(); n != 0 {
		t.Errorf("refused %d requests after the feedback expired, want 0", n)
	}
	tell(`;oc=100;oc-validity=1000;oc-seq=13`, "[2001:db8::66]:5060")
	if n := refused(); n != 0 {
		t.Errorf("refused %d requests after feedback from an unknown address, want 0", n)
	}
	tell(`;oc=100;oc-validity=16000000;oc-seq=14`, six)
	s.now += maxValidity - time.Millisecond
	if n := refused(); n != 400 {
		t.Errorf("refused %d of 400 requests, want all", n)
	}
	s.now += 2 * time.Millisecond
	if n := refused(); n != 0 {
		t.Errorf("refused %d requests after hours, want 0", n)
	}
	tell(`;oc=100;oc-seq=1`, six)
	if n := refused(); n != 0 {
		t.Errorf("refused %d requests after a lower sequence number, want 0", n)
	}
	s.now += 30 * time.Second
	tell(`;oc=100;oc-seq=1`, six) // the instance has restarted
	if n := refused(); n != 400 {
		t.Errorf("refused %d of 400 requests after a lower sequence number, which came much later; want all", n)
	}
	own := branch(m)
	at := len(sip.BranchCookie+mark) + 4 // the instance's ID
	other := own[:at] + "ffff" + own[at+4:]
	if got, ok := s.pass(strings.NewReplacer(own, other, ";oc;", ";oc=100;").Replace(respond(r.text, 200, "")), netip.MustParseAddrPort(six), udp6); ok {
		t.Errorf("feedback for another instance was forwarded: %s", got.text)
	}
	if of := *s.proxy.server.losses.of.Load(); len(of) != 1 {
		t.Errorf("%d instances ask for less load, want 1", len(of))
	}
}

// TestDraining checks that a transaction stays at a draining instance. A dialog must stay only if
// its type says so.
func TestDraining(t *testing.T) {
	for _, dialogs := range []bool{false, true} {
		c := rulesConfig()
		c.Options = map[string]TypeOptions{"session": {Dialogs: dialogs}}
		s := newStage(t, c)
		text := lines("INVITE sip:b@example.com SIP/2.0")
		r, m := s.must(text, client, udp4)
		routes := elements(m, sip.RecordRoute)
		old := s.targetOf(r.to)
		all := instances()
		for i := range all {
			if all[i].Name == old.Name {
				all[i].State = vitrine.Draining
			}
		}
		tb, err := table.New(2, typeNames, all)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.meter.Register(tb); err != nil {
			t.Fatal(err)
		}
		s.now += time.Second
		if wait := s.epochs.Publish(s.now, tb, nil); wait != 0 {
			t.Fatal(wait)
		}
		again, _ := s.must(text, client, udp4)
		s.same("a retransmission", again.to, r.to)
		cancel, _ := s.must(strings.NewReplacer("INVITE sip", "CANCEL sip", "7 INVITE", "7 CANCEL").Replace(text), client, udp4)
		s.same("CANCEL", cancel.to, r.to)
		route := "Route: " + routes[1] + "," + routes[0]
		ack, _ := s.must(lines("ACK sip:b@10.9.9.9 SIP/2.0", route, "To: <sip:b@example.com>;tag=2"), client, udp4)
		s.same("ACK", ack.to, r.to)
		s.now += table.Transition + time.Second
		later, _ := s.must(lines("INVITE sip:b@10.9.9.9 SIP/2.0", route, "To: <sip:b@example.com>;tag=2", "CSeq: 8 INVITE"), client, udp4)
		ack, _ = s.must(lines("ACK sip:b@10.9.9.9 SIP/2.0", route, "To: <sip:b@example.com>;tag=2", "CSeq: 8 ACK"), client, udp4)
		s.same("the ACK of a later INVITE", ack.to, later.to)
		bye, _ := s.must(lines("BYE sip:b@10.9.9.9 SIP/2.0", route, "To: <sip:b@example.com>;tag=2", "CSeq: 9 BYE"), client, udp4)
		if (bye.to == r.to) != dialogs {
			t.Errorf("drain by dialog %v: the BYE went to %s, its INVITE to %s", dialogs, bye.to, r.to)
		}
	}
}

// TestRingingIsNoLatency checks that the latency of an INVITE ends with its first response other than
// 100, and that ringing beyond a transition is no failure. An INVITE that rings is in flight, so a drain
// waits for it.
func TestRingingIsNoLatency(t *testing.T) {
	for _, c := range []struct {
		name    string
		first   int           // status of the first responses, after 10 ms; 0: there are none
		rings   time.Duration // time from the INVITE to 200
		outcome string
		timed   uint64
	}{
		{"ringing", 180, 5 * time.Second, "succeeded", 1},
		{"100 alone beyond a transition", 100, table.Transition + 5*time.Second, "unanswered", 0},
		{"ringing beyond a transition", 180, table.Transition + 5*time.Second, "proceeding", 1},
		{"no response within a transition", 0, table.Transition + 5*time.Second, "unanswered", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newCall(newStage(t, rulesConfig()))
			sent := s.now
			s.now = sent + 10*time.Millisecond
			if c.first != 0 {
				s.answer(s.sent, c.first)
				s.answer(s.sent, c.first)
			}
			s.now = sent + 4*time.Second
			s.meter.Expire(s.now)
			if n := s.counted(s.target.Name); n.InFlight != 1 || n.Proceeding != c.timed {
				t.Errorf("before the final answer: %+v", n)
			}
			s.now = sent + c.rings
			s.meter.Expire(s.now)
			s.answer(s.sent, 200)
			n := s.counted(s.target.Name)
			if n.InFlight != 0 || n.Proceeding != 0 || n.Begun != 1 || n.Ended[c.outcome] != 1 {
				t.Errorf("after the final answer: %+v, want the outcome %s", n, c.outcome)
			}
			if p99 := n.Latencies.Quantile(0.99); n.Latencies.Count() != c.timed || p99 > 50*time.Millisecond {
				t.Errorf("got %d latencies up to %s, want %d below 50ms", n.Latencies.Count(), p99, c.timed)
			}
		})
	}
}

// TestRingingIsNoOverload checks that long ringing does not close the gate. Slow answers to other
// requests must close it, and so must slow first responses if the type counts them.
func TestRingingIsNoOverload(t *testing.T) {
	for _, c := range []struct {
		name        string
		provisional bool
		first, bye  time.Duration // time from the INVITE and from the BYE
		closes      bool
	}{
		{"ringing", false, 0, 0, false},
		{"ringing, first responses count", true, 0, 0, false},
		{"slow BYEs", false, 0, time.Second, true},
		{"slow first responses", false, time.Second, 0, false},
		{"slow first responses count", true, time.Second, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := rulesConfig()
			gate := overload.New(overload.Config{Target: 100 * time.Millisecond, Initial: 40, Min: 2, Burst: 4}, 0)
			rules.Options = map[string]TypeOptions{"session": {Gate: gate, Provisional: c.provisional}}
			s := newStage(t, rules)
			started := s.now
			type event struct {
				at   time.Duration
				text string
			}
			var events []event
			refused := 0
			for i := range 1200 { // 20 calls/s for a minute
				s.now = started + time.Duration(i)*50*time.Millisecond
				for len(events) > 0 && events[0].at <= s.now {
					s.must(events[0].text, netip.MustParseAddrPort("10.0.1.1:5060"), udp4)
					events = events[1:]
				}
				id := fmt.Sprintf("Call-ID: ring%d", i)
				r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0", id), client, udp4)
				if m.Status == 500 {
					refused++
					continue
				}
				route := elements(m, sip.RecordRoute)[1]
				bye, _ := s.must(lines("BYE sip:b@example.com SIP/2.0", id, "CSeq: 8 BYE", "To: <sip:b@example.com>;tag=x", "Route: "+route), client, udp4)
				events = append(events, event{s.now + c.first, respond(r.text, 180, "")},
					event{s.now + c.bye, respond(bye.text, 200, "")}, event{s.now + 8*time.Second, respond(r.text, 200, "")})
				slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
				got := s.meter.Samples()["session"]
				gate.Adjust(s.now, overload.Totals{Answered: got.Count, Latency: got.Total, TimedOut: got.Timeouts})
				s.meter.Expire(s.now)
			}
			if closed := gate.Read().Rate < 10; closed != c.closes || (refused > 0) != c.closes {
				t.Errorf("refused %d of 1200 calls at rate %g", refused, gate.Read().Rate)
			}
		})
	}
}
