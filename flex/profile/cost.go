package profile

import (
	"slices"

	"vitrine"
)

// cost returns the CPU use of all members together: idle CPUs without load, and CPU seconds
// for each call. instances is the number of instances of each member. Both results are 0 if the
// profile lacks a member.
func cost(p *vitrine.Profile, z *vitrine.SizeProfile, instances map[string]int) (idle, each float64) {
	for i := range p.Settings {
		s := &p.Settings[i]
		if !slices.ContainsFunc(s.Sizes, func(x vitrine.SizeProfile) bool { return x.Sizing == z.Sizing && x.Low == z.Low }) {
			continue
		}
		found := 0
		for k := range s.Components {
			c := &s.Components[k]
			n := instances[c.Name]
			if n == 0 {
				continue
			}
			found++
			idle += float64(n) * c.Idle.Value
			each += c.Demand.Value * factor(c, n)
		}
		if found < len(instances) {
			return 0, 0
		}
		return idle, each
	}
	return 0, 0
}

// factor returns the CPU cost of a call with n instances, relative to a single instance.
func factor(c *vitrine.ComponentProfile, n int) float64 {
	for _, f := range c.Clustering {
		if f.Instances == n {
			return f.Factor.Value
		}
	}
	return 1
}
