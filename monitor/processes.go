package monitor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// processes reads an instance that has no cgroup: its main process and that
// one's descendants, each by its own CPU clock (nanoseconds, all threads) and
// its resident pages, of which shared ones count once in each process.
//
// Descendants are looked for once in `every` samples. One that lives less than
// that, or that is handed to another parent before it was seen, is not counted.
type processes struct {
	proc        string // "/proc"
	main        int
	cpu, memory bool // which to tell

	every     int
	countdown int
	members   []process
	ended     float64 // CPU time of members that are gone, ns
}

type process struct {
	pid   int
	statm *file   // stays with this process, should its number be given out again
	spent float64 // CPU time, ns
}

func (p *processes) tells() (told []metric) {
	if p.cpu {
		told = append(told, cpu)
	}
	if p.memory {
		told = append(told, memory)
	}
	return told
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

// sample updates the CPU time spent and returns the resident pages. statm comes
// first: it fails once the process is gone, when the clock's number may be
// another's already.
func (m *process) sample(buf []byte) (pages float64, err error) {
	data, err := m.statm.read(buf)
	if err != nil {
		return 0, err
	}
	resident, err := parseStatm(data)
	if err != nil {
		return 0, m.statm.wrap(err)
	}
	ns, err := clock(processClock(m.pid))
	if err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", m.pid, err)
	}
	m.spent = float64(ns)
	return float64(resident), nil
}

// processClock is the clock id of a process's CPU time: CPUCLOCK_SCHED of all
// its threads (clock_getcpuclockid(3), and include/linux/posix-timers.h).
func processClock(pid int) int32 { return ^int32(pid)<<3 | 2 }

// find adds the process and its descendants that are not members yet.
func (p *processes) find(pid int) {
	if !p.has(pid) {
		folder := filepath.Join(p.proc, strconv.Itoa(pid))
		statm, err := openFile(filepath.Join(folder, "statm"))
		if err != nil {
			return // gone, or its main process is and read says so
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
