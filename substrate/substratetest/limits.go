package substratetest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/substrate"
)

// output runs the program in the instance until it exits, and returns its standard output.
func (s *suite) output(in substrate.Instance, dir string, args ...string) string {
	s.Helper()
	command := s.command(args...)
	command.Stdout = filepath.Join(dir, args[0])
	if err := s.finish(in, command); err != nil {
		s.Fatalf("run %v: %v", args, err)
	}
	b, err := os.ReadFile(command.Stdout)
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// finish runs a command until it exits.
func (s *suite) finish(in substrate.Instance, command vitrine.Command) error {
	s.Helper()
	if !s.single() {
		return in.Run(s.ctx, command)
	}
	p, err := in.Start(s.ctx, command)
	if err != nil {
		return err
	}
	return s.ended(p)
}

// lastCPU returns the last CPU that this process may run on.
func (s *suite) lastCPU() int {
	s.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		s.Fatal(err)
	}
	for cpu := len(set)*64 - 1; cpu >= 0; cpu-- {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	s.Fatal("this process may run on no CPU")
	return 0
}

func testAffinity(s *suite) {
	spec := s.spec("sprout-1")
	cpu := s.lastCPU()
	spec.CPUs = []int{cpu}
	in := s.create(spec)
	if s.h.Machine != nil {
		s.machineAffinity(in, cpu)
		return
	}
	if got := s.output(in, spec.Dir, "cpus"); got != strconv.Itoa(cpu) {
		s.Errorf("may run on CPUs %s, want %d", got, cpu)
	}
}

// machineAffinity checks the affinity of all threads of the machine's process.
func (s *suite) machineAffinity(in substrate.Instance, cpu int) {
	s.Helper()
	s.start(in, "serve", s.mark())
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", in.Vantage().PID))
	if err != nil || len(threads) < 2 {
		s.Fatalf("threads of the machine: %q, %v", threads, err)
	}
	want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpu)
	for _, file := range threads {
		b, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(b), want) { // an error means that the thread has ended
			s.Errorf("%s does not have %q", file, want)
		}
	}
}

// testQuota keeps two CPUs busy for 1.2 s under a quota of 0.15 CPUs, and checks the CPU time. The
// lower bound is wide, because a busy host may give less. The upper bound is the quota plus 10%
// plus 0.02 CPUs, one period's slack.
func testQuota(s *suite) {
	quota := 0.15
	if s.h.Machine != nil {
		quota = s.h.Machine.Quota
	}
	spec := s.spec("sprout-1")
	spec.VCPUs = quota
	in := s.create(spec)
	if s.h.Machine != nil {
		s.machineQuota(in, spec)
		return
	}
	before, readable := cpuUsed(in.Vantage())
	begun := time.Now()
	var cpu, wall float64
	printed := s.output(in, spec.Dir, "spin", "1200")
	if _, err := fmt.Sscan(printed, &cpu, &wall); err != nil {
		s.Fatalf("%q: %v", printed, err)
	}
	s.Logf("used %.3f CPUs of a quota of %.2f", cpu/wall, quota)
	if cpu/wall > quota*1.1+0.02 {
		s.Errorf("used %.3f CPUs, over the quota of %.2f", cpu/wall, quota)
	}
	if cpu/wall < quota*0.1 {
		s.Errorf("used %.3f CPUs, far below the quota of %.2f", cpu/wall, quota)
	}
	if !readable {
		return
	}
	after, _ := cpuUsed(in.Vantage())
	// The vantage also counts the CPU time to start and end the program.
	if seen, all := after-before, float64(time.Since(begun)); seen < cpu*0.95 || seen > all*(quota*1.1+0.02) {
		s.Errorf("the vantage counted %.0f ns of CPU time, the program %.0f", seen, cpu)
	}
	if throttled := throttledPeriods(s, in.Vantage()); throttled == 0 {
		s.Error("the vantage counted no throttling")
	}
}

// testSpent compares the CPU time of an ended command with the program's own count, which lacks its end.
// A substrate that does not know the CPU time passes.
func testSpent(s *suite) {
	if s.h.Machine != nil {
		return // its process is the machine's
	}
	spec := s.spec("sprout-1")
	in := s.create(spec)
	begun := time.Now()
	p := s.start(in, "spin", "200")
	if err := s.ended(p); err != nil {
		s.Fatal(err)
	}
	most := time.Since(begun).Nanoseconds() * int64(runtime.NumCPU())
	timed, ok := p.(substrate.Timed)
	if !ok {
		return
	}
	var cpu, wall int64
	printed, err := os.ReadFile(filepath.Join(spec.Dir, "log"))
	if err == nil {
		_, err = fmt.Sscan(string(printed), &cpu, &wall)
	}
	if err != nil {
		s.Fatalf("%q: %v", printed, err)
	}
	if spent := timed.Spent().Nanoseconds(); cpu == 0 || spent < cpu || spent > most {
		s.Errorf("the command spent %d ns of CPU time, want %d to %d", spent, cpu, most)
	}
}

