package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/substrate"
)

// testInstallAgain checks that a deployment after Stop finds nothing of the installation before it,
// neither in the image nor in a volume that the image declares.
func testInstallAgain(b *bed) {
	if err := b.s.removeImage(b.ctx, b.image); err != nil {
		b.Fatal(err)
	}
	in, dir := b.create("c-1", b.makeImage("VOLUME /kept"))
	images := b.madeImages()
	for range 3 {
		for _, file := range []string{"/first", "/kept/first"} {
			err := in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "read", file}})
			if err == nil || !strings.Contains(err.Error(), "no such file") {
				b.Errorf("%s before the installation: got error %v", file, err)
			}
			if err := in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "write", file, "1"}}); err != nil {
				b.Fatal(err)
			}
		}
		if got := b.output(in, dir, nil, "/tool", "read", "/first", "then", "read", "/kept/first"); got != "1\n1" {
			b.Errorf("installed files: got %q", got)
		}
		holder, err := b.s.api.ContainerInspect(b.ctx, in.(*Instance).volumes[0])
		if err != nil || len(holder.Mounts) != 1 {
			b.Fatalf("got volumes %v, error %v, want one", holder.Mounts, err)
		}
		if err := in.Stop(b.ctx, 0); err != nil {
			b.Fatal(err)
		}
		if left := b.madeImages(); !slices.Equal(left, images) {
			b.Errorf("after Stop there are the images %q, want %q", left, images)
		}
		if _, err := b.s.api.VolumeInspect(b.ctx, holder.Mounts[0].Name); !cerrdefs.IsNotFound(err) {
			b.Errorf("the volume after Stop: got error %v, want that there is none", err)
		}
	}
}

// testImageReplaced checks what happens when somebody replaces the image: an instance made for the
// old image does not run the new one, and the next instance does.
func testImageReplaced(b *bed) {
	old, _ := b.create("c-1", b.image)
	if err := b.s.removeImage(b.ctx, b.image); err != nil {
		b.Fatal(err)
	}
	b.makeImage()
	if _, err := old.Start(b.ctx, vitrine.Command{}); err == nil || !strings.Contains(err.Error(), "another image") {
		b.Errorf("start of the old image: got error %v", err)
	}
	in, dir := b.create("c-2", b.image)
	if got := b.output(in, dir, nil); got != "c-2" {
		b.Errorf("command of the new image: got %q", got)
	}
}

func testMounts(b *bed) {
	folder := b.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "settings"), []byte("loud"), 0o600); err != nil {
		b.Fatal(err)
	}
	config := b.s.config
	config.Folder = folder
	config.Mounts = []Mount{{Source: "settings", Target: "/etc/settings"}, {Source: folder, Target: "/shared", Writable: true}}
	s, err := New(b.ctx, config)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	on := *b
	on.s = s
	in, dir := on.create("c-1", b.image)
	if got := on.output(in, dir, nil, "/tool", "read", "/etc/settings", "then", "write", "/shared/made", "here"); got != "loud" {
		b.Errorf("got text %q", got)
	}
	if !contains(filepath.Join(folder, "made"), "here") {
		b.Error("a file in a writable mount is not on the host")
	}
	err = in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "write", "/etc/settings", "quiet"}})
	if err == nil || !strings.Contains(err.Error(), "read-only") {
		b.Errorf("write to a read-only mount: got %v", err)
	}
	config.Mounts = []Mount{{Source: "settings", Target: "etc"}}
	if _, err := New(b.ctx, config); !vitrine.IsBadInput(err) {
		b.Errorf("relative target: got %v, want BadInput", err)
	}
}

// testHostsStay checks that a container cannot put a link in place of its hosts file. The engine would
// mount the link's target on this host into the instance's next container.
func testHostsStay(b *bed) {
	secret := filepath.Join(b.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		b.Fatal(err)
	}
	in, dir := b.create("c-1", b.image)
	if err := in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "link", secret, filepath.Join(dir, hostsFile)}}); err == nil {
		b.Error("the container replaced its hosts file")
	}
	if got := b.output(in, dir, nil, "/tool", "read", "/etc/hosts"); !strings.Contains(got, "127.0.1.1 c-1") {
		b.Errorf("the next container has another /etc/hosts: %q", got)
	}
}

