package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"vitrine/result"
)

// facts returns a run's provenance, in the order in which a reader would ask for it. If a field of
// the host could not be read, its fact is the reason.
func (r *run) facts() []fact {
	m := r.Manifest
	var list []fact
	add := func(name, value string) {
		list = append(list, fact{name, cmp.Or(value, missing)})
	}
	host := func(name, field, value string) {
		if why := m.Host.Missing[field]; value == "" && why != "" {
			value = "not known: " + why
		}
		add(name, value)
	}
	add("run folder", r.name)
	add("command", strings.Join(m.Command, " "))
	add("program", strings.TrimSpace(m.Tool+", "+m.Go))
	add("started", when(m.Started))
	for _, t := range m.Resumed {
		add("resumed", when(t))
	}
	if m.Finished.IsZero() {
		add("finished", "not finished")
	} else {
		add("finished", when(m.Finished))
	}
	add("seed", fmt.Sprint(m.Seed))
	host("host", "name", m.Host.Name)
	host("operating system", "os", m.Host.OS)
	host("kernel", "kernel", m.Host.Kernel)
	host("processor", "cpu_model", m.Host.CPUModel)
	host("CPUs", "cpus", positive(m.Host.CPUs))
	host("simultaneous multithreading", "smt", m.Host.SMT)
	host("frequency governor", "governor", m.Host.Governor)
	host("turbo", "turbo", m.Host.Turbo)
	memory := byteCount(m.Host.MemoryBytes)
	host("memory", "memory_bytes", strings.TrimSuffix(memory, missing))
	host("virtualization", "virtualization", m.Host.Virtualization)
	host("clock source", "clocksource", m.Host.Clocksource)
	host("control groups", "cgroup", m.Host.Cgroup)
	add("CPUs of the function", result.Numbers(m.CPUs.Function))
	add("CPUs of the generator", result.Numbers(m.CPUs.Generator))
	for _, name := range slices.Sorted(maps.Keys(m.Substrates)) {
		add("substrate "+name, m.Substrates[name])
	}
	add("fabric", strings.Join(m.Fabrics, ", "))
	for _, name := range slices.Sorted(maps.Keys(m.FabricVersions)) {
		add("fabric "+name, m.FabricVersions[name])
	}
	add("accelerator", m.Accelerator)
	for _, what := range slices.Sorted(maps.Keys(m.Unconfined)) {
		add("went without "+what, m.Unconfined[what])
	}
	add("CFS period", strings.Join(m.CFSPeriods, ", "))
	add("generator", strings.TrimSpace(m.Generator.Name+" "+m.Generator.Version))
	if m.Generator.Transport != "" {
		add("transport of the messages", m.Generator.Transport)
	}
	if r.Summary != nil && len(r.subjects) > 1 {
		add("sizes were measured", map[bool]string{false: "one after the other", true: "in turns"}[r.Summary.Interleaved])
	}
	for _, s := range m.Specs {
		add(s.Role, s.Path+", SHA-256 "+s.SHA256)
	}
	return list
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprint(n)
}
