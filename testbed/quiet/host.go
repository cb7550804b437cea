package quiet

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"vitrine"
	"vitrine/internal/cgroup"
)

// mostNamed is the number of busiest processes that a reason names.
const mostNamed = 2

// countable is the shortest time whose CPU time the kernel counts finely enough. The kernel counts in
// units of 10 ms, and in a trial of 30 ms, whose generator ends at once, one unit is a third of a CPU.
const countable = 200 * time.Millisecond

// counterUnit is the unit in which the kernel counts CPU time (USER_HZ of proc(5)).
const counterUnit = 10 * time.Millisecond

// kthreadd is the process from which all kernel threads descend.
const kthreadd = 2

// servesRuns reports whether a daemon works for runs without being their child. Such daemons are
// switches in user space, and daemons that start containers.
func servesRuns(name string) bool {
	return slices.Contains([]string{"ovs-vswitchd", "dockerd", "containerd", "containerd-shim", "podman", "conmon"}, name)
}

// A count is the kernel's counters at one time.
type count struct {
	at        time.Time
	cpus      map[int64]procfs.CPUStat
	processes map[int]process
	parents   map[int]int   // PID -> PID
	throttled time.Duration // by CPU limits above this process; see throttled
}

// A process is the data about one process, or about one thread of a daemon that serves runs.
type process struct {
	name    string
	started uint64  // clock ticks after boot; distinguishes processes with the same PID
	cpu     float64 // seconds of CPU time
	ours    bool    // its CPU time belongs to the run, but not to an instance
	counted bool    // it belongs to an instance, and the instance's use includes its CPU time
	thread  bool    // it is one thread, of the kernel or a daemon, so that on says where it used CPU time
	on      int     // CPU on which it ran last
}

// readCount reads the counters of all CPUs and processes. It allocates, so it is
// called before and after a trial, never during it.
func readCount(fs procfs.FS) (count, error) {
	above, err := cgroup.Above(fs)
	if err != nil {
		return count{}, fmt.Errorf("find the CPU limits above this process: %w", err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return count{}, fmt.Errorf("read the host's CPU time: %w", err)
	}
	c := count{at: time.Now(), cpus: stat.CPU, processes: map[int]process{}, parents: map[int]int{}, throttled: throttled(above)}
	all, err := fs.AllProcs()
	if err != nil {
		return count{}, fmt.Errorf("list the host's processes: %w", err)
	}
	sessions := map[int]int{}
	add := func(pid, parent int, s procfs.ProcStat, counted, serves bool) {
		c.parents[pid], sessions[pid] = parent, s.Session
		c.processes[pid] = process{name: s.Comm, started: s.Starttime, cpu: s.CPUTime(), counted: counted, ours: serves, thread: serves, on: int(s.Processor)}
	}
	for _, p := range all {
		s, err := p.Stat()
		if err != nil { // the process has ended
			continue
		}
		counted, serves := inInstance(p), servesRuns(s.Comm)
		add(p.PID, s.PPID, s, counted, serves)
		if !serves {
			continue
		}
		threads, _ := fs.AllThreads(p.PID) // none if the process has ended
		for _, thread := range threads {
			parent := p.PID
			if thread.PID == p.PID { // the first thread, whose data replace the process's
				parent = s.PPID
			}
			if s, err := thread.Stat(); err == nil {
				add(thread.PID, parent, s, counted, serves)
			}
		}
	}
	self := os.Getpid()
	for pid, p := range c.processes {
		below, kernel := descends(c.parents, pid, self), descends(c.parents, pid, kthreadd)
		// The commands of instances lead sessions, which is how to know them without a cgroup.
		p.counted = p.counted || below && sessions[pid] != sessions[self]
		p.thread = p.thread || kernel
		p.ours = !p.counted && (p.ours || kernel || below)
		c.processes[pid] = p
	}
	return c, nil
}

// mark marks the processes of instances whose main process is known. A container engine starts
// them in cgroups of its own.
func (c count) mark(instances []vitrine.Vantage) {
	for pid, p := range c.processes {
		if slices.ContainsFunc(instances, func(v vitrine.Vantage) bool { return v.PID > 0 && descends(c.parents, pid, v.PID) }) {
			p.counted, p.ours = true, false
			c.processes[pid] = p
		}
	}
}

// throttled returns for how long the groups' own CPU limits stopped processes, summed over CPUs. A
// group without a limit, or without the controller cpu, adds nothing.
func throttled(groups []string) (total time.Duration) {
	units := map[string]time.Duration{"throttled_usec": time.Microsecond, "throttled_time": time.Nanosecond} // versions 2 and 1
	for _, group := range groups {
		text, _ := os.ReadFile(filepath.Join(group, "cpu.stat")) // missing without the controller
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, _ := strconv.ParseInt(value, 10, 64) // the kernel writes numbers
			total += time.Duration(n) * units[name]
		}
	}
	return total
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

// shows reports whether the count has all the CPUs. In a container, lxcfs may number the CPUs in
// /proc/stat from 0, while the CPU affinity has the host's numbers.
func (c count) shows(cpus []int) bool {
	return !slices.ContainsFunc(cpus, func(cpu int) bool {
		_, shown := c.cpus[int64(cpu)]
		return !shown
	})
}

// since returns what others took of the run's CPUs since the earlier count. own is the number of
// CPUs that the run's instances used; NaN: unknown. In a time shorter than countable, or if a count
// lacks a CPU, no steal is counted, and the use of other processes is unknown.
//
// Busy time is the elapsed time minus idle time, steal and interrupts. The kernel measures idle
// time, but it samples user and system time by its tick, which misses work between ticks.
// Interrupts are mostly the run's own packets.
//
// The kernel rounds each counter to 10 ms, so the busy time of an idle CPU may be as much below 0. In the
// sum over many CPUs these errors cancel out. Steal while a CPU is idle counts as idle time too, which
// must not hide the use of another CPU.
//
// All CPU time of a thread counts as spent on the run's CPUs if it was on one of them at the start or at the
// end. A daemon's threads move, and its work for the run must not count as a disturbance.
func (c count) since(before count, cpus []int, own float64) use {
	took := c.at.Sub(before.at)
	u := use{throttled: (c.throttled - before.throttled).Seconds() / took.Seconds()}
	if took < countable || !before.shows(cpus) || !c.shows(cpus) {
		u.steal, u.other = make([]float64, len(cpus)), math.NaN()
		return u
	}
	elapsed := took.Seconds()
	var busy float64
	for _, cpu := range cpus {
		was, is := before.cpus[int64(cpu)], c.cpus[int64(cpu)]
		steal := max(is.Steal-was.Steal, 0)
		u.steal = append(u.steal, steal/elapsed)
		spent := is.Idle - was.Idle + is.Iowait - was.Iowait + steal + is.IRQ - was.IRQ + is.SoftIRQ - was.SoftIRQ
		busy += max(elapsed-spent, -counterUnit.Seconds())
	}
	var others []consumer
	for pid, p := range c.processes {
		used, here := p.cpu, slices.Contains(cpus, p.on)
		if was, ok := before.processes[pid]; ok && was.started == p.started {
			used -= was.cpu
			here = here || slices.Contains(cpus, was.on)
		}
		switch {
		case p.thread && !here: // it used other CPUs
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
