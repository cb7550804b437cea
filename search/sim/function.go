// Package sim simulates network functions whose capacity is known, so that
// searches can be judged against the truth. It is pure: the same function and
// the same trials in the same order give the same outcomes, in simulated time.
package sim

import (
	"math"

	"vitrine"
)

// A Component describes the cost of one kind of instance.
type Component struct {
	vitrine.Component
	Demand  float64 // CPU seconds a call, of one instance alone
	Idle    float64 // CPUs of an instance without load
	Cluster float64 // Demand grows by this share with each doubling of the instances
	Skew    float64 // the busiest of n instances gets (1 + Skew*(n-1))/n of the calls; 0: even
	Threads float64 // most CPUs an instance can use; 0: all it is given

	Memory        float64 // bytes of an instance without load
	MemoryPerCall float64 // bytes more for each call a second
	BytesPerCall  float64 // received, and as much sent
}

// Noise describes how trials differ. Every field except Hold and Drift is a
// relative standard deviation.
type Noise struct {
	Deployment float64 // of the capacity, from one fresh deployment to the next
	Second     float64 // of the capacity, from second to second
	Hold       float64 // how much of a second's deviation the next one keeps, 0..1: bad seconds come in clusters
	Use        float64 // of the readings of CPU, memory and network
	Drift      float64 // what the capacity gains in an hour, as a share of itself: the host changes
}

// Memory describes what an overload leaves behind in a deployment. A function
// under strain carries less. The strain lasts as long as many calls fail: less
// load, rest or a fresh deployment ends it.
type Memory struct {
	Damage   float64 // share of the capacity that full strain takes, 0..1; 0: nothing lingers
	Bears    float64 // share of the calls that may fail without strain, 0..1
	Onset    float64 // seconds of overload after which strain is at 63%; 0: at once
	Recovery float64 // seconds after which 63% of the strain is gone; 0: only a fresh deployment ends it
}

// A Function is a simulated network function.
type Function struct {
	Components []Component
	Flavors    []vitrine.Flavor
	Noise      Noise
	// Collapse is the exponent with which success falls beyond the capacity:
	// (capacity/rate) to this power. 1 saturates: goodput stays. 2 collapses:
	// goodput falls as the rate grows, because refusing calls costs as well.
	Collapse float64
	// Buffer rounds the knee: calls arrive at random and find so many places, so
	// that some are lost before the bottleneck's CPU is used up; 0: calls arrive
	// evenly, and none are lost.
	Buffer  int
	Loss    float64 // share of the calls that fail at any rate
	Queue   float64 // seconds' worth of calls that wait before one fails: overload shows late
	Memory  Memory
	Warmup  int     // seconds of load before a trial's window
	Ceiling float64 // highest rate the generator can offer; 0: any
	Seed    uint64
}

// Resources returns the resources of all instances of the sizing.
func (f *Function) Resources(sizing vitrine.Sizing) vitrine.Resources {
	var total vitrine.Resources
	for _, p := range sizing {
		flavor := f.flavor(p.Initial)
		total.VCPUs += float64(p.Count) * flavor.VCPUs
		total.Memory += int64(p.Count) * flavor.Memory
	}
	return total
}

func (f *Function) flavor(initial byte) vitrine.Flavor {
	for _, flavor := range f.Flavors {
		if flavor.Initial() == initial {
			return flavor
		}
	}
	return vitrine.Flavor{}
}

// Saturation returns the rate at which the sizing's bottleneck has no CPU to
// spare.
func (f *Function) Saturation(sizing vitrine.Sizing) float64 {
	lowest := math.Inf(1)
	for _, c := range f.Components {
		if p := sizing.Part(c.Short); p != nil {
			lowest = min(lowest, c.saturation(p.Count, f.flavor(p.Initial)))
		}
	}
	return lowest
}

// Success returns the success ratio of an endless trial at the rate on a fresh
// deployment, without noise and drift.
func (f *Function) Success(sizing vitrine.Sizing, rate float64) float64 {
	saturation := f.Saturation(sizing)
	ok := f.carried(rate / saturation)
	if f.Memory.Damage > 0 && 1-ok > f.Memory.Bears {
		ok = f.carried(rate / (saturation * (1 - f.Memory.Damage)))
	}
	return ok * (1 - f.Loss)
}

// Capacity returns the true capacity: the highest rate with a Success of at least
// the threshold. It is 0 when Loss alone is too much.
func (f *Function) Capacity(sizing vitrine.Sizing, threshold float64) float64 {
	low, high := 0.0, f.Saturation(sizing)
	switch {
	case 1-f.Loss < threshold || high <= 0:
		return 0
	case math.IsInf(high, 1):
		return high
	}
	const doublings = 60 // of the saturation, and then halvings
	for n := 0; n < doublings && f.Success(sizing, high) >= threshold; n++ {
		low, high = high, 2*high
	}
	for range doublings {
		if middle := (low + high) / 2; f.Success(sizing, middle) >= threshold {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// carried returns the share of the calls that succeed in the long run at a load,
// which is the rate over the saturation, without strain.
func (f *Function) carried(load float64) float64 {
	ok := f.chance(load)
	if load > 1 {
		ok *= math.Pow(load, -f.Collapse)
	}
	return ok
}

// chance returns the share of the calls that are not lost because of random
// arrivals: what a queue with Buffer places carries at the load (M/M/1/K; Gross
// and Harris, Fundamentals of Queueing Theory, section 2.5), over what it would
// carry with even arrivals.
func (f *Function) chance(load float64) float64 {
	k := float64(f.Buffer)
	switch {
	case f.Buffer == 0 || load <= 0:
		return 1
	case math.Abs(load-1) < 1e-9:
		return k / (k + 1)
	case load < 1:
		return 1 - (1-load)*math.Pow(load, k)/(1-math.Pow(load, k+1))
	default: // in terms of the inverse, whose powers stay small
		inverse := 1 / load
		return (1 - math.Pow(inverse, k)) / (1 - math.Pow(inverse, k+1))
	}
}

// saturation returns the rate at which the busiest of n instances is fully used.
func (c Component) saturation(n int, flavor vitrine.Flavor) float64 {
	usable := flavor.VCPUs
	if c.Threads > 0 {
		usable = min(usable, c.Threads)
	}
	return max(0, usable-c.Idle) / (c.demand(n) * c.share(n, 0))
}

// demand returns the CPU seconds that a call costs one of n instances.
func (c Component) demand(n int) float64 {
	return c.Demand * (1 + c.Cluster*math.Log2(float64(n)))
}

// share returns the part of the calls that the i-th of n instances gets, from 0;
// the first is the busiest.
func (c Component) share(n, i int) float64 {
	busiest := min(1, (1+c.Skew*float64(n-1))/float64(n))
	if i == 0 {
		return busiest
	}
	return (1 - busiest) / float64(n-1)
}
