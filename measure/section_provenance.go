package measure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vitrine/result"
)

// instrument shows how well the streams kept their schedules, and the ports.
func (s *Summary) instrument() result.Section {
	sent := result.Table{
		Caption: "How the streams were sent. Sizes are in bytes, without the frame check sequence. Late: how long after their times packets left, in microseconds. Drift: how far the time of day moved against the steady clock in one stream, in microseconds; at a receiver with a kernel of its own, over all its streams. Skew: between the clocks of two kernels, in parts per million; it was removed. Stamps: source of the receive stamps. Buffer: of the socket of the receiver or the echo, in KiB with the kernel's overhead; a stream that overflows it is invalid.",
		Columns: Columns(1, "where", "stream", "size", "packets/s", "late, p99", "late, max", "drift", "skew", "stamps", "buffer, KiB"),
	}
	sent.Columns[1].Number, sent.Columns[8].Number = false, false
	for _, r := range s.Rows {
		head := []result.Cell{{Text: r.String()}, {Text: r.Metric + ", " + r.Way}, Text("%d", r.Size), Text("%.0f", r.Rate)}
		sent.Rows = append(sent.Rows, line(r, head, func() []result.Cell {
			return []result.Cell{Within(r.Schedule), Number(r.ScheduleMax), Number(r.Drift), Number(r.Skew), {Text: r.Stamps}, buffer(r.Room)}
		}))
	}
	ports := result.Table{
		Caption: "The ports during the streams: link type, MTU in bytes, IPv6, how neighbours were known, where the kernel did its receive work, and the enabled offloads.",
		Columns: Columns(1, "where", "instance", "interface", "link", "MTU", "IPv6", "neighbours", "receive work", "offloads on"),
	}
	for i := range ports.Columns {
		ports.Columns[i].Number = ports.Columns[i].Name == "MTU"
	}
	for _, w := range s.Ports {
		for _, p := range w.Ports {
			ports.Rows = append(ports.Rows, result.Line{Cells: []result.Cell{
				{Text: w.String()}, {Text: p.Instance}, {Text: p.Interface}, {Text: p.Driver}, Text("%d", p.MTU), {Text: p.IPv6},
				{Text: p.Neighbour}, {Text: p.Receiving}, {Text: strings.Join(p.Offloads, ", ")},
			}})
		}
	}
	return result.Section{Name: "instrument", Title: "Instrument and ports", Tables: []result.Table{sent, ports}}
}

// buffer returns the cell of a buffer's size.
func buffer(bytes int) result.Cell {
	if bytes == 0 {
		return result.Cell{Text: "–"}
	}
	return Text("%d", bytes>>10)
}

// provenance shows the conditions of the result, in the terms of the documents that
// require them.
func (s *Summary) provenance(m result.Manifest) result.Section {
	t := result.Table{
		Caption: "The conditions of the results, in the terms of RFC 2544, RFC 8172, ETSI GS NFV-TST 009 and draft-ietf-bmwg-containerized-infra.",
		Columns: []result.Column{{Name: "what"}, {Name: "here"}, {Name: "source"}},
	}
	add := func(what, here, whose string) {
		t.Rows = append(t.Rows, result.Line{Cells: []result.Cell{{Text: what}, {Text: here}, {Text: whose}}})
	}
	x := s.Settings
	add("frame sizes", fmt.Sprintf("%s bytes, without the frame check sequence (4 more with it)", result.Numbers(x.Sizes)), "RFC 2544, section 9.1")
	add("trial", fmt.Sprintf("one stream of %d packets at a fixed rate; the first %d and the last %d are left out", x.Packets, x.Cut.Head, x.Cut.Tail), "NFV-TST 009; RFC 2544, section 24")
	add("repeats", fmt.Sprintf("%d, each a fresh deployment, all combinations in turn", x.Repeat), "NFV-TST 009: a set of trials")
	add("loss and order", "counted, never a reason to leave a trial out", "NFV-TST 009")
	for _, name := range x.AllSubstrates() {
		add("virtualization, "+name, m.Substrates[name], "RFC 8172, section 3.2")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Accelerators)) {
		add("accelerator of virtual machines, "+name, m.Accelerators[name], "RFC 8172, section 3.2")
	}
	for _, name := range x.AllFabrics() {
		add("networking model, "+name, x.Platform.NetworkingModel(name), "containerized-infra: networking models")
	}
	for _, name := range slices.Sorted(maps.Keys(m.FabricVersions)) {
		add("virtual switch, "+name, cmp.Or(m.FabricVersions[name], "not known"), "RFC 8172, section 3.2")
	}
	for name, text := range x.Options.All() {
		add("options of "+name, text, "RFC 8172, section 3.2")
	}
	add("CPU pinning", fmt.Sprintf("sender on CPU %d, receiver on CPU %d; the kernel's receive work: %s", first(m.CPUs.Generator), first(m.CPUs.Function), x.Platform.ReceiveCPU), "RFC 8172, section 3.2")
	isolated := "none (isolcpus)"
	if len(m.Host.IsolatedCPUs) > 0 {
		isolated = result.Numbers(m.Host.IsolatedCPUs)
	}
	add("CPU isolation", isolated, "containerized-infra: CPU cores")
	if x.Platform.Emulator != "" {
		add("link emulator", x.Platform.Emulator, "RFC 8172, section 3.2")
	}
	nodes := fmt.Sprintf("sender %s, receiver %s", x.Platform.SenderNode, x.Platform.ReceiverNode)
	if x.Platform.KernelNode != "" {
		nodes += ", the kernel's receive work " + x.Platform.KernelNode
	}
	add("NUMA node", nodes, "containerized-infra: NUMA affinity")
	add("hugepages", fmt.Sprintf("%s; transparent: %s; the instances use none", x.Platform.Hugepages, x.Platform.THP), "containerized-infra: hugepages")
	add("simultaneous multithreading", m.Host.SMT, "RFC 8172, section 3.2")
	add("shared resources", strings.Join(m.NotIsolated, "; "), "RFC 8172, section 3.4")
	for _, why := range x.Scaled {
		add("scaled to this host", why, "")
	}
	return result.Section{Name: "taken-with", Title: "Conditions", Tables: []result.Table{t}}
}

// first returns the reserved CPU that is used, or -1 if none is reserved.
func first(cpus []int) int {
	if len(cpus) == 0 {
		return -1
	}
	return cpus[0]
}
