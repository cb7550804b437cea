package queue

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"
)

var update = flag.String("update", "", "find the truths of a family again, of all, or of the servers that have none (missing), which takes minutes")

// careful is the effort behind the committed truths.
var careful = effort{calls: 100_000, stalls: 40, windows: 8, mostWindows: 200, error: 0.0018}

// each runs a function for every server of the sets, on all CPUs.
func each(sets []Set, families []string, servers int, run func(k int, s *Server)) {
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	k := 0
	for _, set := range sets {
		for _, family := range families {
			for i := range servers {
				group.Add(1)
				free <- struct{}{}
				go func(k int) {
					run(k, set.Server(family, i))
					<-free
					group.Done()
				}(k)
				k++
			}
		}
	}
	group.Wait()
}

// TestUpdate writes the committed truths again when it is asked to.
func TestUpdate(t *testing.T) {
	if *update == "" {
		return
	}
	lines := make([][]byte, len(Sets())*len(Families())*Size)
	each(Sets(), Families(), Size, func(k int, s *Server) {
		for _, threshold := range Thresholds() {
			found, known := truths()[truthKey{s.Name, threshold}]
			if !known || *update == "all" || *update == s.Family {
				found = s.find(threshold, careful)
				t.Logf("%+v", found)
			}
			found.Rate = math.Round(found.Rate*1000) / 1000
			found.Error = math.Round(found.Error*1e5) / 1e5
			line, err := json.Marshal(found)
			if err != nil {
				t.Error(err)
			}
			lines[k] = append(append(lines[k], line...), '\n')
		}
	})
	if err := os.WriteFile("truths.json", bytes.Join(lines, nil), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTruthsAreThere checks that every server has its truths, precise enough.
func TestTruthsAreThere(t *testing.T) {
	for _, set := range Sets() {
		for _, family := range Families() {
			for i := range Size {
				s := set.Server(family, i)
				before := math.Inf(1)
				for _, threshold := range []float64{0.9, 0.95} {
					truth, known := truths()[truthKey{s.Name, threshold}]
					if !known || truth.Error > MostError || truth.Rate <= 0.2*s.Rate || truth.Rate < 2*Lowest || truth.Rate >= min(before, 1.5*s.Rate) {
						t.Fatalf("%s serves %g: unlikely %+v", s.Name, s.Rate, truth)
					}
					before = truth.Rate
				}
			}
		}
	}
}

// TestTruthsAreFoundAgain checks that shorter runs with another seed find the
// committed truths.
func TestTruthsAreFoundAgain(t *testing.T) {
	quick := effort{calls: 20_000, stalls: 10, windows: 4, mostWindows: 4, error: 1}
	each([]Set{Tuning}, Families(), 1, func(_ int, s *Server) {
		want := truths()[truthKey{s.Name, 0.9}]
		got := s.Seeded(s.Seed^12345).find(0.9, quick)
		const coarse = 0.006 // error of shorter windows
		sigma := math.Hypot(want.Error, got.Error)
		if off := math.Abs(math.Log(got.Rate / want.Rate)); off > coarse+4*sigma {
			t.Errorf("%s: found %g with an error of %g, committed is %g", s.Name, got.Rate, got.Error, want.Rate)
		}
	})
}

// TestQueuesAgreeWithHeavyTraffic compares the truths of queues with heavy
// traffic, in which waits are exponential with mean (ca^2 + cs^2) / (2 mu (1 -
// rho)) (Kingman, The single server queue in heavy traffic, 1961).
func TestQueuesAgreeWithHeavyTraffic(t *testing.T) {
	for _, set := range Sets() {
		for i := range Size {
			s := set.Server(Queue, i)
			variance := 0.0 // of works and of the gaps between calls
			for k, work := range s.work {
				variance += math.Pow(float64(work)-1, 2) / tableSize
				if s.Poisson {
					variance += math.Pow(float64(gaps[k])-1, 2) / tableSize
				}
			}
			below := math.Log(10) * variance / (2 * s.Rate * s.Timeout)
			want, got := s.Rate*(1-below), s.Capacity(Sizing(), 0.9)
			if off := math.Abs(got-want) / s.Rate; off > 0.005+0.3*below {
				t.Errorf("%s serves %g: truth %g, in heavy traffic %g", s.Name, s.Rate, got, want)
			}
		}
	}
}
