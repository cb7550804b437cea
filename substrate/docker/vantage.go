package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"vitrine"
)

// vantageOf returns where to read the instance's use when its main process is pid; 0: it has none.
// It works with every cgroup driver and version, because it asks the kernel where the process is.
func (i *Instance) vantageOf(pid int) vitrine.Vantage {
	v := vitrine.Vantage{
		Instance: i.spec.Name, Component: i.spec.Component, VCPUs: i.spec.VCPUs, Memory: i.spec.Memory,
		PID: pid, NetNS: i.netns, Missing: make(map[string]string),
	}
	why := "no controller for it in the instance's cgroup"
	if pid == 0 {
		why = "the instance does not run"
	} else if err := findCgroups(&v, pid); err != nil {
		why = err.Error()
	}
	miss := func(what string, paths ...string) {
		if strings.Join(paths, "") == "" {
			v.Missing[what] = why
		}
	}
	miss("cpu", v.CgroupV2, v.CgroupCPUAcct)
	miss("memory", v.CgroupV2, v.CgroupMemory)
	miss("throttled", v.CgroupV2, v.CgroupCPU)
	if v.NetNS == "" {
		v.Missing["network"] = "the instance shares the host's network"
	}
	return v
}

// findCgroups fills in the folders of the process's cgroups: version 2 if that accounts for
// CPU and memory, else version 1.
func findCgroups(v *vitrine.Vantage, pid int) error {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return fmt.Errorf("process %d has ended: %w", pid, err)
	}
	groups, err := process.Cgroups()
	if err != nil {
		return fmt.Errorf("reading the cgroups of process %d: %w", pid, err)
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return fmt.Errorf("reading the mounts of cgroups: %w", err)
	}
	for _, group := range groups {
		if group.HierarchyID == 0 {
			dir := cgroupFolder(mounts, group, "cgroup2", "")
			if exists(dir, "memory.current") && exists(dir, "cpu.stat") {
				v.CgroupV2 = dir
			}
			continue
		}
		for _, controller := range group.Controllers {
			to := map[string]*string{"cpu": &v.CgroupCPU, "cpuacct": &v.CgroupCPUAcct, "memory": &v.CgroupMemory}[controller]
			if to != nil {
				*to = cgroupFolder(mounts, group, "cgroup", controller)
			}
		}
	}
	return nil
}

// cgroupFolder finds the group's folder below a mount of its hierarchy; empty: no mount shows it.
func cgroupFolder(mounts []*procfs.MountInfo, group procfs.Cgroup, kind, controller string) string {
	for _, m := range mounts {
		if m.FSType != kind {
			continue
		}
		if _, ok := m.SuperOptions[controller]; controller != "" && !ok {
			continue
		}
		below, err := filepath.Rel(m.Root, group.Path)
		if err != nil || slices.Contains(strings.Split(below, "/"), "..") {
			continue
		}
		if dir := filepath.Join(m.MountPoint, below); exists(dir, "cgroup.procs") {
			return dir
		}
	}
	return ""
}

func exists(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return dir != "" && err == nil
}
