package ims_test

import (
	"net/netip"
	"testing"
)

// aggregate starts Sprout and Bono i, from 0, behind a director.
func (s site) aggregate(i int, director string) (stop func()) {
	s.t.Helper()
	stopSprout := start(s.t, "sprout", append(s.sprout(i, 2, 1), "--director", director)...)
	stopBono := start(s.t, "bono", "--listen", s.at(1+i, 5060), "--sprout", s.at(11+i, 5060), "--director", director, "--target-delay", "5s")
	return func() { stopBono(); stopSprout() }
}

// enrol starts aggregate 0 behind a director, and registers and subscribes a phone through it. The
// phone is also the director.
func (s site) enrol(expires int) (p *phone, director string, stop func()) {
	s.t.Helper()
	p = s.phone(41, 7, s.at(1, 5060))
	director = p.conn.LocalAddr().String()
	entry := "<sip:o.0001@" + director + ";lr>" // of the director in Path and Record-Route
	stop = s.aggregate(0, director)
	p.want(p.register(expires, "Path: "+entry), 401)
	res := p.want(p.register(expires, "Path: "+entry), 200)
	if path := res.GetHeaders("Path"); len(path) != 1 || path[0].Value() != entry {
		s.t.Errorf("got Path %v, want the director's alone: %s", path, entry)
	}
	if h := res.GetHeader("Service-Route"); h != nil {
		s.t.Errorf("got Service-Route %s, which names one Sprout", h.Value())
	}
	p.want(p.subscribe("watch", "Record-Route: "+entry), 200)
	p.reply(p.expect("NOTIFY"), 200, "OK")
	return p, director, stop
}

// TestUsersOutliveTheirAggregate registers and subscribes through an aggregate behind a
// director, and then stops the aggregate. A call and a NOTIFY must reach the phone through
// another aggregate.
func TestUsersOutliveTheirAggregate(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	p, director, stop := s.enrol(300)
	stop()

	s.aggregate(1, director)
	p.bono = netip.MustParseAddrPort(s.at(2, 5060))
	caller := s.phone(42, 8, p.bono.String())
	caller.signIn(60)
	talk(t, caller, p, p)
	p.want(p.register(0), 200)
	p.expectEnd()
}

// expectEnd waits for the NOTIFY that ends the phone's subscription because it is no longer
// registered.
func (p *phone) expectEnd() {
	p.t.Helper()
	n := p.expect("NOTIFY")
	p.reply(n, 200, "OK")
	if h := n.GetHeader("Subscription-State"); h == nil || h.Value() != "terminated;reason=noresource" {
		p.t.Errorf("got Subscription-State %v", h)
	}
}

// TestExpiryWaitsForABono lets a registration expire while the only Sprout has had no request,
// so that it knows no Bono. The Sprout must send the NOTIFY once it knows one.
func TestExpiryWaitsForABono(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	p, director, stop := s.enrol(5)
	stop()

	s.aggregate(1, director)
	eventually(t, "the registration has expired", func() bool { return s.metric(12, "sprout_store_timers_total") > 1 })
	s.phone(42, 8, s.at(2, 5060)).signIn(60)
	p.expectEnd()
}
