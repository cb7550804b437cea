package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vitrine/affinity"
	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
	"vitrine/fabric/impair"
)

// captureLinks returns captures from the bridge and from each function of an EPC.
func captureLinks(t *testing.T, links *impair.Config, ues int) *affinity.Captured {
	t.Helper()
	s := newSite(t, links)
	file, finish := s.capture("bridge")
	files, ends := []string{file}, []func(){finish}
	s.placeEPC()
	for _, name := range []string{"hss", "pcrf", "pgw", "sgw", "mme"} {
		far, finish := s.captureAt(s.places[name].netns, "eth0", name)
		files, ends = append(files, far), append(ends, finish)
	}
	s.startEPC()
	s.useEPC(ues, 1, nil)
	s.settle(file)
	s.stop()
	for _, end := range ends {
		end()
	}
	captured, err := affinity.ReadCaptures(t.Context(), files, message.Options{Name: s.byPlace()}, correlate.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range captured.Read.Clocks {
		if c.Corrected {
			t.Errorf("a delay in both directions was corrected as a clock error: %+v", c)
		}
	}
	return captured
}

// waysOf returns the median delay of messages in ms, by type, sender, receiver and name.
func waysOf(captured *affinity.Captured, ues int) map[string]float64 {
	ways := map[string]float64{}
	for _, m := range captured.Measured {
		for _, h := range m.Hops {
			if h.Way != nil && h.Count >= ues {
				ways[fmt.Sprintf("%s: %s > %s %s", m.Type, h.From, h.To, h.Name)] = h.Way.P50
			}
		}
	}
	return ways
}

const injected = 5.0 // ms

// slowHSS delays packets to and from the HSS.
func slowHSS() *impair.Config {
	return &impair.Config{Links: map[string]impair.Link{"hss": {Delay: injected * time.Millisecond}}}
}

// TestADelayOfALinkIsOnItsHopAlone adds 5 ms to the link of the HSS. They must appear on
// the way between MME and HSS, in both directions, and on no other hop.
func TestADelayOfALinkIsOnItsHopAlone(t *testing.T) {
	const ues = 20
	ways := waysOf(captureLinks(t, slowHSS(), ues), ues)
	here := map[bool]int{}
	for hop, ms := range ways {
		delayed := strings.Contains(hop, "mme > hss") || strings.Contains(hop, "hss > mme")
		here[delayed]++
		switch {
		case delayed && (ms < injected || ms > 2*injected):
			t.Errorf("%s: took %g ms, want %g ms with the delay", hop, ms, injected)
		case !delayed && ms > injected/2:
			t.Errorf("%s: took %g ms without a delay", hop, ms)
		}
	}
	if here[true] < 6 || here[false] < 10 { // of an attach and a detach, and of the rest of the EPC
		t.Errorf("got %d hops with the delay and %d without: %v", here[true], here[false], ways)
	}
}
