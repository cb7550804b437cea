// Package dockertest gives tests a Docker Engine: the host's when one answers,
// else one of their own, which they start and end.
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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"vitrine"
)

const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// Start gives the address of an engine, such as unix:///var/run/docker.sock:
// that of $DOCKER_HOST, the default one, or one that it starts and ends with the
// test. It skips the test when there is none to be had, by a *vitrine.Unsupported.
// An engine of the test's own is called Own(t).
func Start(t testing.TB) string {
	t.Helper()
	for _, host := range []string{os.Getenv("DOCKER_HOST"), client.DefaultDockerHost} {
		if host != "" && answers(context.Background(), host) {
			return host
		}
	}
	return Own(t).Host
}

// An Engine is a dockerd that a test started, with a containerd of its own. It
// has no bridge and leaves the host's packet filter and sysctls alone.
type Engine struct {
	Host string // unix:///...
	PID  int    // of dockerd

	dir    string
	cgroup string
	ended  chan struct{}
	log    bytes.Buffer // to be read once ended is closed
}

// Own starts an engine that ends with the test and leaves nothing: no process,
// mount, namespace or cgroup. Containers have to be removed before, or the
// test fails.
func Own(t testing.TB) *Engine {
	t.Helper()
	dockerd, err := lookDockerd()
	if err != nil {
		t.Skip(err)
	}
	// A socket's path has at most 107 bytes, too few for t.TempDir's.
	dir, err := os.MkdirTemp("", "dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Host: "unix://" + dir + "/sock", dir: dir, cgroup: "vitrine-" + filepath.Base(dir), ended: make(chan struct{})}
	t.Cleanup(func() {
		if err := e.removeRest(); err != nil {
			t.Errorf("after the engine: %v", err)
		}
	})
	if err := e.start(dockerd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.stop(t) })
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !answers(ctx, e.Host) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("dockerd does not answer after %v", startLimit)
		case <-e.ended:
			t.Skip(&vitrine.Unsupported{What: "docker", Missing: "an engine: dockerd ended at once:\n" + lastLines(e.log.String(), 5)})
		}
	}
	return e
}

func lookDockerd() (string, error) {
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

// start starts dockerd. It gets SIGTERM when this process dies first.
func (e *Engine) start(dockerd string) error {
	in := func(name string) string { return filepath.Join(e.dir, name) }
	cmd := exec.Command(dockerd,
		"--host", e.Host, "--data-root", in("data"), "--exec-root", in("exec"), "--pidfile", in("pid"), "--config-file", in("none.json"),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
		"--log-level=warn", "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/"+e.cgroup,
		// A containerd that the host runs is shared: keep to namespaces of our own in it.
		"--containerd-namespace", e.cgroup, "--containerd-plugins-namespace", e.cgroup+"-plugins")
	if err := os.WriteFile(in("none.json"), []byte("{}"), 0o600); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = &e.log, &e.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal is tied to the thread that started the process
		defer runtime.UnlockOSThread()
		defer close(e.ended)
		err := cmd.Start()
		if err == nil {
			e.PID = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	return <-started
}

func (e *Engine) stop(t testing.TB) {
	t.Helper()
	_ = syscall.Kill(e.PID, syscall.SIGCONT) // a test may have stopped it
	if err := syscall.Kill(e.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("end dockerd: %v", err)
	}
	select {
	case <-e.ended:
	case <-time.After(stopLimit):
		t.Errorf("dockerd did not end within %v", stopLimit)
		_ = syscall.Kill(-e.PID, syscall.SIGKILL)
		<-e.ended
	}
	if t.Failed() {
		t.Logf("the engine's log ended:\n%s", lastLines(e.log.String(), 20))
	}
}

// Kill ends dockerd as a crash would, and with it its containerd.
func (e *Engine) Kill() error {
	if err := syscall.Kill(-e.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill dockerd: %w", err)
	}
	<-e.ended
	return nil
}

// removeRest removes the folder, what is mounted below it, and the cgroups.
func (e *Engine) removeRest() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // the last mounted first
		if fields := strings.Fields(lines[i]); len(fields) > 1 && strings.HasPrefix(fields[1], e.dir+"/") {
			if err := unix.Unmount(fields[1], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", fields[1], err)
			}
		}
	}
	return errors.Join(os.RemoveAll(e.dir), e.removeCgroups())
}

// removeCgroups removes the engine's cgroups, deepest first. One that is not
// empty is an error: a test has left a container.
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
	for i := len(found) - 1; i >= 0; i-- {
		if err := unix.Rmdir(found[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("remove %s: %w", found[i], err))
		}
	}
	return failed
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

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
