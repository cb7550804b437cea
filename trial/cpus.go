package trial

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"vitrine"
)

// A demand is one instance's demand for CPUs.
type demand struct {
	instance  string
	vcpus     float64
	exclusive bool // the flavor asks for exclusive CPUs
}

// wholeCPUs returns the number of CPUs that the demand withholds from the others. An exclusive
// demand takes whole CPUs.
func (d demand) wholeCPUs() float64 {
	if d.exclusive {
		return math.Ceil(d.vcpus - floatSlack)
	}
	return d.vcpus
}

// floatSlack allows for the rounding of decimal fractions: 0.1+0.2 is not 0.3.
const floatSlack = 1e-9

// assign returns the function's CPUs on which each instance may run. With pinning, an instance
// gets as few CPUs as possible, and no CPU is promised more than once. Otherwise it may run on all
// CPUs that are not exclusive to another instance. assign refuses a sum beyond the CPUs, because a
// trial would then measure the shortage and not the size.
func assign(cpus []int, pinned bool, demands []demand) (map[string][]int, error) {
	var sum float64
	for _, d := range demands {
		sum += d.wholeCPUs()
	}
	if sum > float64(len(cpus))+floatSlack {
		return nil, &vitrine.Unsupported{
			What:    fmt.Sprintf("a size of %.4g vCPUs (unscalable components included)", sum),
			Missing: fmt.Sprintf("%d CPUs are reserved for the function: %v", len(cpus), cpus),
			Do:      "lower the flavors or the limit, or give the function more CPUs with servers.cpus",
		}
	}
	order := slices.Clone(demands)
	slices.SortStableFunc(order, func(a, b demand) int {
		if a.exclusive != b.exclusive {
			return boolFirst(a.exclusive)
		}
		return cmp.Compare(b.vcpus, a.vcpus)
	})
	free := make(map[int]float64, len(cpus))
	for _, c := range cpus {
		free[c] = 1
	}
	out := make(map[string][]int, len(demands))
	for _, d := range order {
		if !pinned && !d.exclusive {
			continue
		}
		got, err := take(cpus, free, d)
		if err != nil {
			return nil, err
		}
		out[d.instance] = got
	}
	shared := slices.DeleteFunc(slices.Clone(cpus), func(c int) bool { return free[c] <= 0 })
	for _, d := range demands {
		if out[d.instance] != nil {
			continue
		}
		if len(shared) == 0 {
			return nil, noCPU(d.instance, cpus, d.vcpus)
		}
		out[d.instance] = shared
	}
	return out, nil
}

// take finds the CPUs for one pinned or exclusive instance. It takes whole CPUs first. For the
// fraction, it takes the fullest CPU that still has room (best fit).
func take(cpus []int, free map[int]float64, d demand) ([]int, error) {
	var got []int
	rest := d.wholeCPUs()
	for rest > floatSlack {
		want := math.Min(rest, 1)
		best := -1
		for _, c := range cpus {
			if free[c]+floatSlack >= want && !slices.Contains(got, c) && (best < 0 || free[c] < free[best]) {
				best = c
			}
		}
		if best < 0 {
			return nil, noCPU(d.instance, cpus, want)
		}
		got = append(got, best)
		free[best] -= want
		rest -= want
	}
	if len(got) == 0 { // no quota: any CPU
		return slices.Clone(cpus), nil
	}
	slices.Sort(got)
	return got, nil
}

func noCPU(instance string, cpus []int, want float64) error {
	return &vitrine.Unsupported{
		What:    fmt.Sprintf("a CPU for %s", instance),
		Missing: fmt.Sprintf("none of %v has %.4g left", cpus, want),
		Do:      "turn pinning off, or give the function more CPUs with servers.cpus",
	}
}

func boolFirst(a bool) int {
	if a {
		return -1
	}
	return 1
}
