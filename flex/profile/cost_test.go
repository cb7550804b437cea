package profile

import (
	"math"
	"testing"

	"vitrine"
)

// TestCostIsThatOfTheMembers checks that the CPU cost of an instance is the sum over its members,
// including the cost of clustering. A setting that lacks a member, or knows the cost of a member only
// for another flavor, must give no cost.
func TestCostIsThatOfTheMembers(t *testing.T) {
	s := &vitrine.Setting{Components: []vitrine.ComponentProfile{
		{Name: "sprout", Demand: vitrine.Estimate{Value: 0.004}, Idle: vitrine.Estimate{Value: 0.01},
			Saturation: []vitrine.FlavorSaturation{{VCPUs: 0.1}, {VCPUs: 0.2}},
			Clustering: []vitrine.ClusteringCost{{Instances: 2, Factor: vitrine.Estimate{Value: 1.5}}}},
		{Name: "homestead", Demand: vitrine.Estimate{Value: 0.001}, Idle: vitrine.Estimate{Value: 0.02}, Saturation: []vitrine.FlavorSaturation{{VCPUs: 0.3}}},
	}}
	for name, c := range map[string]struct {
		members    map[string]Member
		idle, each float64
	}{
		"all members":    {map[string]Member{"sprout": {2, 0.1}, "homestead": {1, 0.3}}, 0.04, 0.007},
		"some of them":   {map[string]Member{"homestead": {1, 0.3}}, 0.02, 0.001},
		"one is absent":  {map[string]Member{"homestead": {1, 0.3}, "homer": {1, 0.3}}, 0, 0},
		"larger flavor":  {map[string]Member{"sprout": {1, 0.2}, "homestead": {1, 0.3}}, 0, 0},
		"unknown flavor": {map[string]Member{"sprout": {1, 0.1}, "homestead": {1, 0.4}}, 0, 0},
	} {
		if idle, each := cost(s, c.members); math.Abs(idle-c.idle) > 1e-12 || math.Abs(each-c.each) > 1e-12 {
			t.Errorf("%s: got idle cost %g, cost per request %g, want %g and %g", name, idle, each, c.idle, c.each)
		}
	}
}

// TestCostIsThatOfTheSubstrate checks that the cost is that of the setting with the asked substrate,
// although another setting has the same size with the same capacity.
func TestCostIsThatOfTheSubstrate(t *testing.T) {
	p := &vitrine.Profile{}
	for _, c := range []struct {
		substrate string
		each      float64
	}{{"docker", 0.004}, {"process", 0.001}} {
		p.Settings = append(p.Settings, vitrine.Setting{Substrate: c.substrate, Sizes: []vitrine.SizeProfile{{Sizing: "sp1s", Low: 100}},
			Components: []vitrine.ComponentProfile{{Name: "sprout", Demand: vitrine.Estimate{Value: c.each}, Saturation: []vitrine.FlavorSaturation{{VCPUs: 1}}}}})
	}
	setting, size, why := find(p, Question{Size: "sp1s", Substrate: "process"})
	if size == nil {
		t.Fatal(why)
	}
	if _, each := cost(setting, map[string]Member{"sprout": {1, 1}}); each != 0.001 {
		t.Errorf("got %g s per call, want that of the processes, 0.001", each)
	}
}
