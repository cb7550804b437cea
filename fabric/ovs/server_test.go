package ovs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/mirror/mirrortest"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// TestOVSCarriesTCP sends segments with checksum and segmentation offload. Senders use it on
// interfaces that support it.
func TestOVSCarriesTCP(t *testing.T) {
	t.Parallel()
	f := open(t, Config{})
	p := attach(t, f, "a", "b")
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var l net.Listener
	mirrortest.Must(t, netns.Do(p[1].NetNS, func() (err error) {
		l, err = net.Listen("tcp", p[1].Addr.String()+":0")
		return err
	}))
	defer l.Close()
	const enough = 20 * time.Second
	mirrortest.Must(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(enough)))
	type read struct {
		sum [sha256.Size]byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- read{err: err}
			return
		}
		_ = conn.SetDeadline(time.Now().Add(enough))
		got, err := io.ReadAll(conn)
		done <- read{sha256.Sum256(got), err}
	}()
	var conn net.Conn
	mirrortest.Must(t, netns.Do(p[0].NetNS, func() (err error) {
		conn, err = net.DialTimeout("tcp", l.Addr().String(), enough)
		return err
	}))
	mirrortest.Must(t, conn.SetDeadline(time.Now().Add(enough)))
	_, err := conn.Write(want)
	mirrortest.Must(t, err)
	mirrortest.Must(t, conn.Close())
	if got := <-done; got.err != nil || got.sum != sha256.Sum256(want) {
		t.Errorf("the received data differs from the %d bytes sent, error %v", len(want), got.err)
	}
}

// daemons returns the threads of a run's daemons by daemon name, with the CPUs on which each thread
// may run.
func daemons(t *testing.T, run *runstate.Run) map[string][]string {
	t.Helper()
	all, err := procfs.AllProcs()
	mirrortest.Must(t, err)
	found := make(map[string][]string)
	for _, p := range all {
		name := daemonOf(p, folder(run.Root, run.ID))
		if name == "" {
			continue
		}
		threads, err := procfs.AllThreads(p.PID)
		mirrortest.Must(t, err)
		for _, thread := range threads {
			comm, err := thread.Comm()
			mirrortest.Must(t, err)
			status, err := thread.NewStatus()
			mirrortest.Must(t, err)
			found[name] = append(found[name], fmt.Sprintf("%s on %v", comm, status.CpusAllowedList))
		}
	}
	return found
}

// TestOVSStaysOnItsCPUs checks that all threads of the switch run on the CPUs that the user chose,
// or else on those of the run.
func TestOVSStaysOnItsCPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"the user's": {CPUs: document.CPUs{0}, RunCPUs: document.CPUs{0, 1}}, "the run's": {RunCPUs: document.CPUs{0}},
	} {
		t.Run(name, func(t *testing.T) { testOnCPU0(t, c) })
	}
}

func testOnCPU0(t *testing.T, c Config) {
	f := open(t, c)
	found := daemons(t, f.config.Run)
	if len(found) != 2 || len(found[switchName]) < 2 {
		t.Fatalf("got threads %q", found)
	}
	for name, threads := range found {
		for _, thread := range threads {
			if !strings.HasSuffix(thread, "on [0]") {
				t.Errorf("%s: %s", name, thread)
			}
		}
	}
	if d := f.Describe(); !strings.Contains(d, "on CPUs 0") || !strings.Contains(d, f.Datapath()) {
		t.Errorf("got description %q", d)
	}
}

// TestSwitchPollsByAFXDP checks that the switch polls on the given CPU and carries the same frames
// as with packet sockets.
func TestSwitchPollsByAFXDP(t *testing.T) {
	cpu := runtime.NumCPU() - 1
	f := open(t, Config{Ports: PortsAFXDP, CPUs: document.CPUs{cpu}, Rules: RulesFlows})
	p := attach(t, f, "a", "b")
	p[1].Serve(t)
	if got := p[0].Ask(t, p[1].Place, 100, 64); got != 100 {
		t.Errorf("got %d of 100 answers", got)
	}
	if got := counted(t, f); got["a to b"] != sent(100, 64) {
		t.Errorf("got counters %q", got)
	}
	polls := func(thread string) bool {
		return strings.HasPrefix(thread, "pmd-") && strings.HasSuffix(thread, fmt.Sprintf("on [%d]", cpu))
	}
	if threads := daemons(t, f.config.Run)[switchName]; !slices.ContainsFunc(threads, polls) {
		t.Errorf("no thread polls on CPU %d: %q", cpu, threads)
	}
}

// TestOVSOfAKilledRun checks that cleaning finds and ends the daemons of a
// killed run, and leaves those of a live run alone.
func TestOVSOfAKilledRun(t *testing.T) {
	t.Parallel()
	f := open(t, Config{})
	root := f.config.Run.Root
	other, kill := fabrictest.Killable(t, "default", root, "")
	hosttest.AtEnd(t, func() error { return netns.Delete("vt-" + other + "-bono-1") })
	kill()
	dead := &runstate.Run{ID: other, Root: root}
	if n := len(daemons(t, dead)); n != 2 {
		t.Fatalf("a killed run left %d daemons, want 2", n)
	}
	removed, err := Cleaner{Root: root}.Clean(t.Context())
	if want := []string{"ovs-vswitchd of run " + other, "ovsdb-server of run " + other}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("Clean removed %q, error %v, want %q", removed, err, want)
	}
	if found := daemons(t, dead); len(found) != 0 {
		t.Errorf("daemons are still running: %q", found)
	}
	if n := len(daemons(t, f.config.Run)); n != 2 {
		t.Errorf("the running run has %d daemons, want 2", n)
	}
	mirrortest.Must(t, netns.Delete("vt-"+other+"-fabric"))
	mirrortest.Must(t, runstate.Forget(root, other))
}