// testDefaultSignal checks that SIGTERM ends a program without a handler. It would not if the
// program were process 1 of its namespace.
func testDefaultSignal(b *bed) {
	in, dir := b.create("c-1", "")
	p, err := in.Start(b.ctx, vitrine.Command{Args: []string{b.tool, "wait"}})
	if err != nil {
		b.Fatal(err)
	}
	b.eventually("started", func() bool { return contains(filepath.Join(dir, "log"), "waiting") })
	if err := in.Stop(b.ctx, time.Hour); err != nil {
		b.Fatal(err)
	}
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "SIGTERM") {
		b.Errorf("after SIGTERM: got %v", err)
	}
}

// testOrphansReaped checks that the sandbox's process leaves no zombies when a parent ends before
// its child.
func testOrphansReaped(b *bed) {
	in, dir := b.create("c-1", b.image)
	if _, err := in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "wait"}}); err != nil {
		b.Fatal(err)
	}
	mark := "mark-" + b.run.ID
	b.eventually("started", func() bool { return contains(filepath.Join(dir, "log"), "waiting") })
	var sandbox int
	if _, err := fmt.Sscanf(in.NetNS(), "/proc/%d/", &sandbox); err != nil {
		b.Fatalf("%s: %v", in.NetNS(), err)
	}
	for range 3 { // each child ends after its parent and does not hold the parent's output
		if err := in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "child", "read", mark}}); err != nil {
			b.Fatal(err)
		}
	}
	b.eventually("no zombies", func() bool {
		all, err := procfs.AllProcs()
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range all {
			if stat, err := p.Stat(); err == nil && stat.PPID == sandbox && stat.State == "Z" {
				return false
			}
		}
		return ended(mark)
	})
}

// testFullDisk checks that a failed write to the output is reported and does not stall the process.
func testFullDisk(b *bed) {
	if os.Geteuid() != 0 {
		b.Skip("only root can mount a small disk")
	}
	disk := b.TempDir()
	if err := unix.Mount("vitrine-test", disk, "tmpfs", 0, "size=4k"); err != nil {
		b.Fatal(err)
	}
	hosttest.AtEnd(b, func() error { return unix.Unmount(disk, 0) })
	in, _ := b.create("c-1", b.image)
	p, err := in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "read", "/tool"}, Stdout: filepath.Join(disk, "out")})
	if err != nil {
		b.Fatal(err)
	}
	<-p.Done()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "no space left") {
		b.Errorf("full disk: got %v", err)
	}
}

func testHostNetwork(b *bed) {
	config := b.s.config
	config.Network = "host"
	s, err := New(b.ctx, config)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	on := *b
	on.s = s
	in, dir := on.create("c-1", b.image)
	if in.NetNS() != "" || in.Vantage().Missing["network"] == "" {
		b.Errorf("got namespace %q, missing %q", in.NetNS(), in.Vantage().Missing)
	}
	host, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		b.Fatal(err)
	}
	if got := on.output(in, dir, nil, "/tool", "read", "/proc/net/dev"); strings.Count(got, "\n") != strings.Count(strings.TrimSpace(string(host)), "\n") {
		b.Errorf("the instance does not have the host's interfaces:\n%s", got)
	}
	config.Network = "moon"
	if _, err := New(b.ctx, config); !vitrine.IsBadInput(err) {
		b.Errorf("network moon: got %v, want BadInput", err)
	}
}

