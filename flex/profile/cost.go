package profile

import "vitrine"

// cost returns the CPU use of all members together: idle CPUs without load, and CPU seconds
// for each call. instances is the number of instances of each member. Both results are 0 if the
// setting lacks a member.
func cost(s *vitrine.Setting, instances map[string]int) (idle, each float64) {
	found := 0
	for i := range s.Components {
		c := &s.Components[i]
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

// factor returns the CPU cost of a call with n instances, relative to a single instance.
func factor(c *vitrine.ComponentProfile, n int) float64 {
	for _, f := range c.Clustering {
		if f.Instances == n {
			return f.Factor.Value
		}
	}
	return 1
}
