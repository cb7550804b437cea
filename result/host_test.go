package result_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vitrine/result"
)

// plant creates the files of a host below a new root.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, []byte(text), path)
	}
	return root
}

func server() map[string]string {
	cpu := func(n, core string) string {
		return "processor\t: " + n + "\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon E5-2680 v2\nphysical id\t: 0\nsiblings\t: 4\ncore id\t\t: " +
			core + "\ncpu cores\t: 2\nflags\t\t: fpu tsc\n\n"
	}
	files := map[string]string{
		"proc/sys/kernel/hostname":                     "dl360p\n",
		"proc/sys/kernel/osrelease":                    "6.1.0-18-amd64\n",
		"proc/cpuinfo":                                 cpu("0", "0") + cpu("1", "1") + cpu("2", "0") + cpu("3", "1"),
		"proc/meminfo":                                 "MemTotal:       1024 kB\nMemFree: 1 kB\n",
		"proc/self/mountinfo":                          "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
		"etc/os-release":                               "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n",
		"sys/devices/system/cpu/smt/control":           "on\n",
		"sys/devices/system/cpu/isolated":              "1,3\n",
		"sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
		"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet\n",
		"sys/devices/system/clocksource/clocksource0/current_clocksource":   "tsc\n",
	}
	for cpu, siblings := range map[string]string{"cpu0": "0,2", "cpu1": "1,3", "cpu2": "0,2", "cpu3": "1,3"} {
		for name, text := range map[string]string{
			"topology/core_id": cpu[3:], "topology/physical_package_id": "0", "topology/core_siblings_list": "0-3",
			"topology/thread_siblings_list": siblings, "cpufreq/scaling_governor": "performance",
		} {
			files["sys/devices/system/cpu/"+cpu+"/"+name] = text + "\n"
		}
	}
	return files
}

func TestHostIsReadWhole(t *testing.T) {
	got := result.ReadHost(plant(t, server()))
	want := result.Host{
		Name: "dl360p", Kernel: "6.1.0-18-amd64", OS: "Debian GNU/Linux 12", CPUModel: "Xeon E5-2680 v2", CPUs: 4,
		Governor: "performance", Turbo: "off", SMT: "on", Siblings: []string{"0,2", "1,3"}, IsolatedCPUs: []int{1, 3},
		MemoryBytes: 1 << 20, Virtualization: "none", Clocksource: "tsc", Cgroup: "v2", Missing: map[string]string{},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
	list := result.NotIsolated(got, result.Reservation{Function: []int{1, 3}, Generator: []int{0}})
	if len(list) != 3 || !strings.Contains(list[0], "share a kernel") || !strings.Contains(list[1], "slow each other on CPUs of one core (SMT): CPUs 1,3") ||
		!strings.Contains(list[2], "spreads no threads over isolated CPUs") {
		t.Errorf("a fully isolated host has %q", list)
	}
	list = result.NotIsolated(got, result.Reservation{Function: []int{0, 2, 3}, Generator: []int{1}})
	if slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "spreads no threads") }) {
		t.Errorf("a function on one isolated CPU has %q", list)
	}
}

// TestVirtualizationElsewhere checks a CPU of another architecture, whose flags never name a hypervisor.
func TestVirtualizationElsewhere(t *testing.T) {
	files := server()
	files["proc/cpuinfo"] = strings.ReplaceAll(files["proc/cpuinfo"], "fpu tsc", "fp asimd evtstrm")
	if h := result.ReadHost(plant(t, files)); h.Virtualization != "" || h.Missing["virtualization"] == "" {
		t.Errorf("read virtualization %q, missing %q", h.Virtualization, h.Missing["virtualization"])
	}
}

// TestOfflineCPU checks that a CPU that is offline, as the siblings after SMT was turned off, hides
// nothing about the others.
func TestOfflineCPU(t *testing.T) {
	files := server()
	files["sys/devices/system/cpu/cpu4/online"] = "0\n"
	got := result.ReadHost(plant(t, files))
	if want := result.ReadHost(plant(t, server())); !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
}

// TestSiblingsAreUnknown checks that a host without any topology is not a host without siblings.
func TestSiblingsAreUnknown(t *testing.T) {
	files := server()
	for name := range files {
		if strings.Contains(name, "/topology/") {
			delete(files, name)
		}
	}
	if h := result.ReadHost(plant(t, files)); h.Siblings != nil || h.Missing["siblings"] == "" {
		t.Errorf("read siblings %q, missing %q", h.Siblings, h.Missing["siblings"])
	}
}

func TestUnreadableFieldsHaveAReason(t *testing.T) {
	root := t.TempDir()
	h := result.ReadHost(root)
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for name, v := range fields {
		if name == "missing" {
			continue
		}
		if v != "" && v != 0.0 && v != nil {
			t.Errorf("%s is %v on a host without any of the files", name, v)
		}
		if why := h.Missing[name]; why == "" || strings.Contains(why, root) {
			t.Errorf("%s is empty, and the reason is %q", name, why)
		}
	}
}

func TestNotIsolatedListsEverySource(t *testing.T) {
	files := server()
	files["proc/cpuinfo"] = strings.ReplaceAll(files["proc/cpuinfo"], "fpu tsc", "fpu hypervisor")
	files["sys/hypervisor/type"] = "xen\n"
	files["sys/devices/system/cpu/isolated"] = "\n"
	files["sys/devices/system/cpu/intel_pstate/no_turbo"] = "0\n"
	files["sys/devices/system/cpu/cpu3/cpufreq/scaling_governor"] = "powersave\n"
	files["proc/self/mountinfo"] += "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	h := result.ReadHost(plant(t, files))
	if h.Virtualization != "virtual machine (hypervisor flag): xen" || h.Cgroup != "hybrid" || h.IsolatedCPUs == nil {
		t.Errorf("read %+v", h)
	}
	list := result.NotIsolated(h, result.Reservation{Function: []int{0, 1}, Generator: []int{0}})
	for _, want := range []string{
		"CPU 0 used by both the function and the generator",
		"shared by the function's CPU 0 and by CPU 2", "shared by the function's CPU 1 and by CPU 3",
		"CPUs 0,1 not isolated", "xen", "powersave", "turbo is on",
	} {
		if !slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no %q in %q", want, list)
		}
	}
}

func TestThisHostIsRead(t *testing.T) {
	h := result.ReadHost("/")
	if h.Name == "" || h.Kernel == "" || h.CPUs == 0 || h.MemoryBytes == 0 {
		t.Errorf("read %+v", h)
	}
}

// TestCPUsOfOneNameDiffer checks that the record of a CPU has family and model if the name has no number.
func TestCPUsOfOneNameDiffer(t *testing.T) {
	files := server()
	files["proc/cpuinfo"] = strings.ReplaceAll(files["proc/cpuinfo"], "model name\t: Xeon E5-2680 v2", "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC")
	if got := result.ReadHost(plant(t, files)).CPUModel; got != "AMD EPYC (family 26, model 2)" {
		t.Errorf("got %q, want family and model", got)
	}
}
