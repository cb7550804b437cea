package gtpc_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/wmnsk/go-gtp/gtpv2"

	"vitrine"
)

// TestGoGTPPrograms sends the traffic of go-gtp's own eNB, MME, S-GW and P-GW programs
// through a director, unchanged: MME to S-GW (S11) and S-GW to P-GW (S5), two of each
// gateway. The programs choose TEIDs at random, so the director learns all of them. While
// subscribers attach, weights change and one S-GW drains. Each session must stay at its
// instance to its end.
func TestGoGTPPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs four programs")
	}
	n := newNetwork(t)
	sgws := n.gateways()
	d := n.direct(1, 2)
	mme := n.mme(d)

	const first, more = 12, 6
	enb := n.program("enb", "enb", n.enb(0, first), "Started serving S1-U")
	for i := range first {
		mme.wait("Bearer modified with S-GW for Subscriber: " + imsi(i))
	}
	before := n.places(sgws, made, first)
	if len(before) != first || len(slices.Compact(slices.Sorted(maps.Values(before)))) != 2 {
		t.Fatalf("sessions of the first %d subscribers: got %v", first, before)
	}

	// Two other MMEs, of go-gtp's library, with equal TEIDs. Their sessions outlive the changes.
	own := []*ownMME{n.ownMME(13, d), n.ownMME(15, d)}
	var sessions []*gtpv2.Session
	for i := range 10 {
		sessions = append(sessions, own[i%2].attach(imsi(100+i)))
	}
	n.change(func(in *vitrine.Instance) {
		if in.Name == "sgw-2" || in.Name == "pgw-1" {
			in.Weight *= 20
		}
	})
	n.change(func(in *vitrine.Instance) {
		if in.Name == "sgw-1" {
			in.State = vitrine.Draining
		}
	})
	for i := first; i < first+more; i++ { // one by one: the MME mixes up attaches at the same time
		n.reload(enb, n.enb(i, i+1))
		mme.wait("Bearer modified with S-GW for Subscriber: " + imsi(i))
	}
	at := n.places(sgws, made, first+more+len(sessions))
	for i := range first + more {
		switch {
		case i >= first && at[imsi(i)] != "sgw-2":
			t.Errorf("new subscriber %d attached at %q, which is draining", i, at[imsi(i)])
		case i < first && at[imsi(i)] != before[imsi(i)]:
			t.Errorf("subscriber %d attached first at %s, then at %s", i, before[imsi(i)], at[imsi(i)])
		}
	}
	for i, s := range sessions {
		own[i%2].modify(s)
		own[i%2].detach(s)
	}
	end := n.places(sgws, ended, len(sessions))
	drained := 0
	for i := 100; i < 110; i++ {
		if at[imsi(i)] == "" || at[imsi(i)] != end[imsi(i)] {
			t.Errorf("the session of %s was made at %q and ended at %q", imsi(i), at[imsi(i)], end[imsi(i)])
		}
		if at[imsi(i)] == "sgw-1" {
			drained++
		}
	}
	if drained == 0 {
		t.Error("the drained S-GW had no session")
	}
	counters, err := d.Counters()
	if err != nil || counters.Stray+counters.Malformed+counters.Rejected+counters.Unruled+counters.UnknownTEID+counters.Keyless+counters.ExchangesForgotten != 0 || counters.Aliased != uint64(len(sessions)/2) {
		t.Errorf("%+v, %v", counters, err)
	}
	t.Logf("%d sessions at %v; %+v", len(at), sgws, counters)
}

// TestGoGTPThroughTwoDirectors runs two directors side by side, each with MMEs of its
// own. Both send a subscriber to the same S-GW. One is restarted several times while its
// MME modifies sessions and go-gtp's own MME attaches. No message may be lost, because
// go-gtp retransmits nothing, and sessions must stay at their instances.
func TestGoGTPThroughTwoDirectors(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs four programs")
	}
	n := newNetwork(t)
	sgws := n.gateways()
	a, b := n.direct(1, 2), n.direct(3, 4)
	mme := n.mme(a)
	one, two := n.ownMME(13, a), n.ownMME(15, b)

	const both = 12
	for i := range both {
		one.detach(one.attach(imsi(i)))
		two.detach(two.attach(imsi(i)))
	}
	at := n.places(sgws, made, both)
	if len(slices.Compact(slices.Sorted(maps.Values(at)))) != 2 || slices.ContainsFunc(slices.Collect(maps.Values(at)), func(s string) bool { return s != "sgw-1" && s != "sgw-2" }) {
		t.Fatalf("subscribers that attached through both directors were at instances %v", at)
	}

	const each = 6
	sessions := map[*ownMME][]*gtpv2.Session{}
	for i := range 2 * each {
		m := []*ownMME{one, two}[i%2]
		sessions[m] = append(sessions[m], m.attach(imsi(100+i)))
	}
	const attached = 4
	n.program("enb", "enb", n.enb(200, 200+attached), "Started serving S1-U")
	for range 6 {
		restarted := make(chan error, 1)
		go func() { restarted <- a.restart() }()
		for m, all := range sessions {
			for _, s := range all {
				m.modify(s)
			}
		}
		if err := <-restarted; err != nil {
			t.Fatal(err)
		}
	}
	for i := range attached {
		mme.wait("Bearer modified with S-GW for Subscriber: " + imsi(200+i))
	}
	for m, all := range sessions {
		for _, s := range all {
			m.detach(s)
		}
	}
	at, end := n.places(sgws, made, both+2*each+attached), n.places(sgws, ended, both+2*each)
	for i := 100; i < 100+2*each; i++ {
		if at[imsi(i)] == "" || at[imsi(i)] != end[imsi(i)] {
			t.Errorf("the session of %s was made at %q and ended at %q", imsi(i), at[imsi(i)], end[imsi(i)])
		}
	}
	for name, d := range map[string]*side{"restarted": a, "other": b} {
		if counters, err := d.Counters(); err != nil || counters.Stray+counters.Malformed+counters.Rejected+counters.Unruled+counters.UnknownTEID+counters.Keyless+counters.ExchangesForgotten != 0 {
			t.Errorf("%s: %+v, %v", name, counters, err)
		}
	}
}

// Log lines of go-gtp's S-GW for a subscriber.
const made, ended = "Session created with MME and P-GW for Subscriber: ", "Session deleted for Subscriber: "

func imsi(i int) string { return fmt.Sprintf("00101%010d", i) }
