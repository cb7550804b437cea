// Package dockertest gives tests a Docker Engine: the host's engine if that answers, else
// one that it starts for the test.
package dockertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
)

const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// Start returns the address of an engine, such as unix:///var/run/docker.sock. It tries
// $DOCKER_HOST, then the default address, and then starts an engine that ends with the
// test. If there is none, Start skips the test with a *vitrine.Unsupported.
func Start(t testing.TB) string {
	t.Helper()
	for _, host := range []string{os.Getenv("DOCKER_HOST"), client.DefaultDockerHost} {
		if host != "" && answers(context.Background(), host) {
			return host
		}
	}
	return Own(t).Host
}

// An Engine is a dockerd that a test started, with its own containerd. It has no bridge and
// does not change the host's packet filter or sysctls.
type Engine struct {
	Host string // unix:///...

	config  string // dockerd's, as in daemon.json
	dockerd string
	process *os.Process
	dir     string
	cgroup  string
	ended   chan struct{}
	log     bytes.Buffer // may be read after ended is closed
}

// Own starts an engine that ends with the test and leaves nothing behind: no process,
// mount, namespace or cgroup.
func Own(t testing.TB) *Engine {
	t.Helper()
	return OwnWith(t, "{}")
}

// OwnWith is like Own but takes a configuration, as in daemon.json.
func OwnWith(t testing.TB, config string) *Engine {
	t.Helper()
	dockerd, err := findDockerd()
	if err != nil {
		t.Skip(err)
	}
	// A socket's path has at most 107 bytes, and t.TempDir's paths may be longer.
	dir, err := os.MkdirTemp("", "dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Host: "unix://" + dir + "/sock", config: config, dockerd: dockerd, dir: dir, cgroup: "vitrine-" + filepath.Base(dir)}
	t.Cleanup(func() {
		if err := e.removeRest(); err != nil {
			t.Errorf("after the engine: %v", err)
		}
	})
	e.Restart(t)
	t.Cleanup(func() { e.stop(t) })
	return e
}

// Restart starts the engine after Kill, with the data it had.
func (e *Engine) Restart(t testing.TB) {
	t.Helper()
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !answers(ctx, e.Host) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			e.stop(t)
			t.Fatalf("dockerd does not answer after %v", startLimit)
		case <-e.ended:
			t.Skip(&vitrine.Unsupported{What: "docker", Missing: "an engine: dockerd ended at once:\n" + lastLines(e.log.String(), 5)})
		}
	}
}

func findDockerd() (string, error) {
	if os.Geteuid() != 0 {
		return "", &vitrine.Unsupported{What: "docker", Missing: "an engine that answers, and root to start one"}
	}
	for _, path := range []string{"dockerd", "/usr/sbin/dockerd"} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", &vitrine.Unsupported{What: "docker", Missing: "the program dockerd", Do: "install docker.io"}
}

// start starts dockerd, which gets SIGTERM if this process dies first.
func (e *Engine) start() error {
	in := func(name string) string { return filepath.Join(e.dir, name) }
	cmd := exec.CommandContext(context.Background(), e.dockerd,
		"--host", e.Host, "--data-root", in("data"), "--exec-root", in("exec"), "--pidfile", in("pid"), "--config-file", in("daemon.json"),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
		"--log-level=warn", "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/"+e.cgroup,
		// A containerd of the host is shared, so use separate namespaces in it.
		"--containerd-namespace", e.cgroup, "--containerd-plugins-namespace", e.cgroup+"-plugins")
	if err := os.WriteFile(in("daemon.json"), []byte(e.config), 0o600); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = &e.log, &e.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error), make(chan struct{})
	e.ended = ended
	go func() {
		runtime.LockOSThread() // the death signal is tied to the thread that starts the process
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		if err == nil {
			e.process = cmd.Process
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log says how it ended
		}
	}()
	return <-started
}

