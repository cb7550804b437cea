package ims_test

import (
	"fmt"
	"strings"
	"testing"

	"vitrine/reference/ims"
)

// single starts one instance of each component except Ralf, and returns Bono's
// address.
func (s site) single(extra ...string) string {
	s.t.Helper()
	s.homesteads(1)
	start(s.t, "homer", "--listen", s.at(31, 7888))
	start(s.t, "sprout", append(append(s.sprout(0, 1, 1), "--homer", s.at(31, 7888)), extra...)...)
	return s.bono(1, s.at(11, 5060))
}

func TestRegisterAndDeregister(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testRegisterAndDeregister)
}

func testRegisterAndDeregister(t *testing.T, s site) {
	p := s.phone(41, 7, s.single())

	p.want(p.register(60), 401)
	if p.auth.Realm != ims.Domain || p.auth.Algorithm != "MD5" || !p.auth.SupportsQOP("auth") || p.auth.Stale {
		t.Errorf("got challenge %v", p.auth)
	}
	if got := s.state(p.user); got != ims.StateNotRegistered {
		t.Errorf("state at Homestead after the challenge: got %s", got)
	}
	res := p.want(p.register(60, "Contact:"), 200)
	if c := res.Contact(); c != nil {
		t.Errorf("a query before the registration: got the contact %s", c.Value())
	}
	if got := s.state(p.user); got != ims.StateNotRegistered {
		t.Errorf("state at Homestead after the query: got %s", got)
	}
	res = p.want(p.register(60), 200)
	if c := res.Contact(); c == nil || !strings.Contains(c.Value(), p.contact()) || !strings.HasSuffix(c.Value(), "expires=60") {
		t.Errorf("got contact %v, want %s for 60 s", c, p.contact())
	}
	for name, want := range map[string]string{
		"Path": s.at(1, 5060), "Service-Route": s.at(11, 5060), "P-Associated-URI": ims.PublicID(p.user),
	} {
		if h := res.GetHeader(name); h == nil || !strings.Contains(h.Value(), want) {
			t.Errorf("header %s: got %v, want %s in it", name, h, want)
		}
	}
	if got := s.state(p.user); got != ims.StateRegistered {
		t.Errorf("state at Homestead after the registration: got %s", got)
	}
	res = p.want(p.register(0), 200) // same nonce, next count
	if c := res.Contact(); c != nil {
		t.Errorf("after the deregistration there is still the contact %s", c.Value())
	}
	if got := s.state(p.user); got != ims.StateNotRegistered {
		t.Errorf("state at Homestead after the deregistration: got %s", got)
	}
}

func TestRegisterIsRefused(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testRegisterIsRefused)
}

func testRegisterIsRefused(t *testing.T, s site) {
	bono := s.single()

	t.Run("wrong password", func(t *testing.T) {
		p := s.phone(41, 1, bono)
		p.password = "guess"
		p.want(p.register(60), 401)
		p.want(p.register(60), 403)
		if got := s.state(p.user); got != ims.StateNotRegistered {
			t.Errorf("state at Homestead: got %s", got)
		}
		if got := s.metric(11, "sprout_wrong_credentials_total"); got != 1 {
			t.Errorf("counted %g wrong credentials, want 1", got)
		}
	})
	t.Run("another's nonce", func(t *testing.T) {
		p, other := s.phone(41, 7, bono), s.phone(41, 8, bono)
		other.want(other.register(60), 401)
		p.auth = other.auth
		p.want(p.register(60), 403)
		if got := s.metric(11, "sprout_wrong_credentials_total"); got != 2 {
			t.Errorf("counted %g wrong credentials, want 2", got)
		}
	})
	t.Run("unknown subscriber", func(t *testing.T) {
		p := s.phone(41, 1000, bono) // subscribers are 0 to 999
		p.want(p.register(60), 403)
	})
	t.Run("another's identity", func(t *testing.T) {
		p := s.phone(41, 2, bono)
		p.want(p.register(60, "To: <sip:sub000003@ims.test>", `Authorization: Digest username="sub000002@ims.test", realm="ims.test", nonce="", uri="sip:ims.test", response=""`), 403)
		p.want(p.register(60), 401)
		p.want(p.register(60, "To: <sip:sub000003@ims.test>"), 403) // with the own nonce and password
		if got := s.state("sub000003"); got != ims.StateNotRegistered {
			t.Errorf("state of the other at Homestead: got %s", got)
		}
		p.want(p.register(60), 200)
	})
	t.Run("credentials used twice", func(t *testing.T) {
		p := s.phone(41, 4, bono)
		p.signIn(60)
		p.nc--
		p.want(p.register(60), 401)
		if !p.auth.Stale {
			t.Error("the challenge is not marked as stale")
		}
		p.want(p.register(60), 200)
	})
	t.Run("a nonce of nobody's", func(t *testing.T) {
		p := s.phone(41, 5, bono)
		p.want(p.register(60), 401)
		p.auth.Nonce = strings.Repeat("0", 32)
		p.want(p.register(60), 401)
		p.want(p.register(60), 200)
	})
	t.Run("another domain", func(t *testing.T) {
		p := s.phone(41, 6, bono)
		p.want(p.register(60, "To: <sip:sub000006@elsewhere.test>"), 404)
	})
	t.Run("too many hops", func(t *testing.T) {
		p := s.phone(41, 6, bono)
		p.want(p.register(60, "Max-Forwards: 0"), 483)
	})
	t.Run("bad expiry", func(t *testing.T) {
		p := s.phone(41, 6, bono)
		p.want(p.ask("REGISTER", "sip:"+ims.Domain, "Expires: soon").final(), 400)
	})
}

