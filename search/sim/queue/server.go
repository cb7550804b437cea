// Package queue simulates servers call by call: arrivals, a queue, a worker,
// and clients that give up. What succeeds follows from that and is no curve
// that a search could fit, so that searches are judged here on what they do not
// assume. It is pure: the same server and the same trials in the same order
// give the same outcomes.
package queue

import (
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
	"vitrine/search/sim"
)

// A Server is one simulated function. Times are in seconds, works in seconds of
// a worker that never pauses.
type Server struct {
	Family string
	Name   string // "tuning/gc/7": of its truth
	Seed   uint64 // of deployments and calls

	Rate     float64 // calls a second that the worker serves, without what follows
	CV       float64 // coefficient of variation of a call's work, about
	Poisson  bool    // calls come at random; false: paced
	Timeout  float64 // of the client, from sending a call to its answer
	Bound    float64 // a call that would wait longer is turned away
	Silent   bool    // turned away without an answer: the client waits for its timeout
	Refusal  float64 // work of turning a call away, as a share of serving one
	Warmup   float64 // load before a trial's window
	Requests int     // of a call, one after the other
	Think    float64 // between an answer and the next request of the call

	Period, Share float64 // CPU quota: the worker runs for Share of each Period; 0: always

	Collect, Pause float64 // a pause after about so much work, and its length as a share of that

	Cold, Warming float64 // a fresh deployment's calls take this share more work, which so many served calls lower by 63%

	Lower, Gap float64 // a deployment is with probability Lower in a state that serves this share less

	Luck  float64 // standard deviation of the logarithm of the rate, between deployments
	Drift float64 // what the rate gains in an hour, as a share of itself

	StallAfter float64 // a stall comes on average after so much work at full load; 0: never

	work [tableSize]float32 // equally likely works of a request, as shares of their mean
}

// tableSize is how many values stand for a distribution; a power of two.
const tableSize = 4096

// gaps are equally likely values of an exponential distribution with mean 1.
var gaps = quantiles(func(p float64) float64 { return -math.Log1p(-p) })

// quantiles are tableSize equally likely values of a distribution, scaled to a
// mean of 1.
func quantiles(inverse func(p float64) float64) (table [tableSize]float32) {
	var values [tableSize]float64
	sum := 0.0
	for i := range values {
		values[i] = inverse((float64(i) + 0.5) / tableSize)
		sum += values[i]
	}
	for i, v := range values {
		table[i] = float32(v * tableSize / sum)
	}
	return table
}

// prepare draws up the table of works: log-normal ones.
func (s *Server) prepare() {
	sigma := math.Sqrt(math.Log1p(s.CV * s.CV))
	s.work = quantiles(func(p float64) float64 { return math.Exp(sigma * distuv.UnitNormal.Quantile(p)) })
}

// Seeded is the same server with other luck.
func (s *Server) Seeded(seed uint64) *Server {
	other := *s
	other.Seed = seed
	return &other
}

// Sizing is the one that every server has.
func Sizing() vitrine.Sizing { return sim.Population{}.Sizing() }

// Resources implements sim.Subject.
func (s *Server) Resources(vitrine.Sizing) vitrine.Resources {
	return vitrine.Resources{VCPUs: s.vcpus(), Memory: 1 << 30}
}

// vcpus is what the server is given.
func (s *Server) vcpus() float64 {
	if s.Share > 0 {
		return s.Share
	}
	return 1
}

// Deploy implements sim.Subject.
func (s *Server) Deploy(_ vitrine.Sizing, repeat int, at time.Duration) sim.Deployment {
	d := &deployment{Server: s, now: at.Seconds(), free: at.Seconds(), cold: s.Cold}
	d.random.Seed(s.Seed, uint64(repeat))
	luck := rand.New(&d.random)
	speed := math.Exp(s.Luck * luck.NormFloat64())
	if luck.Float64() < s.Lower {
		speed *= 1 - s.Gap
	}
	d.begin(speed)
	return d
}

// deployAt makes a deployment whose luck is known: its speed, and a warm cache.
// Seed tells one from the other.
func (s *Server) deployAt(speed float64, seed uint64) *deployment {
	d := &deployment{Server: s}
	d.random.Seed(s.Seed, seed)
	d.begin(speed)
	return d
}

// driftEnds is when a drift ends, in seconds after the search began.
const driftEnds = 7200

// drifted is the rate at a time as a share of the first one.
func (s *Server) drifted(at float64) float64 {
	return 1 + s.Drift/3600*min(at, driftEnds)
}
