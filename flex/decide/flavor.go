package decide

import (
	"fmt"
	"strings"
)

// Lean returns the flavor with the highest capacity per CPU. Policies that use only one flavor
// use it.
func (t *Type) Lean() *Flavor {
	best := &t.Flavors[0]
	for i := range t.Flavors {
		if z := &t.Flavors[i]; z.Capacity*best.CPUs > best.Capacity*z.CPUs {
			best = z
		}
	}
	return best
}

// flavorOf returns the index of a flavor. A flavor that is no longer declared uses as much CPU and memory as
// the flavor with the least capacity.
func (t *Type) flavorOf(name string) int {
	least := 0
	for i := range t.Flavors {
		if t.Flavors[i].Name == name {
			return i
		}
		if t.Flavors[i].Capacity < t.Flavors[least].Capacity {
			least = i
		}
	}
	return least
}

// CapacityOf returns the capacity of an instance of a flavor. An instance whose flavor is no longer declared
// still carries what it carried: was. If that is 0, which means unknown, the least capacity counts.
func (t *Type) CapacityOf(flavor string, was float64) float64 {
	f := &t.Flavors[t.flavorOf(flavor)]
	if f.Name != flavor && was > 0 {
		return was
	}
	return f.Capacity
}

// Used returns the use of the limits by all instances of a view. For an instance of an unknown
// type only the number of instances is known.
func Used(v *View) (used Limits) {
	types := make(map[string]*Type, len(v.Types))
	for i := range v.Types {
		types[v.Types[i].Name] = &v.Types[i].Type
	}
	for i := range v.Instances {
		in := &v.Instances[i]
		if t := types[in.Type]; t != nil {
			used.Add(&t.Flavors[t.flavorOf(in.Flavor)])
		} else {
			used.Instances++
		}
		if in.State <= Warming {
			used.Starting++
		}
	}
	return used
}

// Add adds one instance, without Starting.
func (l *Limits) Add(f *Flavor) {
	l.Instances++
	l.CPUs += f.CPUs
	l.Memory += f.Memory
}

// Allow reports whether the limits allow one more instance in addition to used.
func (l *Limits) Allow(used Limits, f *Flavor) bool {
	return (l.Instances == 0 || used.Instances < l.Instances) && (l.Starting == 0 || used.Starting < l.Starting) && l.hold(used, f)
}

// hold reports whether CPUs and memory suffice for one more instance in addition to used.
func (l *Limits) hold(used Limits, f *Flavor) bool {
	return (l.CPUs == 0 || used.CPUs+f.CPUs <= l.CPUs+1e-9) && (l.Memory == 0 || used.Memory+f.Memory <= l.Memory)
}

// left describes the limited CPUs and memory that used leaves.
func (l *Limits) left(used Limits) string {
	var all []string
	if l.CPUs > 0 {
		all = append(all, fmt.Sprintf("%.4g of %.4g CPUs", l.CPUs-used.CPUs, l.CPUs))
	}
	if l.Memory > 0 {
		all = append(all, fmt.Sprintf("%d of %d MiB", (l.Memory-used.Memory)>>20, l.Memory>>20))
	}
	return strings.Join(all, " and ")
}
