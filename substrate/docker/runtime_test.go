package docker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/substrate/docker/dockertest"
)

// runtimeBed returns a substrate with the runtime, and an image with the tool.
func runtimeBed(t *testing.T, tool, runtime string) *bed {
	t.Helper()
	root := filepath.Join(t.TempDir(), "runs")
	s, err := New(t.Context(), Config{Host: os.Getenv("DOCKER_HOST"), Runs: root, Runtime: runtime})
	hosttest.Need(t, err)
	run, err := runstate.New(root)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, s: s, run: run, tool: tool, ctx: t.Context()}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if left, err := labelled(t, run.ID); err != nil || len(left) > 0 {
			t.Errorf("containers left: %q, error %v", left, err)
		}
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
	b.image = b.makeImage()
	return b
}

// TestDockerRuntime checks that the instance runs with the named runtime. For an unknown runtime,
// the error must list the runtimes that the engine has.
func TestDockerRuntime(t *testing.T) {
	t.Setenv("DOCKER_HOST", dockertest.Start(t))
	b := runtimeBed(t, hosttest.Built(t, "./testdata/tool"), "runc")
	in, dir := b.create("c-1", b.image)
	if got := b.output(in, dir, nil, "/tool", "read", "/etc/hostname"); strings.TrimSpace(got) != "c-1" {
		t.Errorf("got hostname %q", got)
	}
	if _, err := in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "wait"}}); err != nil {
		t.Fatal(err)
	}
	made, err := b.s.api.ContainerInspect(b.ctx, in.(*Instance).proc.id)
	if err != nil || made.HostConfig.Runtime != "runc" {
		t.Errorf("got runtime %q, error %v, want runc", made.HostConfig.Runtime, err)
	}
	for _, name := range []string{"no-such", "io.containerd.no-such.v1"} {
		config := b.s.config
		config.Runtime = name
		s, err := New(b.ctx, config)
		if err == nil { // the engine checks such a runtime only when it makes a container
			on := *b
			on.s = s
			in, _ := on.create("c-2", b.image)
			_, err = in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "wait"}})
			if closing := s.Close(context.Background()); closing != nil {
				t.Error(closing)
			}
		}
		if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("runtime %s: got error %v, want Unsupported", name, err)
		}
		if name == "no-such" && !strings.Contains(fmt.Sprint(err), "runc") {
			t.Errorf("the error does not list the available runtimes: %v", err)
		}
	}
}

// TestDockerRuntimeGVisor checks that instances run with runsc, in the network namespace that a
// fabric wires. A failed start must leave nothing behind.
func TestDockerRuntimeGVisor(t *testing.T) {
	runsc, err := exec.LookPath("runsc")
	if err != nil {
		t.Skip(&vitrine.Unsupported{What: "the runtime runsc", Missing: "the program runsc"})
	}
	// With its own network stack, a runsc from before 2024 takes any namespace of Linux 6.9
	// or newer for the host's own namespace.
	e := dockertest.OwnWith(t, fmt.Sprintf(`{"runtimes": {
		"runsc": {"path": %q, "runtimeArgs": ["--network=host"]},
		"netstack": {"path": %[1]q},
		"broken": {"path": %[1]q, "runtimeArgs": ["--platform=none"]}}}`, runsc))
	t.Setenv("DOCKER_HOST", e.Host)
	tool := hosttest.Built(t, "./testdata/tool")
	t.Run("runsc", func(t *testing.T) {
		b := runtimeBed(t, tool, "runsc")
		in, dir := b.create("c-1", b.image)
		if got := b.output(in, dir, nil, "/tool", "read", "/proc/version"); !strings.Contains(got, "Linux version 4.4.0") { // gVisor's own
			t.Errorf("got kernel %s, want 4.4", got)
		}
		links := b.output(in, dir, nil, "/tool", "read", "/proc/net/dev")
		err := netns.Do(in.NetNS(), func() error {
			if host, err := os.ReadFile("/proc/thread-self/net/dev"); err != nil || !strings.Contains(string(host), "lo:") {
				t.Errorf("interfaces of the namespace: got %s, error %v", host, err)
			}
			return nil
		})
		if err != nil || !strings.Contains(links, "lo:") || strings.Contains(links, "eth0") {
			t.Errorf("interfaces of the instance: got %s, error %v", links, err)
		}
		p, err := in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "wait"}})
		if err != nil {
			t.Fatal(err)
		}
		if v := in.Vantage(); len(v.Missing) > 0 {
			t.Errorf("the vantage misses %q", v.Missing)
		}
		b.eventually("started", func() bool { return contains(filepath.Join(dir, "log"), "waiting") })
		if err := in.Stop(b.ctx, time.Minute); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
	})
	for _, name := range []string{"broken", "netstack"} {
		t.Run(name, func(t *testing.T) {
			b := runtimeBed(t, tool, name)
			in, _ := b.create("c-1", b.image)
			_, err := in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "wait"}})
			if err == nil && name == "netstack" { // depends on the kernel and runsc; here it works
				return
			}
			if !vitrine.IsUnsupported(err) {
				t.Errorf("got %v, want a *vitrine.Unsupported", err)
			}
			b.eventually("nothing left beside the sandbox", func() bool { return len(ofEngine(t, e.Host)) == 1 })
		})
	}
}

// ofEngine lists the shim and runtime processes of an engine.
func ofEngine(t *testing.T, host string) (found []string) {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSuffix(strings.TrimPrefix(host, "unix://"), "/sock")
	for _, p := range all {
		args, _ := p.CmdLine() // an error means that it has ended
		if line := strings.Join(args, " "); strings.Contains(line, dir) && (strings.Contains(line, "runsc") || strings.Contains(line, "containerd-shim")) {
			found = append(found, line)
		}
	}
	return found
}
