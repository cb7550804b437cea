package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"vitrine"
)

// A Trial describes one trial of a simulated function.
type Trial struct {
	Sizing   vitrine.Sizing
	Rate     float64 // calls a second
	Duration time.Duration
	Poisson  bool // the number of calls in a second varies as in a Poisson process; Function.Buffer models chance within a second
	Repeat   int  // the deployment: trials of one repeat share its deviation
	Attempt  int
}

// Run returns the outcome of the trial on a deployment made for it alone. Seq and
// Use's Missing are left empty.
func (f *Function) Run(t Trial) vitrine.Outcome {
	return f.Deploy(t.Sizing, t.Repeat, 0).Run(t)
}

// A deployed is a function deployed at a sizing. It remembers its load.
type deployed struct {
	f        *Function
	capacity float64 // calls a second, without strain and drift
	queue    queue
	strain   float64 // 0..1
	now      float64 // seconds since the first deployment of the search
}

// Deploy implements Subject.
func (f *Function) Deploy(sizing vitrine.Sizing, repeat int, at time.Duration) Deployment {
	luck := f.random(Trial{Sizing: sizing, Repeat: repeat}, "deployment").NormFloat64()
	return &deployed{f: f, capacity: f.Saturation(sizing) * math.Exp(f.Noise.Deployment*luck), now: at.Seconds()}
}

// Rest implements Deployment: the function serves its queue and recovers from
// strain.
func (d *deployed) Rest(idle time.Duration) {
	seconds := idle.Seconds()
	d.now += seconds
	d.queue.waiting = max(0, d.queue.waiting-d.serves()*seconds)
	d.relax(seconds)
}

// Run implements Deployment. A load that does not last whole seconds ends with a
// shorter second.
func (d *deployed) Run(t Trial) vitrine.Outcome {
	f := d.f
	random := f.random(t, "trial")
	o := vitrine.Outcome{
		Key:      vitrine.Key{Attempt: t.Attempt, Substrate: "sim", Subject: t.Sizing.String(), Repeat: t.Repeat, Rate: t.Rate},
		Duration: t.Duration,
		Failed:   map[string]int64{},
		Valid:    true,
	}
	offered := t.Rate
	if f.Ceiling > 0 {
		offered = min(offered, f.Ceiling)
	}
	deviation := random.NormFloat64()
	end := float64(f.Warmup) + t.Duration.Seconds()
	for begin := 0.0; begin < end; begin++ {
		length := min(1, end-begin)
		busy := 1.0 // calls of the second, divided by their mean
		if t.Poisson {
			busy = poisson(random, t.Rate*length) / (t.Rate * length)
		}
		before := d.queue.waiting
		ok := d.pass(offered*busy, math.Exp(f.Noise.Second*deviation), length)
		keep := f.Noise.Hold
		deviation = keep*deviation + math.Sqrt(1-keep*keep)*random.NormFloat64()
		if begin >= float64(f.Warmup) {
			o.Seconds = append(o.Seconds, count(random, t.Rate*length*busy, offered*length*busy, ok))
			served := offered * idleLatency(offered, d.serves()) / 1000 // by Little's law
			o.InFlight = append(o.InFlight, waitingOver(before, d.queue.waiting, served, length)...)
		}
	}
	total(&o)
	if offered < 0.99*t.Rate {
		o.Valid = false
		o.Reason = fmt.Sprintf("generator: offered %.2f of its schedule", offered/t.Rate)
	}
	o.Latency = d.queue.latency(offered, d.serves())
	o.Use = f.use(t.Sizing, min(offered, d.serves()), random)
	return o
}

// waitingOver returns the calls in flight over at most a second, in which the
// queue changes linearly and served calls are being served.
func waitingOver(before, after, served, seconds float64) []int64 {
	n := int(math.Round(seconds / vitrine.InFlightEvery.Seconds()))
	counts := make([]int64, n)
	for i := range counts {
		counts[i] = int64(math.Round(served + before + (after-before)*float64(i)/float64(n)))
	}
	return counts
}

// serves returns the rate that the deployment could carry now, without noise.
func (d *deployed) serves() float64 {
	hours := d.now / 3600
	return max(0, d.capacity*(1-d.f.Memory.Damage*d.strain)*(1+d.f.Noise.Drift*hours))
}

