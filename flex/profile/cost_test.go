package profile

import (
	"math"
	"testing"

	"vitrine"
)

// TestCostIsThatOfTheMembers checks that the CPU cost of an instance is the sum over its members,
// including the cost of clustering. A profile that lacks a member must give no cost.
func TestCostIsThatOfTheMembers(t *testing.T) {
	z := vitrine.SizeProfile{Sizing: "sp2s-hs1s"}
	p := &vitrine.Profile{Settings: []vitrine.Setting{{Sizes: []vitrine.SizeProfile{z}, Components: []vitrine.ComponentProfile{
		{Name: "sprout", Demand: vitrine.Estimate{Value: 0.004}, Idle: vitrine.Estimate{Value: 0.01},
			Clustering: []vitrine.ClusteringCost{{Instances: 2, Factor: vitrine.Estimate{Value: 1.5}}}},
		{Name: "homestead", Demand: vitrine.Estimate{Value: 0.001}, Idle: vitrine.Estimate{Value: 0.02}},
	}}}}
	for name, c := range map[string]struct {
		members    map[string]int
		idle, each float64
	}{
		"all members":   {map[string]int{"sprout": 2, "homestead": 1}, 0.04, 0.007},
		"some of them":  {map[string]int{"homestead": 1}, 0.02, 0.001},
		"one is absent": {map[string]int{"homestead": 1, "homer": 1}, 0, 0},
	} {
		if idle, each := cost(p, &z, c.members); math.Abs(idle-c.idle) > 1e-12 || math.Abs(each-c.each) > 1e-12 {
			t.Errorf("%s: got idle cost %g, cost per request %g, want %g and %g", name, idle, each, c.idle, c.each)
		}
	}
}
