package queue

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// The families of servers.
const (
	Queue    = "queue"     // the worker serves calls whose clients have given up
	Refusal  = "refusal"   // calls that would wait long are refused early, at some cost
	Quota    = "quota"     // the worker runs for a share of each CFS period
	GC       = "gc"        // pauses in proportion to the work done
	Warm     = "warm"      // a fresh deployment is slower until its cache is warm
	Steps    = "steps"     // a call is three requests: any refused one fails it
	TwoState = "two-state" // a deployment is in the lower of two states with a probability of at least 0.5
	Luck     = "luck"      // deployments differ
	Drift    = "drift"     // the rate drifts slowly
	Episodes = "episodes"  // stalls of 1 to 3 s, more often under load
)

// Families returns all families.
func Families() []string {
	return []string{Queue, Refusal, Quota, GC, Warm, Steps, TwoState, Luck, Drift, Episodes}
}

// A Set is servers drawn from one seed, Size of each family.
type Set string

// The sets of servers. HeldOut is for judging only: no search is tuned on it. A
// held-out set whose servers someone has looked at gets another name here, and
// so other servers; this is the second.
const (
	Tuning  Set = "tuning"
	HeldOut Set = "held-out-2"
)

// Size is the number of servers of a family in a set.
const Size = 20

// Sets returns all sets.
func Sets() []Set { return []Set{Tuning, HeldOut} }

// Rates of the servers' workers, calls a second.
const lowestRate, highestRate = 50.0, 2000.0

// The range of rates that a search is given. It holds the capacities of all servers.
const (
	Lowest  = 5.0
	Highest = 6000.0
)

// Server returns the i-th server of the family in the set, from 0. It panics if
// the family is unknown.
func (set Set) Server(family string, i int) *Server {
	name := fmt.Sprintf("%s/%s/%d", set, family, i)
	h := fnv.New64a()
	h.Write([]byte(name))
	random := rand.New(rand.NewPCG(h.Sum64(), 11))
	between := func(low, high float64) float64 { return low + (high-low)*random.Float64() }
	s := &Server{
		Family: family, Name: name, Seed: random.Uint64(), Requests: 1, Warmup: Costs().Warmup.Seconds(),
		Rate:    lowestRate * math.Pow(highestRate/lowestRate, random.Float64()),
		CV:      between(0.3, 2),
		Poisson: random.Float64() < 0.5,
	}
	if family == Queue || family != Refusal && family != Warm && family != Steps && family != Episodes && random.Float64() < 0.5 {
		s.serveLate(between)
	} else {
		s.refuse(between)
	}
	switch family {
	case Queue, Refusal:
	case Quota:
		s.Period, s.Share = between(0.02, 0.1), between(0.1, 0.8)
		s.Bound = max(s.Bound, 1.5*s.Period)
		s.Timeout = max(s.Timeout, 2*s.Period)
	case GC:
		s.Collect, s.Pause = between(0.2, 1), between(0.03, 0.15)
	case Warm:
		s.Cold, s.Warming = between(0.1, 0.6), s.Rate*math.Exp(between(math.Log(1), math.Log(15)))
	case Steps:
		s.Requests, s.Think = 3, between(0.001, 0.02)
		s.Timeout *= 3
	case TwoState:
		s.Lower, s.Gap, s.Luck = between(0.5, 0.8), between(0.1, 0.4), between(0, 0.01)
	case Luck:
		s.Luck = between(0, 0.1)
	case Drift:
		s.Drift = between(0.01, 0.06)
		if random.Float64() < 0.5 {
			s.Drift = -s.Drift
		}
	case Episodes:
		s.StallAfter = between(30, 120)
	default:
		panic("queue: no family " + family)
	}
	s.prepare()
	return s
}

// serveLate makes the worker serve every call, however late. The backlog that
// fits the timeout is limited in calls. Otherwise overload would take minutes to
// show.
func (s *Server) serveLate(between func(low, high float64) float64) {
	s.Timeout = min(max(between(0.3, 2), 20/s.Rate), 300/s.Rate)
	s.Bound = s.Timeout * between(2, 5) // a full buffer
	s.Silent = true
}

// refuse makes the server refuse calls at once that would wait long.
func (s *Server) refuse(between func(low, high float64) float64) {
	s.Bound = max(between(0.03, 0.4), 6/s.Rate)
	s.Timeout = s.Bound * between(2, 5)
	s.Refusal = between(0.005, 0.1)
}
