package sim

import (
	"fmt"
	"math"
	"math/rand/v2"

	"vitrine"
	"vitrine/search/size"
)

// A Cluster is a function of several components and the space of its sizings, to
// try searches of sizes on.
type Cluster struct {
	*Function
	Space size.Space
}

// leastSizings is the fewest sizings of a drawn cluster.
const leastSizings = 250

// DrawCluster draws a function of 3 to 5 components with hundreds of sizings.
// Components differ in demand by up to 10:1. Clustering costs them from nothing
// to as much as a second instance brings. Some spread their calls unevenly, some
// cannot use all CPUs of a large flavor. The same seed gives the same cluster.
func DrawCluster(seed uint64) Cluster {
	random := rand.New(rand.NewPCG(seed, 5))
	between := func(low, high float64) float64 { return low + (high-low)*random.Float64() }
	c := Cluster{Function: &Function{
		Flavors: []vitrine.Flavor{
			{Name: "small", VCPUs: 1, Memory: 2 << 30},
			{Name: "medium", VCPUs: 2, Memory: 4 << 30},
			{Name: "large", VCPUs: 4, Memory: 8 << 30},
		},
		Noise:    Noise{Deployment: 0.015, Second: 0.03, Hold: 0.5, Use: 0.02},
		Collapse: float64(1 + random.IntN(2)),
		Seed:     random.Uint64(),
	}}
	c.Space = size.Space{Flavors: c.Flavors, MaxCount: 4}
	for i := range 3 + random.IntN(3) {
		component := Component{
			Component: vitrine.Component{Name: fmt.Sprintf("part%d", i+1), Short: string(rune('a' + i)), Scalable: true},
			Demand:    1 / (100 * math.Pow(10, random.Float64())),
			Idle:      between(0, 0.15),
			Memory:    400 << 20, MemoryPerCall: 50 << 10, BytesPerCall: 6 << 10,
		}
		if random.Float64() < 0.8 {
			component.Cluster = math.Pow(10, between(-2, 0))
		}
		if random.Float64() < 0.4 {
			component.Skew = between(0, 0.3)
		}
		if random.Float64() < 0.3 {
			component.Threads = between(0.8, 4)
		}
		c.Components = append(c.Components, component)
		c.Space.Components = append(c.Space.Components, component.Component)
	}
	for vcpus := len(c.Components); ; vcpus++ {
		c.Space.Limit.VCPUs = float64(vcpus)
		if len(c.Sizings()) >= leastSizings {
			return c
		}
	}
}

// Sizings returns all sizings of the cluster's space.
func (c Cluster) Sizings() []vitrine.Sizing {
	all, err := size.NewExhaustive(c.Space)
	if err != nil {
		return nil // too small yet
	}
	return all.(size.Planner).Plan()
}
