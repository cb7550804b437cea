package e2e

import (
	"strconv"
	"testing"

	"vitrine/internal/truth"
)

// placeEPC makes the places of the EPC and of three eNodeBs.
func (s *site) placeEPC() {
	s.t.Helper()
	s.place("mme", "sgw", "pgw", "hss", "pcrf", "enodeb-1", "enodeb-2", "enodeb-3")
}

// rulesPort is where applications ask the PCRF for bearers.
const rulesPort = 8080

// startEPC starts the reference EPC at its places.
func (s *site) startEPC() {
	s.t.Helper()
	at := func(name string, port int) string { return s.places[name].at(port) }
	s.function("hss", "hss", "--listen", at("hss", 3868))
	s.function("pcrf", "pcrf", "--listen", at("pcrf", 3868), "--rules", at("pcrf", rulesPort))
	s.function("pgw", "pgw", "--listen", at("pgw", 2123), "--pcrf", at("pcrf", 3868), "--metrics", at("pgw", 9090))
	s.function("sgw", "sgw", "--listen", at("sgw", 2123))
	s.function("mme", "mme", "--s1", at("mme", 36412), "--listen", at("mme", 2123), "--hss", at("hss", 3868),
		"--sgw", at("sgw", 2123), "--pgw", at("pgw", 2123), "--overload", "off", "--metrics", at("mme", 9090))
	s.ready("pgw", "mme")
}

// useEPC plays the life of UEs at three eNodeBs, all at once, and again in each further
// round. It calls between between two rounds.
func (s *site) useEPC(ues, rounds int, between func()) {
	s.t.Helper()
	log, err := truth.Open(s.log("enodebs"), "enodebs")
	if err != nil {
		s.t.Fatal(err)
	}
	r := newRadio(s, log)
	for n := range 3 {
		r.connect("enodeb-" + strconv.Itoa(n+1))
	}
	for n := range rounds {
		if n > 0 {
			between()
		}
		r.play(ues)
	}
	if err := log.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// recordEPC returns a capture of an EPC, and its messages with the truth. Meanwhile the
// interface of the MME is analysed.
func recordEPC(t *testing.T, ues int) (s *site, file string, messages []observed) {
	t.Helper()
	s = newSite(t, nil)
	var finish func()
	file, finish = s.capture("epc") // before any connection is made
	s.placeEPC()
	compare := s.analyseLive("mme")
	s.startEPC()
	s.useEPC(ues, 1, nil)
	s.settle(file)
	s.stop()
	finish()
	compare()
	messages = observe(t, file)
	readLogs(t, s.logs).label(messages)
	t.Log(summary(messages))
	return s, file, messages
}

// TestEPCIsUnderstood checks that the logs of the EPC have exactly the messages of
// the capture, and give each its network event.
func TestEPCIsUnderstood(t *testing.T) {
	const ues = 100
	s, file, messages := recordEPC(t, ues)
	classes := map[string]map[string]bool{}
	for _, m := range messages {
		if classes[m.kind] == nil {
			classes[m.kind] = map[string]bool{}
		}
		classes[m.kind][m.class] = true
	}
	for _, kind := range []string{"ATTACH", "RELEASE", "SR", "X2-HANDOVER", "S1-HANDOVER", "TAU", "BEARER-CRT", "DETACH"} {
		if n := len(classes[kind]); n < ues {
			t.Errorf("got %d events of %s, want %d", n, kind, ues)
		}
	}
	of := circumstances{Far: s.places["mme"].addr, Called: s.called()}
	keepTruth(t, "epc", messages, of)
	prove(t, "epc", file, messages, of)
}
