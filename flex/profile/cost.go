package profile

import (
	"math"

	"vitrine"
)

// cost returns the CPU use of all members together: idle CPUs without load, and CPU seconds
// for each call. Both results are 0 if the setting does not know the cost of a member.
func cost(s *vitrine.Setting, members map[string]Member) (idle, each float64) {
	known := 0
	for i := range s.Components {
		c := &s.Components[i]
		m := members[c.Name]
		if m.Count == 0 || !isSmallest(c, m) {
			continue
		}
		known++
		idle += float64(m.Count) * c.Idle.Value
		each += c.Demand.Value * factor(c, m.Count)
	}
	if known < len(members) {
		return 0, 0
	}
	return idle, each
}

// isSmallest reports whether the member has the component's smallest flavor, which Saturation lists
// first. A call may cost more on larger flavors, and the profile does not say how much.
func isSmallest(c *vitrine.ComponentProfile, m Member) bool {
	return len(c.Saturation) > 0 && math.Abs(m.VCPUs-c.Saturation[0].VCPUs) <= 1e-9
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
