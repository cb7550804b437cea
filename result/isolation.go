package result

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NotIsolated lists, for readers, what could have disturbed a run on this host: what shares the
// machine with the function without isolation.
func NotIsolated(h Host, r Reservation) []string {
	var list []string
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }

	note("the generator and the function share a kernel: the kernel can do the network work of one on the CPUs of the other")
	shared := intersect(r.Function, r.Generator)
	if len(shared) > 0 {
		note("%s used by both the function and the generator", cpuList(shared))
	}
	siblings(h, r, note)
	if bare := without(r.Function, h.IsolatedCPUs); len(bare) > 0 || len(r.Function) == 0 {
		which := "the function's CPUs"
		if len(bare) > 0 {
			which = cpuList(bare)
		}
		note("%s not isolated from the scheduler (isolcpus): other processes and the kernel may run there", which)
	}
	if len(intersect(r.Function, h.IsolatedCPUs)) > 1 {
		note("the scheduler spreads no threads over isolated CPUs: use pinning with flavors of at most one vCPU")
	}
	switch {
	case h.Virtualization == "":
		note("unknown whether this host is a virtual machine: %s", h.Missing["virtualization"])
	case h.Virtualization != "none":
		note("this host is a %s: other machines on the physical host may disturb it", h.Virtualization)
	}
	switch {
	case h.Governor == "":
		note("the CPU frequency governor is unknown: %s", h.Missing["governor"])
	case h.Governor != "performance":
		note("the CPU frequency governor is %s, not performance", h.Governor)
	}
	switch h.Turbo {
	case "":
		note("unknown whether the CPU's turbo is on: %s", h.Missing["turbo"])
	case "on":
		note("the CPU's turbo is on: the clock rate depends on load and temperature")
	}
	return list
}

// siblings reports the cores that the function shares with other CPUs by simultaneous
// multithreading, and those that instances of the function may share with each other.
func siblings(h Host, r Reservation, note func(string, ...any)) {
	if why, ok := h.Missing["siblings"]; ok {
		note("unknown which CPUs share a core: %s", why)
		return
	}
	var within []string
	for _, text := range h.Siblings {
		cpus, err := parseCPUList(text)
		if err != nil {
			note("unknown which CPUs share a core: %v", err)
			continue
		}
		inside := intersect(r.Function, cpus)
		if outside := without(cpus, r.Function); len(inside) > 0 && len(outside) > 0 {
			note("one core (SMT) is shared by the function's %s and by %s", cpuList(inside), cpuList(outside))
		}
		if len(inside) > 1 {
			within = append(within, cpuList(inside))
		}
	}
	if len(within) > 0 {
		note("instances of the function slow each other on CPUs of one core (SMT): %s", strings.Join(within, "; "))
	}
}

// parseCPUList parses the kernel's list format: "0-2,4".
func parseCPUList(text string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(low)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(high)
		}
		if err != nil || a < 0 || b < a || b-a > 1<<16 {
			return nil, fmt.Errorf("%q is not a list of CPUs", text)
		}
		for cpu := a; cpu <= b; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

func intersect(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(cpu int) bool { return !slices.Contains(b, cpu) })
}

func without(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(cpu int) bool { return slices.Contains(b, cpu) })
}

func cpuList(cpus []int) string {
	names := make([]string, len(cpus))
	for i, cpu := range cpus {
		names[i] = strconv.Itoa(cpu)
	}
	if len(names) == 1 {
		return "CPU " + names[0]
	}
	return "CPUs " + strings.Join(names, ",")
}