// TestOVSSaysWhatEndedIt checks that errors name a daemon that has ended, and that the fabric
// reports it even if no other call follows.
func TestOVSSaysWhatEndedIt(t *testing.T) {
	t.Parallel()
	f := open(t, Config{})
	if err := f.Ended(); err != nil {
		t.Errorf("with a running switch: got %v", err)
	}
	d := f.server.daemons[1]
	mirrortest.Must(t, d.cmd.Process.Kill())
	<-d.ended
	const want = "ovs-vswitchd has ended (signal: killed)"
	if err := f.Ended(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("with a killed switch: got %v", err)
	}
	if err := f.server.explain(context.Canceled); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), want) {
		t.Errorf("explanation of the error: got %v", err)
	}
}

// TestOVSOfTheUser checks that a run changes only its own bridge in the user's switch. It runs
// tests of the suite again, in a namespace with such a switch.
func TestOVSOfTheUser(t *testing.T) {
	t.Parallel()
	path := fabrictest.Place(t, fmt.Sprintf("test%d", os.Getpid()), "host-1")
	theirs, err := newServer(t.TempDir(), nil)
	hosttest.Need(t, err)
	c, err := newClient(theirs.socket())
	mirrortest.Must(t, err)
	defer func() {
		if err := theirs.stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	mirrortest.Must(t, theirs.start(t.Context(), path, c))
	_, err = c.vsctl(t.Context(), "add-br", "theirs", "--", "set", "Bridge", "theirs", "datapath_type=netdev")
	mirrortest.Must(t, err)
	before, err := c.vsctl(t.Context(), "show")
	mirrortest.Must(t, err)
	interfaces, err := fabrictest.Interfaces(path)
	mirrortest.Must(t, err)

	again := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestOVSFabric$/^user$/^(Reach|DetachAndAttach|CloseLeavesNothing|TwoRuns|MTU|Killed)$")
	again.Env = append(os.Environ(), userServer+"="+theirs.socket())
	var out bytes.Buffer
	again.Stdout, again.Stderr = &out, &out
	mirrortest.Must(t, netns.Do(path, again.Start))
	if err := again.Wait(); err != nil || strings.Count(out.String(), "--- PASS: TestOVSFabric/user/") != 6 {
		t.Errorf("the suite failed: %v\n%s", err, out.String())
	}
	if after, err := c.vsctl(t.Context(), "show"); err != nil || after != before {
		t.Errorf("the switch was\n%sand is now, error %v,\n%s", before, err, after)
	}
	if left, err := fabrictest.Interfaces(path); err != nil || !slices.Equal(left, interfaces) {
		t.Errorf("the interfaces were %q and are now %q, error %v", interfaces, left, err)
	}
}

func TestOVSMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	if _, err := New(t.Context(), Config{Run: run}); !vitrine.IsUnsupported(err) {
		t.Errorf("New without Open vSwitch: got %v, want Unsupported", err)
	}
	if c := Check(t.Context()); c[0].OK || !strings.Contains(c[0].Missing, "openvswitch-switch") {
		t.Errorf("check without Open vSwitch: got %+v", c)
	}
}

func TestOVSRefuses(t *testing.T) {
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	if c := Check(t.Context()); c[0].OK == (c[0].Missing != "") {
		t.Errorf("doctor: %+v", c)
	}
	for _, c := range []Config{
		{Datapath: "fast"}, {Rules: "x"}, {Ports: "dpdk"},
		{Ports: PortsAFXDP}, {Ports: PortsAFXDP, CPUs: document.CPUs{0}, Datapath: DatapathKernel},
		{Server: "/nowhere/db.sock"}, {Server: "/", CPUs: document.CPUs{0}}, {Server: "/", Ports: PortsAFXDP},
		{CPUs: document.CPUs{8000}}, // fails when the switch is started
	} {
		c.Run = run
		f, err := New(t.Context(), c)
		if err == nil {
			_ = f.Close(context.Background())
		}
		if slices.Contains(c.CPUs, 8000) && vitrine.IsUnsupported(err) {
			t.Skip(err)
		}
		if !vitrine.IsBadInput(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestOVSThatHasEnded checks that interfaces are removed even if the switch has ended. Neither
// daemon may be in the process group that a terminal interrupts.
func TestOVSThatHasEnded(t *testing.T) {
	t.Parallel()
	f := open(t, Config{})
	p := attach(t, f, "a", "b")
	for _, d := range f.server.daemons {
		if group, err := unix.Getpgid(d.cmd.Process.Pid); err != nil || group == unix.Getpgrp() {
			t.Errorf("%s has process group %d, error %v, want its own", d.name, group, err)
		}
		mirrortest.Must(t, d.cmd.Process.Kill())
		<-d.ended
	}
	mirrortest.Must(t, f.Detach(t.Context(), "a"))
	mirrortest.Must(t, f.Close(t.Context()))
	for _, path := range []string{f.Path(), p[0].NetNS, p[1].NetNS} {
		left, err := fabrictest.Interfaces(path)
		if !errors.Is(err, fs.ErrNotExist) && !slices.Equal(left, []string{"lo"}) {
			t.Errorf("%s has %q, %v", path, left, err)
		}
	}
	if _, err := os.Stat(f.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the fabric's namespace was not removed: %v", err)
	}
}
