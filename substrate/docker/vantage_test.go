package docker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/procfs"
)

// TestDockerCgroupFolder tests cgroupFolder with mounts and groups as other hosts have them.
func TestDockerCgroupFolder(t *testing.T) {
	root := t.TempDir()
	mount := func(kind, below string, options ...string) *procfs.MountInfo {
		m := &procfs.MountInfo{FSType: kind, Root: below, MountPoint: filepath.Join(root, kind, below), SuperOptions: map[string]string{}}
		for _, o := range options {
			m.SuperOptions[o] = ""
		}
		return m
	}
	v2, cpu := mount("cgroup2", "/"), mount("cgroup", "/", "rw", "cpu", "cpuacct")
	part := mount("cgroup", "/lxc/7", "memory") // a container's view of the hierarchy
	mounts := []*procfs.MountInfo{v2, cpu, part}
	const systemd, driver = "/system.slice/docker-abc.scope", "/docker/abc"
	for _, dir := range []string{v2.MountPoint + systemd, cpu.MountPoint + driver, part.MountPoint + driver} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ name, kind, controller, path, want string }{
		{"v2, systemd", "cgroup2", "", systemd, v2.MountPoint + systemd},
		{"v1, two controllers in one hierarchy", "cgroup", "cpuacct", driver, cpu.MountPoint + driver},
		{"v1, no such controller", "cgroup", "freezer", driver, ""},
		{"v1, mounted in part", "cgroup", "memory", "/lxc/7" + driver, part.MountPoint + driver},
		{"v1, outside the part", "cgroup", "memory", "/lxc/8" + driver, ""},
	} {
		if got := cgroupFolder(mounts, procfs.Cgroup{Path: tt.path}, tt.kind, tt.controller); got != tt.want {
			t.Errorf("%s: got folder %q, want %q", tt.name, got, tt.want)
		}
	}
}
