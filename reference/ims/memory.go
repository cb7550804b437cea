package ims

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// heapGrowth is how far the heap grows between two collections, in percent of
	// what is alive. A collection costs the same whenever it comes, and within a
	// small CPU quota it takes the component several quota periods.
	heapGrowth = 400
	// heapShare is the part of the cgroup's memory from which on collections come
	// more often than heapGrowth says.
	heapShare = 0.7
)

// CollectRarely makes garbage collections of this process rare, as far as the
// memory of its cgroup allows. GOGC and GOMEMLIMIT come first.
func CollectRarely() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(heapGrowth)
	}
	// A host without cgroups has no limit to keep to.
	_, _ = memlimit.Set(memlimit.WithRatio(heapShare))
}
