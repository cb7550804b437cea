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

// reachedBy returns a phone that is also the director, and the director's entry in Path and
// Record-Route.
func (s site) reachedBy(host, subscriber int, bono string) (p *phone, director, entry string) {
	s.t.Helper()
	p = s.phone(host, subscriber, bono)
	director = p.conn.LocalAddr().String()
	return p, director, "<sip:o.0001@" + director + ";lr>"
}

// TestUsersOutliveTheirAggregate registers and subscribes through an aggregate behind a
// director, and then stops the aggregate. A call and a NOTIFY must reach the phone through
// another aggregate.
func TestUsersOutliveTheirAggregate(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	p, director, entry := s.reachedBy(41, 7, s.at(1, 5060))
	stop := s.aggregate(0, director)
	p.want(p.register(300, "Path: "+entry), 401)
	res := p.want(p.register(300, "Path: "+entry), 200)
	if path := res.GetHeaders("Path"); len(path) != 1 || path[0].Value() != entry {
		t.Errorf("got Path %v, want the director's alone: %s", path, entry)
	}
	if h := res.GetHeader("Service-Route"); h != nil {
		t.Errorf("got Service-Route %s, which names one Sprout", h.Value())
	}
	p.want(p.subscribe("watch", "Record-Route: "+entry), 200)
	p.reply(p.expect("NOTIFY"), 200, "OK")
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
// so that it knows no Bono. The NOTIFY must be sent when it knows one.
func TestExpiryWaitsForABono(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	p, director, entry := s.reachedBy(41, 7, s.at(1, 5060))
	stop := s.aggregate(0, director)
	p.want(p.register(5, "Path: "+entry), 401)
	p.want(p.register(5, "Path: "+entry), 200)
	p.want(p.subscribe("watch", "Record-Route: "+entry), 200)
	p.reply(p.expect("NOTIFY"), 200, "OK")
	stop()

	s.aggregate(1, director)
	eventually(t, "the registration has expired", func() bool { return s.metric(12, "sprout_store_timers_total") > 1 })
	s.phone(42, 8, s.at(2, 5060)).signIn(60)
	p.expectEnd()
}
