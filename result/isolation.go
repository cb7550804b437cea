package result

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NotIsolated lists, in words for readers, what could have disturbed a run on this host: what
// shares the machine with the function and was not isolated.
func NotIsolated(h Host, r Reservation) []string {
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }

	say("the generator runs under the same kernel as the function: network work of one can be done on the other's CPUs")
	shared := intersect(r.Function, r.Generator)
	if len(shared) > 0 {
		say("%s used by the function and by the generator alike", cpuList(shared))
	}
	siblings(h, r, say)
	if bare := without(r.Function, h.IsolatedCPUs); len(bare) > 0 || len(r.Function) == 0 {
		which := "the function's CPUs"
		if len(bare) > 0 {
			which = cpuList(bare)
		}
		say("%s not isolated from the scheduler (isolcpus): other processes and the kernel may run there", which)
	}
	switch {
	case h.Virtualization == "":
		say("whether this is a virtual machine is not known: %s", h.Missing["virtualization"])
	case h.Virtualization != "none":
		say("this is a %s: its neighbours on the physical host are not under control", h.Virtualization)
	}
	switch {
	case h.Governor == "":
		say("the CPU frequency governor is not known: %s", h.Missing["governor"])
	case h.Governor != "performance":
		say("the CPU frequency governor is %s, not performance", h.Governor)
	}
	switch h.Turbo {
	case "":
		say("whether the CPU's turbo is on is not known: %s", h.Missing["turbo"])
	case "on":
		say("the CPU's turbo is on: speed depends on load and heat")
	}
	return list
}

// siblings says which cores the function shares by simultaneous multithreading.
func siblings(h Host, r Reservation, say func(string, ...any)) {
	if why, ok := h.Missing["siblings"]; ok {
		say("which CPUs share a core is not known: %s", why)
		return
	}
	for _, text := range h.Siblings {
		cpus, err := parseCPUList(text)
		if err != nil {
			say("which CPUs share a core is not known: %v", err)
			continue
		}
		inside := intersect(r.Function, cpus)
		if outside := without(cpus, r.Function); len(inside) > 0 && len(outside) > 0 {
			say("one core (SMT) is shared by the function's %s and by %s", cpuList(inside), cpuList(outside))
		}
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
