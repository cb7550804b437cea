package quiet

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"vitrine/internal/cgroup"
)

// mostNamed is the number of busiest processes that a reason names.
const mostNamed = 2

// countable is the shortest time whose CPU time the kernel counts finely enough. The kernel counts in
// units of 10 ms, and in a trial of 30 ms, whose generator ends at once, one unit is a third of a CPU.
const countable = 200 * time.Millisecond

// kthreadd is the process from which all kernel threads descend.
const kthreadd = 2

// servesRuns reports whether a daemon works for runs without being their child. Such daemons are
// switches in user space, and daemons that start containers.
func servesRuns(name string) bool {
	return slices.Contains([]string{"ovs-vswitchd", "dockerd", "containerd", "containerd-shim"}, name)
}

// A count is the kernel's counters at one time.
type count struct {
	at        time.Time
	cpus      map[int64]procfs.CPUStat
	processes map[int]process
}

// A process is the data about one process.
type process struct {
	name    string
	started uint64  // clock ticks after boot; distinguishes processes with the same PID
	cpu     float64 // seconds of CPU time
	ours    bool    // its CPU time belongs to the run, but not to an instance
	counted bool    // it is in an instance's cgroup, which counts its CPU time
	kernel  bool    // it is a thread of the kernel, which seldom changes its CPU
	on      int     // CPU on which it ran last
}

// readCount reads the counters of all CPUs and processes. It allocates, so it is
// called before and after a trial, never during it.
func readCount(fs procfs.FS) (count, error) {
	stat, err := fs.Stat()
	if err != nil {
		return count{}, fmt.Errorf("read the host's CPU time: %w", err)
	}
	c := count{at: time.Now(), cpus: stat.CPU, processes: map[int]process{}}
	all, err := fs.AllProcs()
	if err != nil {
		return count{}, fmt.Errorf("list the host's processes: %w", err)
	}
	parents := map[int]int{}
	for _, p := range all {
		s, err := p.Stat()
		if err != nil { // the process has ended
			continue
		}
		parents[p.PID] = s.PPID
		c.processes[p.PID] = process{name: s.Comm, started: s.Starttime, cpu: s.CPUTime(), counted: inInstance(p), ours: servesRuns(s.Comm), on: int(s.Processor)}
	}
	for pid, p := range c.processes {
		p.kernel = descends(parents, pid, kthreadd)
		p.ours = !p.counted && (p.ours || p.kernel || descends(parents, pid, os.Getpid()))
		c.processes[pid] = p
	}
	return c, nil
}

// inInstance reports whether the process is in an instance's cgroup.
func inInstance(p procfs.Proc) bool {
	groups, err := p.Cgroups()
	return err == nil && slices.ContainsFunc(groups, func(g procfs.Cgroup) bool {
		return strings.Contains(g.Path+"/", "/"+cgroup.Name+"/")
	})
}

// descends reports whether the process is from or one of its descendants.
func descends(parents map[int]int, pid, from int) bool {
	for range len(parents) + 1 { // bounded, because PIDs that change during the reading may form a loop
		if pid == from {
			return true
		}
		parent, ok := parents[pid]
		if !ok || parent == 0 {
			return false
		}
		pid = parent
	}
	return false
}

// since returns what others took of the run's CPUs since the earlier count. own is the number of
// CPUs that the run's instances used; NaN: unknown. In a time shorter than countable, no steal is
// counted, and the use of other processes is unknown.
//
// Busy time is the elapsed time minus idle time, steal and interrupts. The kernel measures idle
// time, but it samples user and system time by its tick, which misses work between ticks.
// Interrupts are mostly the run's own packets.
func (c count) since(before count, cpus []int, own float64) use {
	took := c.at.Sub(before.at)
	if took < countable {
		return use{steal: make([]float64, len(cpus)), other: math.NaN()}
	}
	elapsed := took.Seconds()
	var u use
	var busy float64
	for _, cpu := range cpus {
		was, is := before.cpus[int64(cpu)], c.cpus[int64(cpu)]
		steal := max(is.Steal-was.Steal, 0)
		u.steal = append(u.steal, steal/elapsed)
		spent := is.Idle - was.Idle + is.Iowait - was.Iowait + steal + is.IRQ - was.IRQ + is.SoftIRQ - was.SoftIRQ
		busy += max(elapsed-spent, 0)
	}
	var others []consumer
	for pid, p := range c.processes {
		used := p.cpu
		if was, ok := before.processes[pid]; ok && was.started == p.started {
			used -= was.cpu
		}
		switch {
		case p.kernel && !slices.Contains(cpus, p.on): // it used another CPU
		case p.ours:
			busy -= used
		case !p.counted:
			others = append(others, consumer{p.name, used / elapsed})
		}
	}
	u.other, u.busiest = busy/elapsed-own, busiest(others)
	return u
}

// A consumer is a process with the CPUs that it used.
type consumer struct {
	name string
	used float64
}

// busiest names the processes that used the most CPU time on any CPU.
func busiest(all []consumer) (names []string) {
	const worth = otherLimit / 10
	slices.SortFunc(all, func(a, b consumer) int {
		return cmp.Or(cmp.Compare(b.used, a.used), strings.Compare(a.name, b.name))
	})
	for _, p := range all[:min(mostNamed, len(all))] {
		if p.used >= worth && !math.IsNaN(p.used) {
			names = append(names, fmt.Sprintf("%q (%.2f)", p.name, p.used))
		}
	}
	return names
}
