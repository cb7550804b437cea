package result

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/sysfs"
	"golang.org/x/sys/unix"
)

// A Host describes the machine of a run. A field that could not be read is empty, and Missing has
// the reason under the field's JSON name.
type Host struct {
	Name           string   `json:"name"`
	Kernel         string   `json:"kernel"` // release
	OS             string   `json:"os"`     // PRETTY_NAME of os-release(5)
	CPUModel       string   `json:"cpu_model"`
	CPUs           int      `json:"cpus"`           // online; 0: unknown
	Governor       string   `json:"governor"`       // of CPU frequency; several joined by commas
	Turbo          string   `json:"turbo"`          // "on", "off"
	SMT            string   `json:"smt"`            // the content of /sys/devices/system/cpu/smt/control
	Siblings       []string `json:"siblings"`       // CPU lists that share a core: "0,4"
	IsolatedCPUs   []int    `json:"isolated_cpus"`  // isolcpus=
	MemoryBytes    int64    `json:"memory_bytes"`   // 0: unknown
	Virtualization string   `json:"virtualization"` // "none", or the kind of virtual machine
	Clocksource    string   `json:"clocksource"`    // the kernel's current time source
	Cgroup         string   `json:"cgroup"`         // "v1", "v2", "hybrid"

	Missing map[string]string `json:"missing"`
}

// Machine names the kind of machine, such as "AMD EPYC with 2 CPUs".
func (h Host) Machine() string {
	return fmt.Sprintf("%s with %d CPUs", cmp.Or(h.CPUModel, "a host"), h.CPUs)
}

// KernelMark stands between machine and kernel in Described.
const KernelMark = ", Linux "

// Described names the kind of machine and its kernel.
func (h Host) Described() string { return h.Machine() + KernelMark + h.Kernel }

// ReadHost reads the machine from the folders proc, sys and etc below root. root is "/" except in
// tests.
func ReadHost(root string) Host {
	p := probe{root: root, host: Host{Missing: map[string]string{}}}
	p.host.Name = p.line("name", "proc/sys/kernel/hostname")
	p.host.Kernel = p.line("kernel", "proc/sys/kernel/osrelease")
	p.host.SMT = p.line("smt", "sys/devices/system/cpu/smt/control")
	p.readOS()
	p.readProc()
	p.readGovernor()
	p.readSys()
	p.readTurbo()
	return p.host
}

// A probe reads a Host.
type probe struct {
	root string
	host Host
}

func (p *probe) path(name string) string { return filepath.Join(p.root, name) }

// miss stores why fields are empty, with the path as on the host.
func (p *probe) miss(err error, fields ...string) {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		if name, relErr := filepath.Rel(p.root, pe.Path); relErr == nil {
			err = fmt.Errorf("%s /%s: %w", pe.Op, name, pe.Err)
		}
	}
	for _, field := range fields {
		p.host.Missing[field] = err.Error()
	}
}

