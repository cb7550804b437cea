package testbed

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/document"
	"vitrine/internal/thread"
)

// CPUs are the CPUs of the function and of the generator.
type CPUs struct {
	Function  []int `json:"function"` // reserved for the function's instances
	Generator []int `json:"generator"`
}

// cpuSettings names what chooses CPUs, for messages.
const cpuSettings = "servers.cpus or servers.generator_cpus in a file, or --cpus or --generator-cpus of measure"

// ShareCPUs divides the CPUs that this process may use. By default, the generator gets the first
// and the function gets the rest, first those on cores that are not in use. They never share a CPU,
// because the generator would then measure its own load.
func ShareCPUs(function, generator []int) (CPUs, error) {
	allowed, err := thread.Allowed()
	if err != nil {
		return CPUs{}, err
	}
	if len(allowed) < 2 {
		return CPUs{}, &vitrine.Unsupported{
			What:    "a CPU for the generator and one for the function",
			Missing: fmt.Sprintf("this process may run only on CPU %v", allowed),
			Do:      "run on a host with two CPUs, or widen the CPU affinity",
		}
	}
	c := CPUs{Function: slices.Clone(function), Generator: slices.Clone(generator)}
	if err := CheckCPUs(slices.Concat(c.Function, c.Generator), allowed); err != nil {
		return c, err
	}
	if len(c.Generator) == 0 {
		c.Generator = firstFree(allowed, c.Function)
	}
	if len(c.Function) == 0 {
		rest := slices.DeleteFunc(slices.Clone(allowed), func(cpu int) bool { return slices.Contains(c.Generator, cpu) })
		c.Function = byCore("/", c.Generator, rest)
	}
	for _, cpu := range c.Generator {
		if slices.Contains(c.Function, cpu) {
			return c, &vitrine.Unsupported{
				What:    fmt.Sprintf("CPU %d for both generator and function", cpu),
				Missing: "the generator needs its own CPU, because it would otherwise measure its own load",
				Do:      "change " + cpuSettings,
			}
		}
	}
	if len(c.Function) == 0 || len(c.Generator) == 0 {
		return c, &vitrine.Unsupported{
			What:    "a CPU for the generator and one for the function",
			Missing: fmt.Sprintf("of CPUs %v the function has %v and the generator %v", allowed, c.Function, c.Generator),
			Do:      "change " + cpuSettings,
		}
	}
	return c, nil
}

// CheckCPUs returns a *vitrine.Unsupported if one of the CPUs that a file or a flag names is not allowed.
func CheckCPUs(named, allowed []int) error {
	for _, cpu := range named {
		if !slices.Contains(allowed, cpu) {
			return &vitrine.Unsupported{
				What:    fmt.Sprintf("CPU %d, which a file or a flag names", cpu),
				Missing: fmt.Sprintf("this process may run on CPUs %v", allowed),
				Do:      "change " + cpuSettings + "; if isolcpus isolates the CPU, allow all CPUs of the run: taskset -c LIST vitrine ...",
			}
		}
	}
	return nil
}

// firstFree returns the first CPU that is not taken.
func firstFree(allowed, taken []int) []int {
	for _, cpu := range allowed {
		if !slices.Contains(taken, cpu) {
			return []int{cpu}
		}
	}
	return nil
}

// byCore sorts CPUs by how many of the taken CPUs and of the CPUs before them are on the same core.
// Instances get CPUs in this order, and hardware threads of one core slow each other. If the kernel does
// not show the cores, the order stays. The sys folder is below root, which is "/" except in tests.
func byCore(root string, taken, cpus []int) []int {
	seen, shared := slices.Clone(taken), map[int]int{}
	for _, cpu := range cpus {
		text, _ := os.ReadFile(filepath.Join(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)))
		core, _ := document.ParseCPUs(strings.TrimSpace(string(text))) // none if the kernel does not show it
		for _, other := range seen {
			if slices.Contains(core, other) {
				shared[cpu]++
			}
		}
		seen = append(seen, cpu)
	}
	sorted := slices.Clone(cpus)
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(shared[a], shared[b]) })
	return sorted
}

// KeepOff moves all threads of this process to the generator's CPUs, so that monitoring takes no
// CPU time from the function. New threads inherit these CPUs. back moves all threads to the CPUs
// that the calling thread had before. Without back, ShareCPUs finds no CPU for the next function.
func (c CPUs) KeepOff() (back func() error, err error) {
	before, err := thread.Allowed()
	if err != nil {
		return nil, err
	}
	back = func() error { return moveThreads(before) }
	if err := moveThreads(c.Generator); err != nil {
		return nil, errors.Join(err, back())
	}
	return back, nil
}

// moveThreads moves all threads of this process to the CPUs.
func moveThreads(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	moved := map[string]bool{}
	for { // repeat until a pass finds no new thread: a thread that was not moved yet may have started one
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list this process's threads: %w", err)
		}
		before := len(moved)
		for _, t := range threads {
			if moved[t.Name()] {
				continue
			}
			moved[t.Name()] = true
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move to CPUs %v: %w", cpus, err)
			}
		}
		if len(moved) == before {
			return nil
		}
	}
}