func TestSubscriptionIsNotified(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testSubscriptionIsNotified)
}

func testSubscriptionIsNotified(t *testing.T, s site) {
	bono := s.single()
	p := s.phone(41, 8, bono)
	if got := p.subscribe("watch").StatusCode; got != 403 {
		t.Errorf("SUBSCRIBE before the registration: got %d, want 403", got)
	}
	p.signIn(60)
	refused := p.want(p.ask("SUBSCRIBE", ims.PublicID(p.user), "Event: presence").final(), 489)
	if h := refused.GetHeader("Allow-Events"); h == nil || h.Value() != "reg" {
		t.Errorf("SUBSCRIBE to presence: got Allow-Events %v, want reg", h)
	}
	p.want(p.subscribe("watch"), 200)
	documents := 0
	notified := func(state, body string) {
		t.Helper()
		n := p.expect("NOTIFY")
		p.reply(n, 200, "OK")
		if h := n.GetHeader("Subscription-State"); h == nil || !strings.HasPrefix(h.Value(), state) {
			t.Errorf("got Subscription-State %v, want %s", h, state)
		}
		if !strings.Contains(string(n.Body()), body) || string(*n.CallID()) != "watch" {
			t.Errorf("NOTIFY of %s: missing %q in %s", *n.CallID(), body, n.Body())
		}
		if version := fmt.Sprintf(` version="%d" state=`, documents); !strings.Contains(string(n.Body()), version) {
			t.Errorf("document %d: missing %q in %s", documents, version, n.Body())
		}
		documents++
	}
	notified("active", "<uri>"+p.contact()+"</uri>")
	if got := len(p.want(p.register(60, "Contact:"), 200).GetHeaders("Contact")); got != 1 { // notifies nobody
		t.Errorf("a query: got %d contacts, want 1", got)
	}
	p.want(p.register(60, "Contact: <sip:tablet@192.0.2.1>"), 200)
	notified("active", "<uri>sip:tablet@192.0.2.1</uri>")
	p.want(p.register(0, "Contact: *"), 200)
	notified("terminated", `state="terminated"`)
}

func TestFailedNotifyEndsTheSubscription(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testFailedNotifyEndsTheSubscription)
}

func testFailedNotifyEndsTheSubscription(t *testing.T, s site) {
	p := s.phone(41, 8, s.single())
	p.signIn(60)
	to := map[string]string{} // header of the dialog, by call
	for _, c := range []struct {
		call   string
		answer int // to the NOTIFY; 0: none
	}{{"stays", 500}, {"refused", 481}, {"ignored", 0}} {
		tag, ok := p.want(p.subscribe(c.call), 200).To().Params.Get("tag")
		if !ok {
			t.Fatalf("the answer to SUBSCRIBE %s has no tag", c.call)
		}
		to[c.call] = "To: <" + ims.PublicID(p.user) + ">;tag=" + tag
		if n := p.expect("NOTIFY"); c.answer > 0 {
			p.reply(n, c.answer, "No")
		}
	}
	eventually(t, "two subscriptions end", func() bool { return s.metric(11, "sprout_subscriptions_failed_total") == 2 })
	for call, want := range map[string]int{"stays": 200, "refused": 481, "ignored": 481} {
		if got := p.subscribe(call, to[call]).StatusCode; got != want {
			t.Errorf("refresh of the subscription %q: got %d, want %d", call, got, want)
		}
	}
}

// BenchmarkRegDereg measures one reg-dereg call at a time through all components
// in one process. The client's part is included.
func BenchmarkRegDereg(b *testing.B) {
	for n := 1; n <= 2; n++ {
		b.Run(fmt.Sprint(n, "-sprout"), func(b *testing.B) {
			s := newSite(b)
			s.homesteads(1)
			s.sprouts(n, 1)
			p := s.phone(41, 1, s.bono(1, s.list(11, n, 5060)))
			b.ReportAllocs()
			for b.Loop() {
				p.signIn(60)
				p.want(p.register(0), 200)
			}
		})
	}
}
