package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
)

// fakeProc makes a /proc with the given mounts and cgroups. In both texts, MOUNT stands for a
// folder that fakeProc also makes, with the given files.
func fakeProc(t *testing.T, mounts, groups string, files map[string]string) (proc, mount string) {
	t.Helper()
	dir := t.TempDir()
	proc, mount = filepath.Join(dir, "proc"), filepath.Join(dir, "mount")
	for name, content := range map[string]string{"mountinfo": mounts, "cgroup": groups} {
		write(t, filepath.Join(proc, "7", name), strings.ReplaceAll(content, "MOUNT", mount))
	}
	if err := os.Symlink("7", filepath.Join(proc, "self")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		write(t, filepath.Join(mount, name), content)
	}
	return proc, mount
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	mountsV2 = `25 1 0:5 / /proc rw,relatime - proc proc rw
30 25 0:26 / MOUNT rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
`
	mountsV1 = `25 1 0:5 / /proc rw,relatime - proc proc rw
31 25 0:30 / MOUNT/unified rw shared:4 - cgroup2 cgroup2 rw
32 25 0:31 / MOUNT/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct
33 25 0:32 /docker/abc MOUNT/memory rw shared:11 - cgroup cgroup rw,memory
34 25 0:33 / MOUNT/freezer rw shared:12 - cgroup cgroup rw,freezer
`
)

func TestDetectVersion1(t *testing.T) {
	proc, mount := fakeProc(t, mountsV1, `7:memory:/docker/abc/me
5:cpu,cpuacct:/user.slice
3:freezer:/
0::/user.slice
`, map[string]string{"cpu,cpuacct/cgroup.procs": "", "memory/cgroup.procs": "", "freezer/cgroup.procs": ""})
	h, err := detect(proc, true, allow)
	if err != nil {
		t.Fatal(err)
	}
	if h.Version != 1 || len(h.trees) != 3 || !h.Has(Memory) || h.Has(CPUSet) {
		t.Errorf("%+v", h)
	}
	if cpu, acct := h.tree(CPU), h.tree(CPUAcct); cpu.base != acct.base || cpu.home != mount+"/cpu,cpuacct/user.slice" {
		t.Errorf("controllers in one mount: %+v, %+v", cpu, acct)
	}
	if home := h.tree(Memory).home; home != mount+"/memory/me" {
		t.Errorf("home %s, where the mount has only a part of the hierarchy", home)
	}
}

func TestDetectVersion1WithoutFreezer(t *testing.T) {
	proc, _ := fakeProc(t, mountsV1, "7:memory:/docker/abc\n5:cpu,cpuacct:/\n",
		map[string]string{"cpu,cpuacct/cgroup.procs": "", "memory/cgroup.procs": ""})
	_, err := detect(proc, true, allow)
	if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "controller freezer") {
		t.Errorf("%v", err)
	}
}

func TestDetectVersion2Root(t *testing.T) {
	proc, mount := fakeProc(t, mountsV2, "0::/user.slice/session-1.scope\n", map[string]string{
		"cgroup.procs": "", "cgroup.controllers": "cpuset cpu io memory pids\n",
		"user.slice/session-1.scope/cgroup.procs": "",
	})
	h, err := detect(proc, true, allow)
	if err != nil {
		t.Fatal(err)
	}
	if h.Version != 2 || h.trees[0].base != mount || !h.Has(CPU) || !h.Has(Memory) || !h.Has(CPUSet) {
		t.Errorf("%+v", h)
	}
}

func allow(string) error { return nil }

// only returns a function that allows a folder and everything below it.
func only(dir string) func(string) error {
	return func(group string) error {
		if group == dir || strings.HasPrefix(group, dir+"/") {
			return nil
		}
		return os.ErrPermission
	}
}

// TestDetectVersion2Delegated checks a user's process in a scope of the user's service manager.
// The process may use groups from that manager downwards, with the controllers delegated to the
// manager.
func TestDetectVersion2Delegated(t *testing.T) {
	const service = "user.slice/user-1000.slice/user@1000.service"
	const own = service + "/app.slice/run-1.scope"
	proc, mount := fakeProc(t, mountsV2, "0::/"+own+"\n", map[string]string{
		service + "/cgroup.controllers": "cpu memory pids\n",
		"cgroup.controllers":            "cpuset cpu memory pids\n",
	})
	h, err := detect(proc, false, only(filepath.Join(mount, service)))
	if err != nil {
		t.Fatal(err)
	}
	if h.trees[0].base != filepath.Join(mount, service) || h.Has(CPUSet) || !h.Has(Memory) {
		t.Errorf("%+v", h)
	}
}

// TestDetectVersion2NotDelegated checks a login session. Its scope belongs to root, although the
// user has other groups.
func TestDetectVersion2NotDelegated(t *testing.T) {
	proc, mount := fakeProc(t, mountsV2, "0::/user.slice/user-1000.slice/session-1.scope\n", nil)
	_, err := detect(proc, false, only(filepath.Join(mount, "user.slice/user-1000.slice/user@1000.service")))
	if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "systemd-run --user --scope") {
		t.Errorf("%v", err)
	}
}

func TestDetectVersion2WithoutCPU(t *testing.T) {
	proc, mount := fakeProc(t, mountsV2, "0::/mine\n", map[string]string{"mine/cgroup.controllers": "memory pids\n"})
	_, err := detect(proc, false, only(filepath.Join(mount, "mine")))
	if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "the controller cpu in") {
		t.Errorf("%v", err)
	}
}

func TestDetectNone(t *testing.T) {
	proc, _ := fakeProc(t, "25 1 0:5 / /proc rw - proc proc rw\n", "0::/\n", nil)
	if _, err := detect(proc, true, allow); !vitrine.IsUnsupported(err) {
		t.Errorf("%v", err)
	}
}

// TestDetectReadOnly checks that a read-only mount, as in containers, is reported as a missing
// privilege.
func TestDetectReadOnly(t *testing.T) {
	refuse := func(string) error { return os.ErrPermission }
	for mounts, groups := range map[string]string{mountsV1: "7:memory:/docker/abc\n5:cpu,cpuacct:/\n3:freezer:/\n", mountsV2: "0::/\n"} {
		proc, _ := fakeProc(t, mounts, groups, map[string]string{"cgroup.controllers": "cpu"})
		if _, err := detect(proc, true, refuse); !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "the right to make groups") {
			t.Errorf("%v", err)
		}
	}
}
