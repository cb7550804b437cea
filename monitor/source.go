package monitor

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/cgroup"
)

// A file is a kernel file that stays open. Each read starts at its beginning.
type file struct {
	path string
	fd   int
}

func openFile(path string) (*file, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &file{path, fd}, nil
}

// wholeBelow is a size in bytes. A read that returns fewer bytes has reached the end of the file.
// The kernel's sequence files return at most a page per read, and end a read early only if the next
// line (shorter than half a page) does not fit.
const wholeBelow = 2048

// read reads the file into buf. It truncates a larger file.
func (f *file) read(buf []byte) ([]byte, error) {
	n := 0
	for n < len(buf) {
		got, err := pread(f.fd, buf[n:], n)
		if err != nil {
			return nil, f.wrap(err)
		}
		n += got
		if got < wholeBelow {
			break
		}
	}
	return buf[:n], nil
}

func (f *file) wrap(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: the cgroup was removed", f.path)
	}
	return fmt.Errorf("%s: %w", f.path, err)
}

func (f *file) close() {
	if f != nil {
		unix.Close(f.fd)
	}
}

// numberFile is a file that holds one number.
type numberFile struct {
	*file
	metric metric
}

func (f numberFile) provides() []metric { return []metric{f.metric} }

func (f numberFile) read(buf []byte, t *total) error {
	data, err := f.file.read(buf)
	if err != nil {
		return err
	}
	v, err := parseNumber(data)
	if err != nil {
		return f.wrap(err)
	}
	t[f.metric] = float64(v)
	return nil
}

// statFile is a file of named numbers, such as cpu.stat.
type statFile struct {
	*file
	fields []field
}

type field struct {
	key    string
	metric metric
	scale  float64 // factor from the file's unit to the metric's unit
}

func (f statFile) provides() (provided []metric) {
	for _, field := range f.fields {
		provided = append(provided, field.metric)
	}
	return provided
}

func (f statFile) read(buf []byte, t *total) error {
	data, err := f.file.read(buf)
	if err != nil {
		return err
	}
	for _, field := range f.fields {
		v, err := parseField(data, field.key)
		if err != nil {
			return f.wrap(err)
		}
		t[field.metric] = float64(v) * field.scale
	}
	return nil
}

// workingSet is a cgroup's memory minus its inactive file cache, as Docker and the kubelet compute
// it. The kernel reclaims that cache before the limit takes effect. The cache value costs more to
// read than all other values and changes slowly. So it is read once in `every` samples, in
// different samples for different instances.
type workingSet struct {
	usage, stat *file
	key         string // key in stat
	every       int
	countdown   int
	cache       uint64
}

func (w *workingSet) provides() []metric { return []metric{memory} }

func (w *workingSet) close() { w.usage.close(); w.stat.close() }

func (w *workingSet) read(buf []byte, t *total) error {
	if w.countdown--; w.countdown < 0 {
		w.countdown = w.every - 1
		if err := w.readCache(buf); err != nil {
			return err
		}
	}
	data, err := w.usage.read(buf)
	if err != nil {
		return err
	}
	used, err := parseNumber(data)
	if err != nil {
		return w.usage.wrap(err)
	}
	t[memory] = float64(used - min(used, w.cache))
	return nil
}

func (w *workingSet) readCache(buf []byte) error {
	data, err := w.stat.read(buf)
	if err != nil {
		return err
	}
	if w.cache, err = parseField(data, w.key); err != nil {
		return w.stat.wrap(err)
	}
	return nil
}

// openInstance opens all files of an instance. It prefers the cgroup's files to the process's. slow
// is the number of samples between readings of slow values; turn spreads the readings of different
// instances over the samples.
func openInstance(v vitrine.Vantage, proc string, slow, turn int) *subject {
	s := newSubject(v.Instance, v.Component)
	s.use.vantage, s.killed = v, killed(v)
	s.openCPU(v)
	s.openMemory(v, slow, turn%slow)
	s.openProcesses(v, proc, slow)
	if net := openNetDev(v); net.file != nil {
		s.sources = append(s.sources, net)
	} else {
		s.lose(net.why, rx, tx)
	}
	s.lose("counted by CPU, in the host's rows", softirq, steal)
	return s
}