func (e *Engine) stop(t testing.TB) {
	t.Helper()
	_ = e.Thaw() // a test may have frozen it
	if err := e.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("end dockerd: %v", err)
	}
	select {
	case <-e.ended:
	case <-time.After(stopLimit):
		t.Errorf("dockerd did not end within %v", stopLimit)
		_ = e.process.Kill()
		<-e.ended
	}
	if t.Failed() {
		t.Logf("the errors that the engine logged last:\n%s", lastLines(e.errors(), 20))
	}
}

// Kill ends dockerd and its containerd as a crash would. Containers go on running.
func (e *Engine) Kill() error {
	failed := e.process.Kill()
	<-e.ended
	file := filepath.Join(e.dir, "exec/containerd/containerd.pid")
	if b, err := os.ReadFile(file); err == nil { // otherwise it uses the host's
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil && pid > 0 {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if errors.Is(err, syscall.ESRCH) { // it has died with dockerd
			err = nil
		}
		// A zombie counts as running to the next dockerd, so remove its PID file.
		failed = errors.Join(failed, err, os.Remove(file))
	}
	if failed != nil {
		return fmt.Errorf("kill the engine: %w", failed)
	}
	return nil
}

// Freeze stops all threads of dockerd, as a hang would; Thaw resumes them.
func (e *Engine) Freeze() error {
	if err := e.process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze the engine: %w", err)
	}
	for { // a thread may not have stopped yet
		threads, err := procfs.AllThreads(e.process.Pid)
		if err != nil {
			return fmt.Errorf("freeze the engine: %w", err)
		}
		if !slices.ContainsFunc(threads, func(p procfs.Proc) bool { s, err := p.Stat(); return err == nil && s.State != "T" }) {
			return nil
		}
		runtime.Gosched()
	}
}

// Thaw undoes Freeze.
func (e *Engine) Thaw() error { return e.process.Signal(syscall.SIGCONT) }

// removeRest kills what is left of containers if the engine could not, and removes the
// folder, the mounts below it, and the cgroups.
func (e *Engine) removeRest() error {
	if err := e.killRest(); err != nil {
		return err
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) { // last mounted first
		if strings.HasPrefix(m.MountPoint, e.dir+"/") {
			if err := unix.Unmount(m.MountPoint, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", m.MountPoint, err)
			}
		}
	}
	return errors.Join(os.RemoveAll(e.dir), e.removeCgroups())
}

// killRest kills the processes in this engine's cgroups, and the shims in its containerd
// namespace, whose name is unique.
func (e *Engine) killRest() error {
	all, err := procfs.AllProcs()
	if err != nil {
		return err
	}
	var failed error
	for _, p := range all {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID)) // an error means that it has ended
		args, _ := p.CmdLine()
		if strings.Contains(string(groups), "/"+e.cgroup+"/") || slices.Contains(args, e.cgroup) {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				failed = errors.Join(failed, fmt.Errorf("kill %q: %w", args, err))
			}
		}
	}
	return failed
}

// removeCgroups removes the engine's cgroups, deepest first. A cgroup that is
// not empty is an error.
func (e *Engine) removeCgroups() error {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		roots, err := filepath.Glob(pattern + e.cgroup)
		if err != nil {
			return err
		}
		for _, root := range roots {
			err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					found = append(found, path)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	var failed error
	for _, dir := range slices.Backward(found) {
		if err := removeCgroup(dir); err != nil {
			failed = errors.Join(failed, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return failed
}

// removeCgroup removes a cgroup, and waits up to 5 s for its killed processes to end.
func removeCgroup(dir string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(5 * time.Second)
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}

func answers(ctx context.Context, host string) bool {
	api, err := client.NewClientWithOpts(client.WithHost(host))
	if err != nil {
		return false
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = api.Ping(ctx)
	return err == nil
}

// errors returns the lines of the log above level warning.
func (e *Engine) errors() string {
	var b strings.Builder
	for line := range strings.Lines(e.log.String()) {
		if !strings.Contains(line, "level=warning") && !strings.Contains(line, "level=info") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
