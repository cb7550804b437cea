package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

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

// TestDetectReadOnly checks that a missing privilege is reported, and that a read-only mount, as in
// containers, has another remedy.
func TestDetectReadOnly(t *testing.T) {
	for refused, remedy := range map[error]string{os.ErrPermission: "run as root", unix.EROFS: "docker run --privileged"} {
		refuse := func(group string) error { return &os.PathError{Op: "write", Path: group, Err: refused} }
		for mounts, groups := range map[string]string{mountsV1: "7:memory:/docker/abc\n5:cpu,cpuacct:/\n3:freezer:/\n", mountsV2: "0::/\n"} {
			proc, _ := fakeProc(t, mounts, groups, map[string]string{"cgroup.controllers": "cpu"})
			_, err := detect(proc, true, refuse)
			if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "the right to make groups") || !strings.Contains(err.Error(), remedy) {
				t.Errorf("%v: got %v, want the remedy %s", refused, err, remedy)
			}
		}
	}
}

// TestDetectVersion2Crowded checks that groups are refused where the kernel would not let this
// process enable controllers, and only there. In a container, the base is not the root of the
// hierarchy, so it has a cgroup.type.
func TestDetectVersion2Crowded(t *testing.T) {
	own := strconv.Itoa(os.Getpid()) + "\n"
	for name, c := range map[string]struct {
		procs, enabled string
		root           bool // of the hierarchy
		crowded        bool
	}{
		"a shell is there, too":             {"1\n" + own, "memory\n", false, true},
		"only a shell is there":             {"1\n", "", false, true},
		"this process is alone":             {own, "", false, false},
		"all processes have moved":          {"", "", false, false},
		"the controllers are enabled":       {"1\n" + own, "cpuset cpu memory pids\n", false, false},
		"the root of the hierarchy":         {"1\n" + own, "", true, false},
		"processes of other PID namespaces": {"0\n" + own, "", false, false},
	} {
		files := map[string]string{"cgroup.procs": c.procs, "cgroup.controllers": "cpuset cpu memory pids\n", "cgroup.subtree_control": c.enabled}
		if !c.root {
			files["cgroup.type"] = "domain\n"
		}
		proc, mount := fakeProc(t, mountsV2, "0::/\n", files)
		_, err := detect(proc, true, allow)
		if c.crowded != vitrine.IsUnsupported(err) || (err != nil) != c.crowded {
			t.Errorf("%s: %v", name, err)
		}
		if move := "mkdir " + mount + "/init;"; c.crowded && (err == nil || !strings.Contains(err.Error(), move)) {
			t.Errorf("%s: got %v, want advice to %s", name, err, move)
		}
	}
}

// TestAbove checks which groups are above this process: in version 1 those of the controller cpu,
// in a container no group outside of the mount.
func TestAbove(t *testing.T) {
	for name, c := range map[string]struct {
		mounts, groups string
		want           []string // below MOUNT
	}{
		"version 1":                 {mountsV1, "7:memory:/docker/abc/me\n5:cpu,cpuacct:/user.slice/me\n0::/\n", []string{"cpu,cpuacct/user.slice/me", "cpu,cpuacct/user.slice", "cpu,cpuacct"}},
		"version 2":                 {mountsV2, "0::/user.slice/me.scope\n", []string{"user.slice/me.scope", "user.slice", "."}},
		"version 2 in a container":  {mountsV2, "0::/\n", []string{"."}},
		"a group outside the mount": {mountsV2, "0::/../me\n", nil},
		"no cgroups":                {"25 1 0:5 / /proc rw - proc proc rw\n", "0::/\n", nil},
	} {
		proc, mount := fakeProc(t, c.mounts, c.groups, nil)
		pfs, err := procfs.NewFS(proc)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, group := range c.want {
			want = append(want, filepath.Join(mount, group))
		}
		if got, err := Above(pfs); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}
