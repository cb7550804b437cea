// Package queue simulates servers call by call: arrivals, a queue, a worker, and
// clients that give up. Success is a result of these and does not follow a curve
// that a search could fit. So searches are judged here without their own
// assumptions. It is pure: the same server and the same trials in the same order
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

// A Server is one simulated function. Times are in seconds. Work is in seconds of
// a worker that never pauses.
type Server struct {
	Family string
	Name   string // "tuning/gc/7": key of its truth
	Seed   uint64 // of deployments and calls

	Rate     float64 // calls a second that the worker serves, without the effects below
	CV       float64 // coefficient of variation of a call's work, about
	Poisson  bool    // calls arrive at random; false: paced
	Timeout  float64 // of the client, from sending a call to its answer
	Bound    float64 // a call that would wait longer is refused
	Silent   bool    // refused without an answer: the client waits for its timeout
	Refusal  float64 // work of refusing a call, as a share of serving one
	Warmup   float64 // load before a trial's window
	Requests int     // of a call, one after the other
	Think    float64 // between an answer and the next request of the call

	Period, Share float64 // CPU quota: the worker runs for Share of each Period; 0: always

	Collect, Pause float64 // a pause after about so much work, and its length as a share of that work

	Cold, Warming float64 // calls of a fresh deployment take this share more work; this many served calls lower it by 63%

	Lower, Gap float64 // a deployment is with probability Lower in a state whose rate is lower by this share

	Luck  float64 // standard deviation of the logarithm of the rate, between deployments
	Drift float64 // what the rate gains in an hour, as a share of itself

	StallAfter float64 // mean work between two stalls at full load; 0: never

	work [tableSize]float32 // equally likely work of a request, as a share of the mean
}

// tableSize is the number of values that represent a distribution; a power of
// two.
const tableSize = 4096

// gaps are equally likely values of an exponential distribution with mean 1.
var gaps = quantiles(func(p float64) float64 { return -math.Log1p(-p) })

// quantiles returns tableSize equally likely values of a distribution, scaled to
// a mean of 1.
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

// prepare fills the table of work with log-normal values.
func (s *Server) prepare() {
	sigma := math.Sqrt(math.Log1p(s.CV * s.CV))
	s.work = quantiles(func(p float64) float64 { return math.Exp(sigma * distuv.UnitNormal.Quantile(p)) })
}

// Seeded returns the same server with another seed.
func (s *Server) Seeded(seed uint64) *Server {
	other := *s
	other.Seed = seed
	return &other
}

// Sizing returns the sizing of every server.
func Sizing() vitrine.Sizing { return sim.Population{}.Sizing() }

// Resources implements sim.Subject.
func (s *Server) Resources(vitrine.Sizing) vitrine.Resources {
	return vitrine.Resources{VCPUs: s.vcpus(), Memory: 1 << 30}
}

// vcpus returns the CPUs of the server.
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

// deployAt makes a deployment with a given speed and a warm cache. Deployments
// differ by their seed.
func (s *Server) deployAt(speed float64, seed uint64) *deployment {
	d := &deployment{Server: s}
	d.random.Seed(s.Seed, seed)
	d.begin(speed)
	return d
}

// driftEnds is when a drift ends, in seconds since the search began.
const driftEnds = 7200

// drifted returns the rate at a time as a share of the first one.
func (s *Server) drifted(at float64) float64 {
	return 1 + s.Drift/3600*min(at, driftEnds)
}
