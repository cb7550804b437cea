package pcrf

import (
	"testing"

	"vitrine/reference/epc/diameter"
)

// TestSessionsOfARestartedPGWEnd has one of two P-GWs restart. The session of the other one stays.
func TestSessionsOfARestartedPGWEnd(t *testing.T) {
	r := newRules()
	r.limit = 3
	for id, pgw := range map[string]string{"1": "pgw1.epc.test", "2": "pgw1.epc.test", "3": "pgw2.epc.test"} {
		if _, err := r.Begin(id, pgw, diameter.GxRequest{IMSI: "00101000000000" + id}); err != nil {
			t.Fatal(err)
		}
	}
	r.Restarted("pgw1.epc.test")
	if _, ok := r.sessions["3"]; !ok || r.count() != 1 || len(r.latest) != 1 {
		t.Errorf("got sessions %v, latest %v, want only session 3", r.sessions, r.latest)
	}
}

// TestSessionThatBeginsAgainReplacesItself has a P-GW begin a session twice, for different
// subscribers. The first subscriber must not keep an entry.
func TestSessionThatBeginsAgainReplacesItself(t *testing.T) {
	const id, first, second = "pgw.epc.test;1;1", "001010000000001", "001010000000002"
	r := newRules()
	r.limit = 1
	for _, imsi := range []string{first, second} {
		if _, err := r.Begin(id, "pgw.epc.test", diameter.GxRequest{IMSI: imsi}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, ok := r.find(first); ok || len(r.latest) != 1 || r.count() != 1 {
		t.Errorf("got sessions %v, latest %v", r.sessions, r.latest)
	}
	if err := r.End(id); err != nil || len(r.latest) != 0 || r.count() != 0 {
		t.Errorf("after the end: got sessions %v, latest %v, error %v", r.sessions, r.latest, err)
	}
}
