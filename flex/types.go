package flex

import (
	"cmp"
	"fmt"
	"time"

	"vitrine/flex/config"
	"vitrine/flex/decide"
)

// A Capacity is the capacity of one instance of a flavor.
type Capacity struct {
	Rate float64       // transactions per second
	Boot time.Duration // from the order to ready; 0: not known
	Cost Cost          // CPU cost from the profile; Each is 0: not known
}

// Types converts the types of the file for package decide. capacity returns the capacity of a
// flavor.
func Types(c *config.Config, capacity func(*config.Type, config.Flavor) (Capacity, error)) ([]decide.Type, error) {
	var all []decide.Type
	for i := range c.Types {
		t := &c.Types[i]
		d := decide.Type{
			Name: t.Name, Min: t.Min, Max: t.Max, Objective: decide.Objective{P99: t.Objective.P99, Success: t.Objective.Success},
			Headroom: t.Headroom, Stable: t.Stable, Boot: t.Boot, Polling: t.Polling,
		}
		for _, f := range t.Flavors {
			found, err := capacity(t, f)
			if err != nil {
				return nil, fmt.Errorf("the capacity of type %s, size %s: %w", t.Name, f.Size, err)
			}
			if t.Boot == 0 {
				d.Boot = max(d.Boot, found.Boot)
			}
			r := c.Resources(t, f)
			d.Flavors = append(d.Flavors, decide.Flavor{Name: f.Size, Capacity: found.Rate, CPUs: r.VCPUs, Memory: r.Memory})
		}
		d.Boot = cmp.Or(d.Boot, decide.DefaultBoot) + t.Warm // a start ends when the instance is active, not when it is ready
		all = append(all, d)
	}
	return all, nil
}

// LimitsOf returns the limits of all types together. cpus is the number of CPUs that
// instances may run on; it bounds limits.vcpus.
func LimitsOf(c *config.Config, cpus float64) decide.Limits {
	l := decide.Limits{Instances: c.Limits.Instances, CPUs: c.Limits.VCPUs, Memory: int64(c.Limits.Memory), Starting: c.Limits.Starting}
	if l.CPUs == 0 || l.CPUs > cpus {
		l.CPUs = cpus
	}
	return l
}
