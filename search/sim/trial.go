package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"vitrine"
)

// A Trial is what is asked of a simulated function.
type Trial struct {
	Sizing   vitrine.Sizing
	Rate     float64 // calls a second
	Duration time.Duration
	Repeat   int // the deployment: trials of one repeat share its luck
	Attempt  int
}

// Run gives the trial's outcome. Seq and Use's Missing are left empty.
func (f *Function) Run(t Trial) vitrine.Outcome {
	random := f.random(t, "trial")
	luck := math.Exp(f.Noise.Deployment * f.random(Trial{Sizing: t.Sizing, Repeat: t.Repeat}, "deployment").NormFloat64())
	capacity := f.Saturation(t.Sizing) * luck

	o := vitrine.Outcome{
		Key:      vitrine.Key{Attempt: t.Attempt, Substrate: "sim", Sizing: t.Sizing.String(), Repeat: t.Repeat, Rate: t.Rate},
		Duration: t.Duration,
		Failed:   map[string]int64{},
		Valid:    true,
	}
	offered := t.Rate
	if f.Ceiling > 0 {
		offered = min(offered, f.Ceiling)
	}
	q := queue{capacity: capacity, holds: f.Queue * capacity, collapse: f.Collapse}
	deviation := random.NormFloat64()
	for second := range f.Warmup + int(t.Duration.Seconds()) {
		ok := q.pass(offered, math.Exp(f.Noise.Second*deviation)) * (1 - f.Loss)
		keep := f.Noise.Hold
		deviation = keep*deviation + math.Sqrt(1-keep*keep)*random.NormFloat64()
		if second >= f.Warmup {
			o.Seconds = append(o.Seconds, count(random, t.Rate, offered, ok))
		}
	}
	total(&o)
	if offered < 0.99*t.Rate {
		o.Valid = false
		o.Reason = fmt.Sprintf("generator: offered %.2f of its schedule", offered/t.Rate)
	}
	o.Latency = q.latency(offered)
	o.Use = f.use(t.Sizing, min(offered, capacity), random)
	return o
}

// random is a source of its own for each trial and purpose, so that an outcome
// does not depend on what was run before it.
func (f *Function) random(t Trial, purpose string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %g %d %d", purpose, t.Sizing, t.Rate, t.Repeat, t.Attempt) // a hash takes every write
	return rand.New(rand.NewPCG(f.Seed, h.Sum64()))
}

// A queue is the calls that wait for the bottleneck.
type queue struct {
	capacity float64 // calls a second
	holds    float64 // calls
	waiting  float64
	collapse float64
}

// pass offers one second of calls and gives the share that will succeed.
func (q *queue) pass(offered, luck float64) float64 {
	serves := q.capacity * luck
	if offered > serves {
		serves *= math.Pow(serves/offered, q.collapse-1)
	}
	q.waiting += offered - serves
	lost := max(0, q.waiting-q.holds)
	q.waiting = min(max(0, q.waiting), q.holds)
	return max(0, 1-lost/offered)
}

// latency grows as a single server's does, and with what waits, in milliseconds.
func (q *queue) latency(offered float64) vitrine.Latency {
	const idle = 2.0
	load := min(offered/q.capacity, 0.99)
	mean := idle/(1-load) + 1000*q.waiting/q.capacity
	return vitrine.Latency{P50: mean * math.Ln2, P95: mean * -math.Log(0.05), P99: mean * -math.Log(0.01)}
}

// count draws one second's calls.
func count(random *rand.Rand, rate, offered, ok float64) vitrine.Second {
	s := vitrine.Second{Scheduled: whole(random, rate)}
	s.Offered = min(s.Scheduled, int64(math.Round(float64(s.Scheduled)*offered/rate)))
	n := float64(s.Offered)
	s.Succeeded = int64(math.Round(n*ok + math.Sqrt(n*ok*(1-ok))*random.NormFloat64()))
	s.Succeeded = min(max(0, s.Succeeded), s.Offered)
	s.Failed = s.Offered - s.Succeeded
	return s
}

// whole rounds up or down, so that the mean is kept.
func whole(random *rand.Rand, x float64) int64 {
	n := math.Floor(x)
	if random.Float64() < x-n {
		n++
	}
	return int64(n)
}

// total adds the seconds up.
func total(o *vitrine.Outcome) {
	for _, s := range o.Seconds {
		o.Scheduled += s.Scheduled
		o.Offered += s.Offered
		o.Succeeded += s.Succeeded
		if s.Failed > 0 {
			o.Failed["503"] += s.Failed
		}
	}
}

// use is what the instances use while the function carries the rate.
func (f *Function) use(sizing vitrine.Sizing, carried float64, random *rand.Rand) map[string]vitrine.Use {
	use := map[string]vitrine.Use{}
	for _, c := range f.Components {
		part := sizing.Part(c.Short)
		if part == nil {
			continue
		}
		flavor := f.flavor(part.Initial)
		for i := range part.Count {
			rate := carried * c.share(part.Count, i)
			noisy := func(x float64) *float64 {
				x *= max(0, 1+f.Noise.Use*random.NormFloat64())
				return &x
			}
			u := vitrine.Use{
				Component: c.Name,
				VCPUs:     flavor.VCPUs, MemoryLimit: flavor.Memory,
				CPU:     noisy(min(c.Idle+rate*c.demand(part.Count), flavor.VCPUs)),
				Memory:  noisy(c.Memory + rate*c.MemoryPerCall),
				RxBytes: noisy(rate * c.BytesPerCall),
				TxBytes: noisy(rate * c.BytesPerCall),
			}
			use[fmt.Sprintf("%s-%d", c.Name, i+1)] = u
		}
	}
	return use
}
