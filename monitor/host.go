package monitor

import (
	"path/filepath"
	"strconv"

	"vitrine/result"
)

// tick is the unit of /proc/stat in ns: USER_HZ is 100 on every architecture that Go supports.
// Without IRQ_TIME_ACCOUNTING, interrupt time is even coarser, because the timer tick samples it.
const tick = 1e7

// host reads the counters of the host and of each CPU.
type host struct {
	stat, meminfo *file
	ticks         []ticks
	subjects      []*subject // the host, cpu0, cpu1, ...
}

func openHost(proc string, buf []byte) *host {
	whole := newSubject("host", result.HostComponent)
	h := &host{subjects: []*subject{whole}}
	var err error
	if h.stat, err = openFile(filepath.Join(proc, "stat")); err != nil {
		whole.lose(err.Error(), cpu, softirq, steal)
	} else if data, err := h.stat.read(buf); err != nil {
		whole.lose(err.Error(), cpu, softirq, steal)
		h.stat.close()
		h.stat = nil
	} else {
		h.ticks = make([]ticks, 1+countCPUs(data))
		for n := range len(h.ticks) - 1 {
			one := newSubject("cpu"+strconv.Itoa(n), result.HostComponent)
			one.lose("measured for the whole host only", memory, rx, tx, throttled)
			h.subjects = append(h.subjects, one)
		}
	}
	if h.meminfo, err = openFile(filepath.Join(proc, "meminfo")); err != nil {
		whole.lose(err.Error(), memory)
	}
	if net, err := openFile(filepath.Join(proc, "net/dev")); err != nil {
		whole.lose(err.Error(), rx, tx)
	} else {
		whole.sources = append(whole.sources, netDev{file: net})
	}
	whole.lose("the host has no quota", throttled)
	return h
}

// read reads the host's files into the counters of its subjects.
func (h *host) read(buf []byte) {
	h.subjects[0].read(buf)
	if h.meminfo != nil {
		if err := h.readMemory(buf); err != nil {
			h.subjects[0].lose(err.Error(), memory)
			h.meminfo.close()
			h.meminfo = nil
		}
	}
	if h.stat == nil {
		return
	}
	data, err := h.stat.read(buf)
	if err == nil {
		if err = parseStat(data, h.ticks); err != nil {
			err = h.stat.wrap(err)
		}
	}
	if err != nil {
		for _, s := range h.subjects {
			s.lose(err.Error(), cpu, softirq, steal)
		}
		h.stat.close()
		h.stat = nil
		return
	}
	for i, s := range h.subjects {
		if s.why[cpu] != "" {
			continue
		}
		if !h.ticks[i].seen {
			s.lose("the CPU was switched off", cpu, softirq, steal)
			continue
		}
		s.total[cpu] = float64(h.ticks[i].busy) * tick
		s.total[softirq] = float64(h.ticks[i].softirq) * tick
		s.total[steal] = float64(h.ticks[i].steal) * tick
	}
}

// readMemory counts memory as used unless it is available to a new program (proc_meminfo(5):
// MemAvailable).
func (h *host) readMemory(buf []byte) error {
	data, err := h.meminfo.read(buf)
	if err != nil {
		return err
	}
	all, err := parseField(data, "MemTotal")
	if err != nil {
		return h.meminfo.wrap(err)
	}
	free, err := parseField(data, "MemAvailable")
	if err != nil {
		return h.meminfo.wrap(err)
	}
	h.subjects[0].total[memory] = float64(all-min(all, free)) * 1024
	return nil
}

func (h *host) close() {
	h.subjects[0].close()
	h.stat.close()
	h.meminfo.close()
}
