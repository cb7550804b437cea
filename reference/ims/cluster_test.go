package ims_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/reference/ims"
)

func TestSproutsShareChallengesAndRegistrations(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testSproutsShareChallengesAndRegistrations)
}

func testSproutsShareChallengesAndRegistrations(t *testing.T, s site) {
	s.homesteads(2)
	s.sprouts(2, 2, "--peer-timeout", "10s")
	// Each Bono has only one Sprout, so the test chooses the serving Sprout.
	first, second := s.bono(1, s.at(11, 5060)), s.bono(2, s.at(12, 5060))

	for n := range 8 { // enough for keys on both Sprouts
		p := s.phone(41+n, 20+n, first)
		p.want(p.register(60), 401)
		p.bono = netip.MustParseAddrPort(second)
		p.want(p.register(60), 200)
		p.bono = netip.MustParseAddrPort(first)
		p.want(p.register(60), 200)
	}
	caller, callee := s.phone(61, 40, first), s.phone(62, 41, second)
	caller.signIn(60)
	callee.signIn(60)
	talk(t, caller, callee, callee)

	if s.store != "" {
		return // no Sprout has a copy
	}
	for i := range 2 {
		if got := s.metric(11+i, "replica_copies_total"); got == 0 {
			t.Errorf("no copy of sprout %d was acknowledged", i+1)
		}
		if got := s.metric(11+i, "replica_missed_total"); got != 0 {
			t.Errorf("sprout %d missed %g copies, want 0", i+1, got)
		}
		if got := s.metric(21+i, "replica_writes_total"); got == 0 {
			t.Errorf("homestead %d wrote nothing, so the load is not shared", i+1)
		}
	}
	if got, other := s.metric(11, "sprout_records"), s.metric(12, "sprout_records"); got != other || got == 0 {
		t.Errorf("got %g and %g records, want the same number on both", got, other)
	}
}

func TestRegistrationsSurviveAKilledSprout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.homesteads(1)
	start(t, "sprout", s.sprout(0, 3, 1)...)
	start(t, "sprout", s.sprout(1, 3, 1)...)
	victim := spawn(t, "sprout", s.sprout(2, 3, 1)...)
	s.whole(11, 3)
	viaVictim, viaOther := s.bono(1, s.at(13, 5060)), s.bono(2, s.list(11, 3, 5060), "--aside-after", "1", "--timeout", "1s")
	var phones []*phone
	for n := range 12 { // with two copies each, several lose one
		p := s.phone(41+n, 50+n, viaVictim)
		p.signIn(60)
		phones = append(phones, p)
	}
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others notice", func() bool {
		return s.metric(11, "sprout_living") == 2 && s.metric(12, "sprout_living") == 2
	})
	caller := s.phone(81, 70, viaOther)
	eventually(t, "the Sprout that was killed is set aside", func() bool {
		caller.auth = nil
		return caller.register(60).StatusCode == sip.StatusUnauthorized && s.metric(2, "bono_set_aside_total") > 0
	})
	caller.want(caller.register(60), 200)
	for _, p := range phones {
		call := caller.call(p.user, "survivor-"+p.user)
		invite := p.expect("INVITE")
		p.reply(invite, 200, "OK")
		caller.want(call.final(), 200)
	}

	// The restarted Sprout is empty and receives its share of the records.
	before := s.metric(11, "replica_resynced_total") + s.metric(12, "replica_resynced_total")
	start(t, "sprout", s.sprout(2, 3, 1)...)
	s.whole(11, 3)
	eventually(t, "the Sprout that came back holds its share", func() bool {
		return s.metric(11, "replica_resynced_total")+s.metric(12, "replica_resynced_total") > before && s.metric(13, "sprout_records") > 0
	})
	for _, p := range phones[:4] {
		p.want(p.register(60), 200) // with the earlier nonce
	}
}

func TestExpiredRegistrationIsClearedOnce(t *testing.T) {
	forEachKeeper(t, testExpiredRegistrationIsClearedOnce)
}

func testExpiredRegistrationIsClearedOnce(t *testing.T, s site) {
	s.homesteads(1)
	s.sprouts(2, 1)
	bono := s.bono(1, s.list(11, 2, 5060))
	const users = 6
	for n := range users {
		p := s.phone(41+n, 80+n, bono)
		p.signIn(3)
		p.want(p.subscribe("watch"), 200)
		p.reply(p.expect("NOTIFY"), 200, "OK")
		t.Cleanup(func() {
			if n := len(p.asked); n > 0 {
				t.Errorf("%s got %d notifications too many", p.user, n)
			}
		})
		defer func() {
			p.expectEnd()
			if got := s.state(p.user); got != ims.StateNotRegistered {
				t.Errorf("state of %s at Homestead: got %s", p.user, got)
			}
		}()
	}
	counter := "replica_timers_fired_total"
	if s.store != "" {
		counter = "sprout_expired_total"
	}
	fired := func() float64 { return s.metric(11, counter) + s.metric(12, counter) }
	eventually(t, "all timers fire", func() bool { return fired() >= users })
	if got := fired(); got != users {
		t.Errorf("%g timers fired for %d registrations", got, users)
	}
}

