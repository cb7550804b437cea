package redline

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"vitrine"
	"vitrine/director/client"
)

// TestTrafficThatIgnoresTheWeights checks the verdict if all known UEs stay at their instances. Further
// steps would take minutes and give most of the new UEs to the measured instance.
func TestTrafficThatIgnoresTheWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(500)...)
		w.sticky = true
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != NotIdentifiable || !strings.Contains(r.Why, "does not follow the weights") {
			t.Errorf("%s, %v", &r, err)
		}
		if n := len(r.Steps) - 1; n < 1 || n > 3 {
			t.Errorf("got %d steps with another weight, want 1 to 3", n)
		}
		w.checkRestored(t)
	})
}

// TestStepsIgnoreTheWeightsOfInstancesAway measures while two of four instances are away, which keep their
// weights but get no traffic. Each step must be about a tenth of the present rate above the one before, and
// none may exceed the allowed share of the traffic.
func TestStepsIgnoreTheWeightsOfInstancesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(200, 1, append(three(500), &server{name: "d", weight: 100, capacity: 1000})...)
		find(w, "c").health, find(w, "d").health = "away", "away"
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != AtLeast || len(r.Steps) < 8 {
			t.Fatalf("%s, %v", &r, err)
		}
		for i, s := range r.Steps[1:] {
			before := r.Steps[i].Rate
			if added := s.Rate - before; added < 5 || added > 15 || s.Rate > 0.91*200 {
				t.Errorf("step %d is at %g/s after %g/s, want 10/s more, and at most 180/s", i+1, s.Rate, before)
			}
		}
		w.checkRestored(t)
	})
}

// TestTrafficOutOfReachDoesNotRaiseTheWeight measures while half of the traffic goes to another region. The
// others must keep their part of the weights in all steps, also when the rate no longer rises.
func TestTrafficOutOfReachDoesNotRaiseTheWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(500)...)
		w.foreign = 0.5
		r, err := Run(t.Context(), w.options())
		if err != nil || r.Verdict != AtLeast || r.Rate < 120 || r.Rate > 150 {
			t.Fatalf("%s, %v", &r, err)
		}
		for i, s := range r.Steps {
			if s.Share > 0.9+1e-9 {
				t.Errorf("step %d has a share of %g of the weights, want at most 0.9", i, s.Share)
			}
		}
		w.checkRestored(t)
	})
}

// TestNeighboursAreOnTheSameHost checks which instances count as neighbours of the measured one. Each
// instance may have its own address on the host that all of them share.
func TestNeighboursAreOnTheSameHost(t *testing.T) {
	for name, c := range map[string]struct {
		addresses [3]string
		beside    []string
		want      int
	}{
		"one address":               {[3]string{"10.0.0.1:5060", "10.0.0.1:5061", "10.0.0.2:5060"}, nil, 1},
		"loopback":                  {[3]string{"127.0.0.1:5060", "127.0.0.2:5060", "127.0.0.3:5060"}, nil, 2},
		"own addresses":             {[3]string{"10.0.0.1:5060", "10.0.0.2:5060", "10.0.0.3:5060"}, nil, 0},
		"own addresses, one type":   {[3]string{"10.0.0.1:5060", "10.0.0.2:5060", "10.0.0.3:5060"}, []string{"registration"}, 1},
		"own addresses, both types": {[3]string{"10.0.0.1:5060", "10.0.0.2:5060", "10.0.0.3:5060"}, []string{"session", "registration"}, 2},
	} {
		var list []client.Instance
		for i, in := range []vitrine.Instance{{Name: "a", Type: "session"}, {Name: "b", Type: "session"}, {Name: "c", Type: "registration"}} {
			in.Address = netip.MustParseAddrPort(c.addresses[i])
			list = append(list, client.Instance{Instance: in})
		}
		f := fleet{typeName: "session", instance: "a", beside: c.beside}
		if _, _, neighbours := f.sort([][]client.Instance{list}); len(neighbours) != c.want {
			t.Errorf("%s: got %d neighbours, want %d", name, len(neighbours), c.want)
		}
	}
}
