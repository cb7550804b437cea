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

// hopsOf returns how long messages of an EPC are on the way: medians in ms by type, sender,
// receiver and name, from captures at the bridge and at each function.
func hopsOf(t *testing.T, links *impair.Config) map[string]float64 {
	t.Helper()
	const ues = 20
	s := newSite(t, links)
	file, finish := s.capture("bridge")
	files, ends := []string{file}, []func(){finish}
	s.placeEPC()
	for _, name := range []string{"hss", "pcrf", "pgw", "sgw", "mme"} {
		far, finish := s.captureAt(s.places[name].netns, "eth0", name)
		files, ends = append(files, far), append(ends, finish)
	}
	s.startEPC()
	s.useEPC(ues)
	s.settle(file)
	s.stop()
	for _, end := range ends {
		end()
	}
	called := map[string]string{}
	for name, at := range s.places {
		called[at.addr.String()] = name
	}
	captured, err := affinity.ReadCaptures(t.Context(), files, message.Options{Name: func(text string) string { return called[text] }}, correlate.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range captured.Read.Clocks {
		if c.Corrected {
			t.Errorf("a delay in both directions was taken for a clock: %+v", c)
		}
	}
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

// TestADelayOfALinkIsOnItsHopAlone: 5 ms on the link of the HSS are on the way from the
// MME to the HSS and back, and on no other hop.
func TestADelayOfALinkIsOnItsHopAlone(t *testing.T) {
	const injected = 5.0 // ms
	ways := hopsOf(t, &impair.Config{Links: map[string]impair.Link{"hss": {Delay: 5 * time.Millisecond}}})
	here := map[bool]int{}
	for hop, ms := range ways {
		delayed := strings.Contains(hop, "mme > hss") || strings.Contains(hop, "hss > mme")
		here[delayed]++
		switch {
		case delayed && (ms < injected || ms > 2*injected):
			t.Errorf("%s: %g ms on the way, want %g", hop, ms, injected)
		case !delayed && ms > injected/2:
			t.Errorf("%s: %g ms on the way without a delay", hop, ms)
		}
	}
	if here[true] < 6 || here[false] < 10 { // of an attach and a detach, and of the rest of the EPC
		t.Errorf("%d hops with the delay and %d without: %v", here[true], here[false], ways)
	}
}
