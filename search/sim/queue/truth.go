package queue

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
	"vitrine/search/sim"
)

// Thresholds returns the thresholds whose truths are known.
func Thresholds() []float64 { return []float64{0.95, 0.9} }

// A Truth is the capacity of a server at a threshold, found by long runs: the
// highest rate at which the mean success ratio over fresh deployments, in steady
// state, meets the threshold. Deployments are warm, only the lower of two states
// counts, and a drift has not begun.
type Truth struct {
	Server    string
	Threshold float64
	Rate      float64
	Error     float64 // standard error, as a share of Rate
}

// MostError is the largest standard error of a committed truth.
const MostError = 0.0025

// truthsFile is written by "go test -run TestUpdate -update all -timeout 1h ./search/sim/queue".
//
//go:embed truths.json
var truthsFile []byte

type truthKey struct {
	server    string
	threshold float64
}

// truths returns the committed truths.
var truths = sync.OnceValue(func() map[truthKey]Truth {
	all := map[truthKey]Truth{}
	for line := range bytes.Lines(truthsFile) {
		var t Truth
		if err := json.Unmarshal(line, &t); err != nil {
			panic(fmt.Sprintf("queue: truths.json: %v: %s", err, line))
		}
		all[truthKey{t.Server, t.Threshold}] = t
	}
	return all
})

// Capacity implements sim.Subject. It returns 0 for a threshold that is not one
// of Thresholds, and for servers of no Set.
func (s *Server) Capacity(_ vitrine.Sizing, threshold float64) float64 {
	return truths()[truthKey{s.Name, threshold}].Rate
}

// CapacityOver returns the mean capacity over the time since the search began. It
// equals Capacity except for servers that drift.
func (s *Server) CapacityOver(threshold float64, wall time.Duration) float64 {
	t := wall.Seconds()
	mean := s.drifted(t / 2)
	if t > driftEnds {
		mean = (s.drifted(driftEnds/2)*driftEnds + s.drifted(driftEnds)*(t-driftEnds)) / t
	}
	return mean * s.Capacity(Sizing(), threshold)
}

// An effort says how long the runs are that look for a truth.
type effort struct {
	calls       int     // of a window, at least
	stalls      float64 // of a window, about
	windows     int     // independent searches, at least
	mostWindows int
	error       float64 // standard error that ends the search
}

// steady returns how to run the server in steady state: the number of deployments
// over which the mean is taken, and the calls before and in a window.
func (s *Server) steady(e effort) (deployments, before, calls int) {
	deployments, before, calls = 1, e.calls/5, e.calls
	if s.Silent { // the backlog moves slowly near the capacity
		before, calls = e.calls, 4*e.calls
	}
	if s.StallAfter > 0 { // many stalls a window
		calls = max(calls, int(s.Rate*s.StallAfter*e.stalls))
	}
	if s.Luck > 0 {
		const fills = 50 // a queue to its bound, at an overload of a fiftieth
		deployments = 32
		calls = max(calls/deployments, 5_000)
		before = max(before/deployments, 2_000, int(fills*s.Bound*s.Rate))
	}
	return deployments, before, calls
}

// saturation returns the rate that no steady state exceeds while the worker
// serves every call; infinite where it refuses some, or deployments differ.
func (s *Server) saturation() float64 {
	switch {
	case !s.Silent || s.Luck > 0:
		return math.Inf(1)
	case s.Collect > 0:
		return s.Rate / (1 + s.Pause)
	}
	return s.Rate
}

// still returns the server with a steady success ratio: in the lower state, and
// without drift.
func (s *Server) still() *Server {
	other := *s
	other.Drift, other.Warmup = 0, 0
	if s.Lower > 0 {
		other.Rate *= 1 - s.Gap
		other.Lower = 0
	}
	return &other
}

// success returns the mean success ratio at a rate over deployments with equally
// likely speeds.
func (s *Server) success(rate float64, seed uint64, e effort) float64 {
	deployments, before, calls := s.steady(e)
	var scheduled, ok int64
	for i := range deployments {
		z := distuv.UnitNormal.Quantile((float64(i) + 0.5) / float64(deployments))
		d := s.deployAt(math.Exp(s.Luck*z), seed*64+uint64(i))
		d.Run(sim.Trial{Rate: rate, Duration: seconds(float64(before) / rate)})
		o := d.Run(sim.Trial{Rate: rate, Duration: seconds(float64(calls) / rate)})
		scheduled += o.Scheduled
		ok += o.Succeeded
	}
	return float64(ok) / float64(scheduled)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// find looks for the capacity many times with other seeds. The truth is the mean.
func (s *Server) find(threshold float64, e effort) Truth {
	still := s.still()
	low, high := math.Log(0.2*still.Rate), math.Log(2*still.Rate)
	var found []float64
	for {
		x := still.crossing(threshold, low, high, uint64(len(found)+1), e)
		found = append(found, min(x, math.Log(still.saturation())))
		low, high = found[0]-0.05, found[0]+0.05
		mean, sd := stat.MeanStdDev(found, nil)
		n := float64(len(found))
		if len(found) >= e.windows && sd/math.Sqrt(n) <= e.error || len(found) == e.mostWindows {
			return Truth{Server: s.Name, Threshold: threshold, Rate: math.Exp(mean), Error: sd / math.Sqrt(n)}
		}
	}
}

// crossing returns the logarithm of the rate where success falls below the
// threshold, by bisection. It moves the bounds until they hold that rate.
func (s *Server) crossing(threshold, low, high float64, seed uint64, e effort) float64 {
	const fine = 0.0003
	passes := func(x float64) bool { return s.success(math.Exp(x), seed, e) >= threshold }
	for step := 0.1; !passes(low) && step < 10; step *= 2 {
		low, high = low-step, low
	}
	for step := 0.1; passes(high) && step < 10; step *= 2 {
		low, high = high, high+step
	}
	for high-low > fine {
		if middle := (low + high) / 2; passes(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}
