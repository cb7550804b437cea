package process

import (
	"context"
	"fmt"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/netns"
	"vitrine/substrate"
)

// Check reports which limits and namespaces instances have on this host.
func (s *Substrate) Check(context.Context) []vitrine.Check {
	groups := vitrine.Check{Name: "process: cgroups"}
	memory := vitrine.Check{Name: "process: memory limits"}
	cpuset := vitrine.Check{Name: "process: CPU pinning", OK: true, Detail: "by sched_setaffinity(2)"}
	if s.groups == nil {
		groups.Missing = s.noGroups.Missing
		memory.Missing = s.noGroups.Missing
	} else {
		groups.OK, groups.Detail = true, s.groups.String()
		if memory.OK = s.groups.Has(cgroup.Memory); !memory.OK {
			memory.Missing = "the cgroup controller memory"
		}
		if s.groups.Has(cgroup.CPUSet) {
			cpuset.Detail = "by the cgroup controller cpuset"
		}
	}
	quotas := vitrine.Check{Name: "process: CPU quotas", OK: groups.OK, Missing: groups.Missing}
	if quotas.OK {
		quotas.Detail = fmt.Sprintf("CFS period %v by default", substrate.DefaultCFSPeriod)
	}
	if memory.OK {
		memory.Detail = "swap is limited where the kernel counts it"
	}
	namespaces := vitrine.NewCheck("process: network namespaces", netns.Dir, netns.Possible()) // regardless of Config.Network
	return []vitrine.Check{groups, quotas, memory, cpuset, namespaces}
}
