package ims

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// heapGrowth is how far the heap grows between two collections, in percent of
	// the live heap. Every collection costs about the same, and within a small
	// CPU quota it takes several quota periods.
	heapGrowth = 400
	// heapShare is the share of the cgroup's memory above which collections are
	// more frequent than heapGrowth sets.
	heapShare = 0.7
)

// CollectRarely makes garbage collections of this process rare, as far as the
// memory of its cgroup allows. GOGC and GOMEMLIMIT override it.
func CollectRarely() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(heapGrowth)
	}
	// Without cgroups there is no limit to respect.
	_, _ = memlimit.Set(memlimit.WithRatio(heapShare))
}
