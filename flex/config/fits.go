package config

import (
	"cmp"
	"fmt"
	"slices"

	"vitrine"
)

// Resources returns the resources of one instance of the type in a flavor. Only the members of
// the type count, not the whole deployment.
func (c *Config) Resources(t *Type, f Flavor) (r vitrine.Resources) {
	d := c.DeploymentOf(t)
	sizing, err := vitrine.ParseSizing(f.Size)
	if err != nil {
		return r // a loaded file has valid sizes
	}
	for _, name := range t.Members {
		count, flavor := d.Given(d.Component(name), sizing)
		r.VCPUs += float64(count) * flavor.VCPUs
		r.Memory += int64(count) * flavor.Memory
	}
	return r
}

// Smallest returns the type's flavor with the fewest vCPUs, then the least memory.
func (c *Config) Smallest(t *Type) Flavor {
	return slices.MinFunc(t.Flavors, func(a, b Flavor) int {
		x, y := c.Resources(t, a), c.Resources(t, b)
		return cmp.Or(cmp.Compare(x.VCPUs, y.VCPUs), cmp.Compare(x.Memory, y.Memory))
	})
}

// Fits returns a *vitrine.Unsupported if the host cannot hold the minimum of all types
// together, or one instance of each flavor. cpu is the number of CPUs that instances may use;
// memory is in bytes.
func (c *Config) Fits(cpu float64, memory int64) error {
	host := vitrine.Resources{VCPUs: cpu, Memory: memory}
	refuse := func(what string, r vitrine.Resources) error {
		return &vitrine.Unsupported{
			What:    fmt.Sprintf("%s of %.4g vCPUs and %.4g MiB", what, r.VCPUs, float64(r.Memory)/(1<<20)),
			Missing: fmt.Sprintf("instances may use %.4g CPUs and %.4g MiB of this host", cpu, float64(memory)/(1<<20)),
			Do:      "lower min, choose smaller flavors, or give the instances more CPUs with servers.cpus",
		}
	}
	var least vitrine.Resources
	for i := range c.Types {
		t := &c.Types[i]
		for _, f := range t.Flavors {
			if r := c.Resources(t, f); !r.Within(host) {
				return refuse(fmt.Sprintf("an instance of type %s, size %s,", t.Name, f.Size), r)
			}
		}
		r := c.Resources(t, c.Smallest(t))
		least.VCPUs += float64(t.Min) * r.VCPUs
		least.Memory += int64(t.Min) * r.Memory
	}
	if !least.Within(host) {
		return refuse("the min of all types together,", least)
	}
	return nil
}