// pass offers calls for at most a second, and returns the share of them that will
// succeed.
func (d *deployed) pass(offered, luck, seconds float64) float64 {
	f := d.f
	if offered == 0 {
		d.Rest(time.Duration(seconds * float64(time.Second)))
		return 1
	}
	serves := d.serves() * luck
	ok := f.chance(offered/serves) * d.queue.pass(offered, serves, f, seconds)
	d.now += seconds
	if 1-ok > f.Memory.Bears {
		d.strain = approach(d.strain, 1, seconds, f.Memory.Onset)
	} else {
		d.relax(seconds)
	}
	return ok * (1 - f.Loss)
}

// relax lets the function recover from strain.
func (d *deployed) relax(seconds float64) {
	if d.f.Memory.Recovery > 0 {
		d.strain = approach(d.strain, 0, seconds, d.f.Memory.Recovery)
	}
}

// approach moves a value towards another, by 63% within takes seconds.
func approach(from, to, seconds, takes float64) float64 {
	if takes <= 0 {
		return to
	}
	return to + (from-to)*math.Exp(-seconds/takes)
}

// random returns a separate source for each trial and purpose, so that random
// numbers do not depend on earlier trials.
func (f *Function) random(t Trial, purpose string) *rand.Rand {
	return random(f.Seed, t, purpose)
}

func random(seed uint64, t Trial, purpose string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %g %d %d", purpose, t.Sizing, t.Rate, t.Repeat, t.Attempt) // a hash accepts every write
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// A queue holds the calls that wait for the bottleneck.
type queue struct{ waiting float64 }

// pass offers calls to a bottleneck that serves serves calls a second, and
// returns the share that finds a place.
func (q *queue) pass(offered, serves float64, f *Function, seconds float64) float64 {
	carried := serves
	if offered > serves {
		carried *= math.Pow(serves/offered, f.Collapse-1)
	}
	holds := f.Queue * serves
	q.waiting += (offered - carried) * seconds
	lost := max(0, q.waiting-holds)
	q.waiting = min(max(0, q.waiting), holds)
	return max(0, 1-lost/(offered*seconds))
}

// latency grows as a single server's does, and with the queue, in milliseconds.
func (q *queue) latency(offered, serves float64) vitrine.Latency {
	mean := idleLatency(offered, serves) + 1000*q.waiting/serves
	return vitrine.Latency{P50: mean * math.Ln2, P95: mean * -math.Log(0.05), P99: mean * -math.Log(0.01)}
}

// idleLatency returns the mean latency when no call waits, in milliseconds.
func idleLatency(offered, serves float64) float64 {
	const idle = 2.0
	return idle / (1 - min(offered/serves, 0.99))
}

// count draws the calls of at most a second.
func count(random *rand.Rand, scheduled, offered, ok float64) vitrine.Second {
	if scheduled == 0 {
		return vitrine.Second{}
	}
	s := vitrine.Second{Scheduled: whole(random, scheduled)}
	s.Offered = min(s.Scheduled, int64(math.Round(float64(s.Scheduled)*offered/scheduled)))
	n := float64(s.Offered)
	s.Succeeded = int64(math.Round(n*ok + math.Sqrt(n*ok*(1-ok))*random.NormFloat64()))
	s.Succeeded = min(max(0, s.Succeeded), s.Offered)
	s.Failed = s.Offered - s.Succeeded
	return s
}

// poisson draws a number of calls with the given mean.
func poisson(random *rand.Rand, mean float64) float64 {
	n := -1.0
	for at := 0.0; at < mean; n++ {
		at += random.ExpFloat64()
	}
	return max(0, n)
}

// whole rounds up or down at random, so that the mean is kept.
func whole(random *rand.Rand, x float64) int64 {
	n := math.Floor(x)
	if random.Float64() < x-n {
		n++
	}
	return int64(n)
}

// total sums the seconds into the outcome's totals.
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

// use returns what the instances use while the function carries the rate.
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
				return new(x * max(0, 1+f.Noise.Use*random.NormFloat64()))
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