func (p *probe) line(field, name string) string {
	text, err := os.ReadFile(p.path(name))
	if err != nil {
		p.miss(err, field)
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (p *probe) readOS() {
	text, err := os.ReadFile(p.path("etc/os-release"))
	if err != nil {
		p.miss(err, "os")
		return
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			if plain, err := strconv.Unquote(v); err == nil {
				v = plain
			}
			p.host.OS = v
			return
		}
	}
	p.miss(errors.New("/etc/os-release has no PRETTY_NAME"), "os")
}

func (p *probe) readProc() {
	fs, err := procfs.NewFS(p.path("proc"))
	if err != nil {
		p.miss(err, "cpu_model", "cpus", "virtualization", "memory_bytes", "cgroup")
		return
	}
	p.readCPUs(fs)
	if m, err := fs.Meminfo(); err != nil {
		p.miss(err, "memory_bytes")
	} else if m.MemTotalBytes == nil {
		p.miss(errors.New("/proc/meminfo has no MemTotal"), "memory_bytes")
	} else {
		p.host.MemoryBytes = int64(*m.MemTotalBytes)
	}
	if mounts, err := fs.GetMounts(); err != nil {
		p.miss(err, "cgroup")
	} else {
		p.readCgroup(mounts)
	}
}

func (p *probe) readCPUs(fs procfs.FS) {
	cpus, err := fs.CPUInfo()
	if err == nil && len(cpus) == 0 {
		err = errors.New("/proc/cpuinfo lists no CPU")
	}
	if err != nil {
		p.miss(err, "cpu_model", "cpus", "virtualization")
		return
	}
	p.host.CPUs = len(cpus)
	p.host.CPUModel = modelOf(cpus[0])
	if p.host.CPUModel == "" {
		p.miss(errors.New("/proc/cpuinfo names no model"), "cpu_model")
	}
	p.readVirtualization(cpus[0])
}

// modelOf returns the name of a CPU's model. A name without a number, which many hypervisors show, may be of
// several generations: family and model tell them apart.
func modelOf(cpu procfs.CPUInfo) string {
	if cpu.ModelName == "" || cpu.CPUFamily == "" || strings.ContainsAny(cpu.ModelName, "0123456789") {
		return cpu.ModelName
	}
	return fmt.Sprintf("%s (family %s, model %s)", cpu.ModelName, cpu.CPUFamily, cpu.Model)
}

// readVirtualization reads the CPU flag that a hypervisor sets for its guests (CPUID leaf 1, ECX
// bit 31). The firmware's tables have the hypervisor's name.
func (p *probe) readVirtualization(cpu procfs.CPUInfo) {
	switch {
	case !slices.Contains(cpu.Flags, "fpu"): // which every x86 has, and no other architecture that lists flags
		p.miss(errors.New("/proc/cpuinfo says it on x86 only"), "virtualization")
		return
	case !slices.Contains(cpu.Flags, "hypervisor"):
		p.host.Virtualization = "none"
		return
	}
	p.host.Virtualization = "virtual machine (hypervisor flag)"
	for _, name := range []string{"sys/hypervisor/type", "sys/class/dmi/id/product_name"} {
		if text, err := os.ReadFile(p.path(name)); err == nil && len(bytes.TrimSpace(text)) > 0 {
			p.host.Virtualization += ": " + string(bytes.TrimSpace(text))
			return
		}
	}
	p.miss(errors.New("neither /sys/hypervisor/type nor /sys/class/dmi/id/product_name names the hypervisor"), "hypervisor")
}

func (p *probe) readCgroup(mounts []*procfs.MountInfo) {
	v1, v2 := false, false
	for _, m := range mounts {
		v1 = v1 || m.FSType == "cgroup"
		v2 = v2 || m.FSType == "cgroup2"
	}
	switch {
	case v1 && v2:
		p.host.Cgroup = "hybrid"
	case v2:
		p.host.Cgroup = "v2"
	case v1:
		p.host.Cgroup = "v1"
	default:
		p.miss(errors.New("no cgroup file system is mounted"), "cgroup")
	}
}

func (p *probe) readSys() {
	fs, err := sysfs.NewFS(p.path("sys"))
	if err != nil {
		p.miss(err, "siblings", "isolated_cpus", "clocksource")
		return
	}
	p.readSiblings()
	if isolated, err := fs.IsolatedCPUs(); err != nil {
		p.miss(err, "isolated_cpus")
	} else {
		p.host.IsolatedCPUs = make([]int, 0, len(isolated)) // an empty list means none; nil means unknown
		for _, cpu := range isolated {
			p.host.IsolatedCPUs = append(p.host.IsolatedCPUs, int(cpu))
		}
	}
	sources, err := fs.ClockSources()
	if err == nil && len(sources) == 0 {
		err = errors.New("/sys/devices/system/clocksource does not exist")
	}
	if err != nil {
		p.miss(err, "clocksource")
		return
	}
	p.host.Clocksource = sources[0].Current
}

// perCPU returns the distinct contents of one file of all CPUs. An offline CPU lacks the file, or
// the kernel answers EBUSY. Package sysfs also reads other files, which some drivers lack.
func (p *probe) perCPU(name string) (values []string, err error) {
	files, err := filepath.Glob(p.path("sys/devices/system/cpu/cpu[0-9]*/" + name))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, unix.EBUSY) { // show in drivers/cpufreq/cpufreq.c
			continue
		}
		if err != nil {
			return nil, err
		}
		if value := strings.TrimSpace(string(text)); !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values, nil
}

func (p *probe) readGovernor() {
	governors, err := p.perCPU("cpufreq/scaling_governor")
	if err == nil && len(governors) == 0 {
		err = errors.New("the kernel does not show CPU frequency control (/sys/devices/system/cpu/cpu0/cpufreq)")
	}
	if err != nil {
		p.miss(err, "governor")
		return
	}
	p.host.Governor = strings.Join(governors, ",")
}

func (p *probe) readSiblings() {
	lists, err := p.perCPU("topology/thread_siblings_list")
	if err == nil && len(lists) == 0 {
		err = errors.New("the kernel does not show which CPUs share a core (/sys/devices/system/cpu/cpu0/topology)")
	}
	if err != nil {
		p.miss(err, "siblings")
		return
	}
	for _, list := range lists {
		if strings.ContainsAny(list, ",-") {
			p.host.Siblings = append(p.host.Siblings, list)
		}
	}
}

// readTurbo reads the two files in which kernels report turbo.
func (p *probe) readTurbo() {
	if text, err := os.ReadFile(p.path("sys/devices/system/cpu/intel_pstate/no_turbo")); err == nil {
		p.host.Turbo = map[string]string{"0": "on", "1": "off"}[strings.TrimSpace(string(text))]
	} else if text, err := os.ReadFile(p.path("sys/devices/system/cpu/cpufreq/boost")); err == nil {
		p.host.Turbo = map[string]string{"1": "on", "0": "off"}[strings.TrimSpace(string(text))]
	}
	if p.host.Turbo == "" {
		p.miss(errors.New("/sys/devices/system/cpu has neither intel_pstate/no_turbo nor cpufreq/boost"), "turbo")
	}
}