// testForeignLeftAlone checks that Clean leaves containers of others alone, even if they have our
// labels but belong to runs in another folder.
func testForeignLeftAlone(b *bed) {
	all := map[string]map[string]string{
		"plain":     nil,
		"elsewhere": {labelRun: "aaaaaaaa", labelRoot: "/another/user's", labelInstance: "c-1"},
		"unrelated": {labelRun: "aaaaaaaa"},
		"dead":      {labelRun: "aaaaaaaa", labelRoot: b.s.config.Runs, labelInstance: "c-1"},
	}
	for role, labels := range all {
		id, err := b.s.create(b.ctx, "foreign-"+b.run.ID+"-"+role, &container.Config{Image: b.image, Labels: labels}, &container.HostConfig{NetworkMode: "none"})
		if err != nil {
			b.Fatal(err)
		}
		hosttest.AtEnd(b, func() error { return b.s.removeContainer(context.Background(), id) })
	}
	removed, err := b.s.Clean(b.ctx)
	if err != nil || len(removed) != 1 || !strings.HasSuffix(removed[0], "-dead") {
		b.Errorf("Clean removed %q, error %v, want only the container of the dead run", removed, err)
	}
}

func TestDockerLimits(t *testing.T) {
	able := &Substrate{engine: &engine{}}
	able.info.CPUCfsPeriod, able.info.CPUCfsQuota, able.info.MemoryLimit, able.info.SwapLimit, able.info.CPUSet = true, true, true, true, true
	unable := &Substrate{engine: &engine{}}
	r, err := able.limits(substrate.Spec{VCPUs: 0.15, Memory: 64 << 20, CPUs: []int{0, 3}})
	if err != nil {
		t.Fatal(err)
	}
	if r.CPUPeriod != 20_000 || r.CPUQuota != 3_000 || r.NanoCPUs != 0 {
		t.Errorf("0.15 vCPUs: got period %d, quota %d µs", r.CPUPeriod, r.CPUQuota)
	}
	if r.Memory != 64<<20 || r.MemorySwap != r.Memory || r.CpusetCpus != "0,3" {
		t.Errorf("got memory %d, with swap %d, CPUs %q", r.Memory, r.MemorySwap, r.CpusetCpus)
	}
	if r, err := able.limits(substrate.Spec{VCPUs: 2, CFSPeriod: 100 * time.Millisecond}); err != nil || r.CPUPeriod != 100_000 || r.CPUQuota != 200_000 {
		t.Errorf("2 vCPUs in 100ms: got %+v, error %v", r, err)
	}
	if r, err := able.limits(substrate.Spec{VCPUs: 1.0 / 3}); err != nil || r.CPUQuota != 6667 {
		t.Errorf("a third of a CPU: got quota %d, error %v; want that of the substrate process", r.CPUQuota, err)
	}
	for name, spec := range map[string]substrate.Spec{"quota": {VCPUs: 0.01}, "period": {VCPUs: 1, CFSPeriod: 2 * time.Second}} {
		if _, err := able.limits(spec); !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "cfs_period") {
			t.Errorf("%s: got %v, want an Unsupported", name, err)
		}
	}
	if _, err := able.limits(substrate.Spec{Memory: 1 << 20}); !vitrine.IsBadInput(err) {
		t.Errorf("memory: got %v, want a BadInput", err)
	}
	for name, spec := range map[string]substrate.Spec{"quota": {VCPUs: 1}, "memory": {Memory: 1 << 30}, "cpuset": {CPUs: []int{0}}} {
		if _, err := unable.limits(spec); !vitrine.IsUnsupported(err) {
			t.Errorf("%s: got %v, want an Unsupported", name, err)
		}
	}
	if _, err := unable.limits(substrate.Spec{}); err != nil {
		t.Errorf("no limits: got %v", err)
	}
}

// TestDockerKillTree checks that killTree kills nothing if the number is not of a process in the
// container. For kill(2), 0 would mean the group of this process.
func TestDockerKillTree(t *testing.T) {
	for _, pid := range []int{-1, 0, 1, os.Getpid()} {
		if err := killTree("c0ffee", pid); err != nil {
			t.Errorf("kill process %d: %v", pid, err)
		}
	}
}