func TestTimerFiresWithoutItsFirstReplica(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.homesteads(1)
	start(t, "sprout", s.sprout(0, 2, 1)...)
	victim := spawn(t, "sprout", s.sprout(1, 2, 1)...)
	s.whole(11, 2)
	bono := s.bono(1, s.at(11, 5060))
	const users = 6 // the victim is the first replica of some of their timers
	for n := range users {
		s.phone(41+n, 90+n, bono).signIn(10) // all complete before the first timer fires
	}
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all timers fire on the one that is left", func() bool {
		return s.metric(11, "replica_timers_fired_total") == users
	})
	for n := range users {
		eventually(t, "Homestead knows", func() bool { return s.state(ims.User(90+n)) == ims.StateNotRegistered })
	}
}

func TestLateHomesteadIs408(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testLateHomesteadIs408)
}

func testLateHomesteadIs408(t *testing.T, s site) {
	homestead := spawn(t, "homestead", s.homestead(0, 1)...)
	start(t, "sprout", append(s.sprout(0, 1, 1), "--homestead-timeout", "2s")...)
	p := s.phone(41, 30, s.bono(1, s.at(11, 5060)))
	p.signIn(60)
	if err := homestead.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Homestead is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", homestead.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	p.want(p.register(60), 408)
	if got := s.metric(11, "sprout_homestead_late_total"); got == 0 {
		t.Error("no late answer was counted")
	}
	if err := homestead.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Homestead is asked again", func() bool { return p.register(60).StatusCode == sip.StatusOK })
	if err := homestead.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody listens there any more", func() bool { return p.register(60).StatusCode == sip.StatusGatewayTimeout })
}

// answerer starts a stand-in for a Sprout that answers every request with the
// status. With status 0 it does not answer.
func (s site) answerer(host, status int) {
	s.t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s.at(host, 5060))))
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 65536)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			msg, err := sip.ParseMessage(buf[:n])
			if err != nil {
				s.t.Errorf("Bono sent a message that is not SIP: %v", err)
				continue
			}
			if req, ok := msg.(*sip.Request); ok && status > 0 {
				_, _ = conn.WriteToUDPAddrPort([]byte(sip.NewResponseFromRequest(req, status, "", nil).String()), from)
			}
		}
	}()
	s.t.Cleanup(func() { conn.Close(); <-done })
}

func TestSproutThatKeepsRejectingIsSetAside(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.answerer(11, 503)
	s.answerer(12, 404)
	bono := s.bono(1, s.list(11, 2, 5060), "--overload", "clearwater", "--aside-after", "5", "--aside-for", "1h")
	p := s.phone(41, 1, bono)
	rejected := 0
	eventually(t, "the rejecting Sprout is set aside", func() bool {
		if p.register(60).StatusCode == sip.StatusServiceUnavailable {
			rejected++
		}
		return s.metric(1, "bono_set_aside_total") == 1
	})
	if rejected != 5 || s.metric(1, "bono_sprout_503_total") != 5 {
		t.Errorf("set aside after %d rejections, want 5", rejected)
	}
	for range 50 {
		p.want(p.register(60), 404) // always the other Sprout
	}
}

func TestSilentSproutIsSetAside(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.answerer(11, 0)
	s.answerer(12, 404)
	bono := s.bono(1, s.list(11, 2, 5060), "--aside-after", "1", "--aside-for", "1h", "--timeout", "2s")
	p := s.phone(41, 1, bono)
	eventually(t, "the silent Sprout is set aside", func() bool {
		if status := p.register(60).StatusCode; status != 404 && status != 408 {
			t.Fatalf("got status %d, want 404 or 408", status)
		}
		return s.metric(1, "bono_set_aside_total") == 1
	})
	for range 50 {
		p.want(p.register(60), 404)
	}
}

func TestConnectionsAreRefreshed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.answerer(11, 404)
	bono := s.bono(1, s.at(11, 5060), "--connections", "3", "--refresh", "30ms")
	p := s.phone(41, 1, bono)
	ports := map[string]bool{}
	eventually(t, "requests come from new ports", func() bool {
		p.want(p.register(60), 404)
		for _, port := range openPorts(t, s.at(11, 5060)) {
			ports[port] = true
		}
		return len(ports) > 20
	})
}

func TestOverloadIsRejected(t *testing.T) {
	s := newSite(t)
	s.homesteads(1)
	start(t, "sprout", append(s.sprout(0, 1, 1), "--initial-rate", "10")...)
	p := s.phone(41, 1, s.bono(1, s.at(11, 5060)))
	var all []*pending
	for n := range 500 { // a burst of more than twice the bucket
		all = append(all, p.ask("REGISTER", "sip:"+ims.Domain, fmt.Sprintf("Call-ID: burst-%d", n)))
	}
	counts := map[int]int{}
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	eventually(t, "all are answered", func() bool {
		select {
		case <-again.C: // the receive buffer may have dropped some of the burst
			for _, a := range all {
				p.send(a.data)
			}
		default:
		}
		all = slices.DeleteFunc(all, func(a *pending) bool {
			select {
			case res := <-a.answers:
				counts[res.StatusCode]++
				if res.StatusCode == sip.StatusServiceUnavailable && res.GetHeader("Retry-After") == nil {
					t.Error("the 503 answer has no Retry-After")
				}
				return true
			default:
				return false
			}
		})
		return len(all) == 0
	})
	// On a slow host, requests that are sent again take tokens, too.
	if counts[401] < 50 || counts[503] < 50 || counts[401]+counts[503] != 500 {
		t.Errorf("got answers by status %v, want about 200 times 401 and the rest 503", counts)
	}
	if got := s.metric(11, "sprout_rejected_total") + s.metric(1, "bono_rejected_total"); int(got) < counts[503] {
		t.Errorf("counted %g rejections, received %d", got, counts[503]) // a rejection whose answer was lost is counted too
	}
}
