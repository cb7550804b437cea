package spec

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vitrine"
	"vitrine/document"
)

// CheckQuotas returns a *vitrine.BadInput, or several joined, if the kernel accepts no quota for one
// of the sizes and one of the CFS periods. A loaded deployment may have such quotas, because an
// orchestrator's file has its own period.
func (d *Deployment) CheckQuotas() error {
	c := document.Errors{Node: d.Root()}
	for i, f := range d.Flavors {
		if !d.Uses(f) {
			continue
		}
		for _, period := range d.Servers.CFSPeriod {
			if found, want := WrongQuota(f.vitrine(), period); found != "" {
				c.Bad(found, want, "flavors", i, "vcpus")
			}
		}
	}
	return c.Join()
}

// WrongQuota describes the CPU quota of a flavor if the kernel does not accept it. Otherwise it
// returns empty texts.
func WrongQuota(f vitrine.Flavor, period time.Duration) (found, want string) {
	const least = time.Millisecond // kernel/sched/core.c, min_cfs_quota_period
	quota := time.Duration(f.VCPUs * float64(period)).Round(time.Microsecond)
	if quota >= least {
		return "", ""
	}
	longer := time.Duration(math.Ceil(1/f.VCPUs)) * time.Millisecond
	return fmt.Sprintf("flavor %s has %v of CPU time in a CFS period of %v", f.Name, quota, period),
		fmt.Sprintf("the kernel's minimum is %v: want more vcpus, or a servers.cfs_period of %v or more", least, longer)
}

// Uses reports whether a size of the deployment's mode, or a component that is not scalable, may have
// the flavor.
func (d *Deployment) Uses(f Flavor) bool {
	if slices.ContainsFunc(d.Components, func(c Component) bool { return c.Flavor == f.Name }) {
		return true
	}
	if d.Mode.Name != Custom {
		return slices.ContainsFunc(d.Space().Flavors, func(of vitrine.Flavor) bool { return of.Name == f.Name })
	}
	return slices.ContainsFunc(d.Sizings(), func(s vitrine.Sizing) bool {
		return slices.ContainsFunc(s, func(p vitrine.Part) bool { return p.Initial == f.Name[0] })
	})
}