// machineQuota measures the machine's CPU time on the host. The guest's count is too high, because
// it includes stolen time.
func (s *suite) machineQuota(in substrate.Instance, spec substrate.Spec) {
	s.Helper()
	s.output(in, spec.Dir, "where") // wait until the machine has booted
	before, _ := cpuUsed(in.Vantage())
	begun := time.Now()
	s.output(in, spec.Dir, "spin", "1200")
	after, readable := cpuUsed(in.Vantage())
	if !readable {
		s.Fatalf("the machine's CPU use is missing: %v", in.Vantage().Missing)
	}
	used := (after - before) / float64(time.Since(begun))
	s.Logf("used %.3f CPUs of a quota of %.2f", used, spec.VCPUs)
	if used > spec.VCPUs*1.1+0.02 || used < spec.VCPUs*0.1 {
		s.Errorf("used %.3f CPUs of a quota of %.2f", used, spec.VCPUs)
	}
	if throttledPeriods(s, in.Vantage()) == 0 {
		s.Error("the vantage counted no throttling")
	}
}

func testMemoryLimit(s *suite) {
	spec := s.spec("sprout-1")
	var extra int64
	if spec.Memory = 64 << 20; s.h.Machine != nil {
		spec.Memory, extra = s.h.Machine.Memory, s.h.Machine.Extra
	}
	limit := spec.Memory >> 20
	in := s.create(spec)
	if why := in.Vantage().Missing["memory-limit"]; why != "" {
		s.Skip(&vitrine.Unsupported{What: "memory limits", Missing: why})
	}
	below := s.start(in, "allocate", "16")
	s.logged(filepath.Join(spec.Dir, "log"), "ready")
	if used, ok := memoryUsed(in.Vantage()); ok && (used < 16<<20 || used > float64(spec.Memory+extra)) {
		s.Errorf("the vantage counted %.0f bytes, want 16 to %d MiB", used, (spec.Memory+extra)>>20)
	}
	if err := in.Stop(s.ctx, 0); err != nil {
		s.Fatal(err)
	}
	_ = s.ended(below)
	if err := s.ended(s.start(in, "allocate", strconv.FormatInt(4*limit, 10))); err == nil {
		s.Errorf("a program allocated %d MiB under a limit of %d MiB", 4*limit, limit)
	} else if !strings.Contains(err.Error(), "memory") {
		s.Errorf("the error does not name the memory limit: %v", err)
	}
}

func testVantage(s *suite) {
	spec := s.spec("sprout-1")
	spec.VCPUs, spec.Memory = 1, 64<<20
	if s.h.Machine != nil {
		spec.Memory = s.h.Machine.Memory
	}
	spec.CPUs = []int{s.lastCPU()}
	in := s.create(spec)
	s.start(in, "serve", s.mark())
	s.logged(filepath.Join(spec.Dir, "log"), "ready")
	v := in.Vantage()
	s.Logf("%+v", v)
	if v.Instance != "sprout-1" || v.Component != "sprout" || v.VCPUs != 1 || v.Memory != spec.Memory {
		s.Errorf("vantage %+v does not match the Spec", v)
	}
	if v.NetNS != in.NetNS() {
		s.Errorf("the vantage has network namespace %q, the instance %q", v.NetNS, in.NetNS())
	}
	if v.PID != 0 && s.h.Machine == nil {
		if pids := s.processes(s.mark()); len(pids) != 1 || pids[0] != v.PID {
			s.Errorf("the vantage has PID %d, the process is %v", v.PID, pids)
		}
	}
	if _, ok := cpuUsed(v); !ok && v.PID == 0 && v.Missing["cpu"] == "" {
		s.Error("CPU use is missing without a reason")
	}
	if _, ok := memoryUsed(v); !ok && v.PID == 0 && v.Missing["memory"] == "" {
		s.Error("memory use is missing without a reason")
	}
	if v.CgroupCPU == "" && v.CgroupV2 == "" && v.Missing["throttled"] == "" {
		s.Error("throttling is missing without a reason")
	}
	if v.NetNS == "" && v.Missing["network"] == "" {
		s.Error("network use is missing without a reason")
	}
	for _, path := range []string{v.CgroupV2, v.CgroupCPU, v.CgroupCPUAcct, v.CgroupMemory, v.NetNS} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			s.Error(err)
		}
	}
}

// cpuUsed returns the CPU time in nanoseconds. It returns false if the vantage lacks it.
func cpuUsed(v vitrine.Vantage) (float64, bool) {
	if v.CgroupCPUAcct != "" {
		return field(filepath.Join(v.CgroupCPUAcct, "cpuacct.usage"), "")
	}
	if v.CgroupV2 != "" {
		us, ok := field(filepath.Join(v.CgroupV2, "cpu.stat"), "usage_usec")
		return us * 1000, ok
	}
	return 0, false
}

// memoryUsed returns the memory use in bytes. It returns false if the vantage lacks it.
func memoryUsed(v vitrine.Vantage) (float64, bool) {
	if v.CgroupMemory != "" {
		return field(filepath.Join(v.CgroupMemory, "memory.usage_in_bytes"), "")
	}
	if v.CgroupV2 != "" {
		return field(filepath.Join(v.CgroupV2, "memory.current"), "")
	}
	return 0, false
}

func throttledPeriods(s *suite, v vitrine.Vantage) float64 {
	s.Helper()
	n, ok := field(filepath.Join(v.CgroupCPU+v.CgroupV2, "cpu.stat"), "nr_throttled")
	if !ok {
		s.Error("throttling cannot be read")
	}
	return n
}

// field returns the number after a name in a file of "name number" lines. With an empty name, it
// returns the file's only number.
func field(file, name string) (float64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if name != "" && len(words) > 0 && words[0] == name {
			words = words[1:]
		} else if name != "" {
			continue
		}
		if len(words) != 1 {
			return 0, false
		}
		n, err := strconv.ParseFloat(words[0], 64)
		return n, err == nil
	}
	return 0, false
}
