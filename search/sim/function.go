// Package sim simulates network functions whose capacity is known, so that
// searches can be judged against the truth. It is pure: the same function and
// trial give the same outcome.
package sim

import (
	"math"

	"vitrine"
)

// A Component is what one kind of instance costs.
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

// Noise is what makes trials differ. Every field is a relative standard
// deviation but Hold.
type Noise struct {
	Deployment float64 // of the capacity, from one fresh deployment to the next
	Second     float64 // of the capacity, from second to second
	Hold       float64 // how much of a second's deviation the next one keeps, 0..1
	Use        float64 // of what is read of CPU, memory and network
}

// A Function is a simulated network function.
type Function struct {
	Components []Component
	Flavors    []vitrine.Flavor
	Noise      Noise
	// Collapse is how success falls beyond the capacity, as (capacity/rate) to
	// this power. 1 saturates: goodput stays. 2 collapses: goodput falls as the
	// rate grows, for refusing calls costs as well.
	Collapse float64
	Loss     float64 // share of the calls that fail at any rate
	Queue    float64 // seconds' worth of calls that wait before one fails
	Warmup   int     // seconds of load before a trial's window
	Ceiling  float64 // highest rate the generator can offer; 0: any
	Seed     uint64
}

// Resources is what the sizing's instances are given together.
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

// Saturation is the rate at which the sizing's bottleneck has no CPU to spare.
func (f *Function) Saturation(sizing vitrine.Sizing) float64 {
	lowest := math.Inf(1)
	for _, c := range f.Components {
		if p := sizing.Part(c.Short); p != nil {
			lowest = min(lowest, c.saturation(p.Count, f.flavor(p.Initial)))
		}
	}
	return lowest
}

// Capacity is the true capacity: the highest rate at which, but for noise, the
// success ratio is at least the threshold. 0 when Loss alone is too much.
func (f *Function) Capacity(sizing vitrine.Sizing, threshold float64) float64 {
	if 1-f.Loss < threshold {
		return 0
	}
	return f.Saturation(sizing) * math.Pow((1-f.Loss)/threshold, 1/f.Collapse)
}

// saturation is the rate at which the busiest of n instances is fully used.
func (c Component) saturation(n int, flavor vitrine.Flavor) float64 {
	usable := flavor.VCPUs
	if c.Threads > 0 {
		usable = min(usable, c.Threads)
	}
	return max(0, usable-c.Idle) / (c.demand(n) * c.share(n, 0))
}

// demand is the CPU seconds that a call costs one of n instances.
func (c Component) demand(n int) float64 {
	return c.Demand * (1 + c.Cluster*math.Log2(float64(n)))
}

// share is the part of the calls that the i-th of n instances gets, from 0; the
// first is the busiest.
func (c Component) share(n, i int) float64 {
	busiest := min(1, (1+c.Skew*float64(n-1))/float64(n))
	if i == 0 {
		return busiest
	}
	return (1 - busiest) / float64(n-1)
}