// killed returns how many processes of the instance's cgroup the kernel has killed for lack of memory. It
// is 0 without a cgroup.
func killed(v vitrine.Vantage) int {
	dir := cmp.Or(v.CgroupMemory, v.CgroupV2)
	if dir == "" {
		return 0
	}
	return cgroup.OutOfMemory(dir)
}

func (s *subject) openCPU(v vitrine.Vantage) {
	switch {
	case v.CgroupCPUAcct != "":
		f, err := openFile(filepath.Join(v.CgroupCPUAcct, "cpuacct.usage"))
		s.keep(numberFile{f, cpu}, err, cpu)
	case v.CgroupV2 != "":
		s.openStat(v.CgroupV2, field{"usage_usec", cpu, 1e3}, field{"throttled_usec", throttled, 1e3})
		return
	default:
		s.lose(reason(v, vitrine.CPU, "no cgroup and no process to read it from"), cpu)
	}
	if v.CgroupCPU == "" {
		s.lose(reason(v, "throttled", "no cgroup with a CPU quota"), throttled)
		return
	}
	s.openStat(v.CgroupCPU, field{"throttled_time", throttled, 1})
}

// openStat opens a cgroup's cpu.stat for the fields that it has. Version 2 has throttled_usec only
// if the cgroup has the cpu controller.
func (s *subject) openStat(folder string, fields ...field) {
	f, err := openFile(filepath.Join(folder, "cpu.stat"))
	var data []byte
	if err == nil {
		data, err = f.read(make([]byte, 1<<14))
	}
	stat := statFile{file: f}
	for _, field := range fields {
		why := err
		if why == nil {
			if _, why = parseField(data, field.key); why == nil {
				stat.fields = append(stat.fields, field)
				continue
			}
			why = f.wrap(why)
		}
		s.lose(why.Error(), field.metric)
	}
	if stat.fields == nil {
		f.close()
		return
	}
	s.sources = append(s.sources, stat)
}

func (s *subject) openMemory(v vitrine.Vantage, every, countdown int) {
	w := &workingSet{every: every, countdown: countdown}
	var folder, usage string
	switch {
	case v.CgroupMemory != "":
		folder, usage, w.key = v.CgroupMemory, "memory.usage_in_bytes", "total_inactive_file"
	case v.CgroupV2 != "":
		folder, usage, w.key = v.CgroupV2, "memory.current", "inactive_file"
	default:
		s.lose(reason(v, vitrine.Memory, "no cgroup and no process to read it from"), memory)
		return
	}
	s.keep(w, w.open(filepath.Join(folder, usage), filepath.Join(folder, "memory.stat")), memory)
}

// open opens the files. It also reads the cache once, for the samples before its first turn.
func (w *workingSet) open(usage, stat string) (err error) {
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.usage, err = openFile(usage); err != nil {
		return err
	}
	if w.stat, err = openFile(stat); err != nil {
		return err
	}
	return w.readCache(make([]byte, 1<<14))
}

// openProcesses makes the processes the source of the metrics that no cgroup provides.
func (s *subject) openProcesses(v vitrine.Vantage, proc string, every int) {
	p := &processes{proc: proc, main: v.PID, every: every, cpu: s.why[cpu] != "", memory: s.why[memory] != ""}
	if v.PID <= 0 || !p.cpu && !p.memory {
		return
	}
	for _, m := range p.provides() {
		s.why[m] = ""
	}
	s.sources = append(s.sources, p)
}

// keep adds the source, or marks the metric as missing if err is not nil.
func (s *subject) keep(src source, err error, m metric) {
	if err != nil {
		s.lose(err.Error(), m)
		return
	}
	s.sources = append(s.sources, src)
}

// reason returns the substrate's reason why a metric is missing, or otherwise.
func reason(v vitrine.Vantage, name, otherwise string) string {
	return cmp.Or(v.Missing[name], otherwise)
}
