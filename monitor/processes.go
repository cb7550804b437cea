package monitor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// processes reads an instance without a cgroup: its main process and all descendants. It reads the
// CPU clock of each process (nanoseconds, all threads) and its resident pages. Shared pages count
// once in each process.
//
// It looks for descendants once in `every` samples. It misses a descendant that lives for less than
// that, or that gets another parent before it is found.
type processes struct {
	proc        string // "/proc"
	main        int
	cpu, memory bool // metrics to read

	every     int
	countdown int
	members   []process
	ended     float64 // CPU time of ended members, in ns
}

type process struct {
	pid   int
	statm *file   // stays with this process even if its PID is reused
	spent float64 // CPU time, in ns
}

func (p *processes) provides() (provided []metric) {
	if p.cpu {
		provided = append(provided, cpu)
	}
	if p.memory {
		provided = append(provided, memory)
	}
	return provided
}

func (p *processes) close() {
	for _, m := range p.members {
		m.statm.close()
	}
	p.members = nil
}

func (p *processes) read(buf []byte, t *total) error {
	if p.countdown--; p.countdown < 0 {
		p.countdown = p.every - 1
		p.find(p.main)
	}
	var spent, resident float64
	for i := 0; i < len(p.members); i++ {
		m := &p.members[i]
		pages, err := m.sample(buf)
		if err == nil {
			spent += m.spent
			resident += pages
			continue
		}
		if m.pid == p.main {
			return err
		}
		p.ended += m.spent
		m.statm.close()
		p.members = append(p.members[:i], p.members[i+1:]...)
		i--
	}
	if len(p.members) == 0 {
		return fmt.Errorf("process %d could not be read", p.main)
	}
	if p.cpu {
		t[cpu] = p.ended + spent
	}
	if p.memory {
		t[memory] = resident * float64(os.Getpagesize())
	}
	return nil
}

// sample updates the CPU time and returns the resident pages. It reads statm first, because statm
// fails once the process is gone; the PID of the clock may then belong to another process.
func (m *process) sample(buf []byte) (pages float64, err error) {
	data, err := m.statm.read(buf)
	if err != nil {
		return 0, err
	}
	resident, err := parseStatm(data)
	if err != nil {
		return 0, m.statm.wrap(err)
	}
	spent, err := ProcessCPU(m.pid)
	if err != nil {
		return 0, err
	}
	m.spent = float64(spent)
	return float64(resident), nil
}

// ProcessCPU returns the CPU time that all threads of a process have used
// (clock_getcpuclockid(3)). It fails if the process has ended.
func ProcessCPU(pid int) (time.Duration, error) {
	const allThreads = 2 // CPUCLOCK_SCHED without CPUCLOCK_PERTHREAD, of include/linux/posix-timers.h
	ns, err := clock(^int32(pid)<<3 | allThreads)
	if err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ns), nil
}

// find adds a process and its descendants, unless they are members already.
func (p *processes) find(pid int) {
	if !p.has(pid) {
		folder := filepath.Join(p.proc, strconv.Itoa(pid))
		statm, err := openFile(filepath.Join(folder, "statm"))
		if err != nil {
			return // gone; if it is the main process, read reports it
		}
		p.members = append(p.members, process{pid: pid, statm: statm})
	}
	threads, err := os.ReadDir(filepath.Join(p.proc, strconv.Itoa(pid), "task"))
	if err != nil {
		return
	}
	for _, thread := range threads {
		children, err := os.ReadFile(filepath.Join(p.proc, strconv.Itoa(pid), "task", thread.Name(), "children"))
		if err != nil {
			continue
		}
		for child := range strings.FieldsSeq(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				p.find(n)
			}
		}
	}
}

func (p *processes) has(pid int) bool {
	return slices.ContainsFunc(p.members, func(m process) bool { return m.pid == pid })
}
