package impair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/direct"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/loopback"
	"vitrine/fabric/macvlan"
	"vitrine/fabric/macvtap"
	"vitrine/fabric/ovs"
	"vitrine/fabric/segment"
	"vitrine/fabric/vxlan"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// TestMain lets the test binary be the emulator, or a run that a test kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		if err := Serve(context.Background(), time.Now, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(fabrictest.Main(m, cases()))
}

// wrap impairs the links of a fabric. inner is nil if err is not.
func wrap(run *runstate.Run, c Config, inner fabric.Fabric, err error) (*Fabric, error) {
	if err != nil {
		return nil, err
	}
	c.Run, c.Command = run, []string{os.Args[0], Verb}
	return Wrap(context.Background(), inner, c)
}

// skipUnsupported skips the test if the host does not support the fabric.
func skipUnsupported(t *testing.T, err error) {
	t.Helper()
	hosttest.Need(t, err)
}

func onBridge(run *runstate.Run, c Config) (*Fabric, error) {
	b, err := bridge.New(bridge.Config{Run: run})
	return wrap(run, c, b, err)
}

// cases returns a fabric that lends an interface of the host, and a bridge. The bridge's links are
// emulated in both directions, in one direction (generator) or not at all (sprout-1).
func cases() fabrictest.Cases {
	emulated := func(run *runstate.Run, inner fabric.Fabric, err error) (fabric.Fabric, error) {
		return wrap(run, Config{Link: Link{Delay: time.Millisecond}, By: Emulator}, inner, err)
	}
	return fabrictest.Cases{"lent": {Make: func(run *runstate.Run) (fabric.Fabric, error) {
		d, err := direct.New(direct.Config{Run: run, Interfaces: map[string]string{"bono-1": "eno1"}})
		return emulated(run, d, err)
	}}, "bridge": {
		Make: func(run *runstate.Run) (fabric.Fabric, error) {
			return onBridge(run, Config{
				Link:  Link{Delay: time.Millisecond, Jitter: time.Millisecond},
				Links: map[string]Link{"sprout-1": {}, "generator": {Rate: 1e9, Way: Out}},
				By:    Emulator,
			})
		},
		Fabric:  middle,
		Cleaner: func(root string) vitrine.Cleaner { return Cleaner{Root: root} },
	}}
}

// TestImpairFabric runs the conformance suite of fabrics on an impaired bridge.
func TestImpairFabric(t *testing.T) {
	fabrictest.RunAll(t, fabrictest.Cases{"bridge": cases()["bridge"]})
}

// TestImpairFabrics checks that links of other kinds of fabric can be impaired.
func TestImpairFabrics(t *testing.T) {
	for name, open := range map[string]func(*runstate.Run) (fabric.Fabric, error){
		"direct":  func(run *runstate.Run) (fabric.Fabric, error) { return direct.New(direct.Config{Run: run}) },
		"macvlan": func(run *runstate.Run) (fabric.Fabric, error) { return macvlan.New(macvlan.Config{Run: run}) },
		"macvtap": func(run *runstate.Run) (fabric.Fabric, error) { return macvtap.New(macvtap.Config{Run: run}) },
		"vxlan":   func(run *runstate.Run) (fabric.Fabric, error) { return vxlan.New(vxlan.Config{Run: run}) },
		"ovs": func(run *runstate.Run) (fabric.Fabric, error) {
			return ovs.New(context.Background(), ovs.Config{Run: run})
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := fabrictest.NewRun(t, t.TempDir()+"/runs")
			inner, err := open(run)
			f, err := wrap(run, Config{Link: Link{Delay: 10 * time.Millisecond}, By: Emulator}, inner, err)
			skipUnsupported(t, err)
			b := fabrictest.NewBench(t, f, run)
			one, two := b.Attach("generator"), b.Attach("sprout-1")
			for range 2 { // the first time with ARP, the second time without
				began := time.Now()
				if err := b.Reach(one, two); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < 40*time.Millisecond {
					t.Errorf("round trip took %s over four links of 10ms each", took)
				}
			}
			made, err := f.Made(t.Context())
			if err != nil || len(made) != 4 {
				t.Fatalf("%+v, %v", made, err)
			}
			for _, m := range made {
				if m.Sent == 0 || m.Sent != m.Packets {
					t.Errorf("%s %s: forwarded %d of %d packets", m.Instance, m.Way, m.Sent, m.Packets)
				}
			}
		})
	}
}

// TestImpairStays attaches and detaches the instance at the other end of a cable several times.
// Each time the remaining instance gets a new interface. Its link must stay impaired as before.
func TestImpairStays(t *testing.T) {
	for name, c := range map[string]Config{
		"emulator": {Link: Link{Delay: 10 * time.Millisecond}, By: Emulator},
		"plain":    {Links: map[string]Link{"sprout-1": {Delay: time.Millisecond}}, By: Emulator},
	} {
		t.Run(name, func(t *testing.T) {
			run := fabrictest.NewRun(t, t.TempDir()+"/runs")
			inner, err := direct.New(direct.Config{Run: run})
			f, err := wrap(run, c, inner, err)
			skipUnsupported(t, err)
			b := fabrictest.NewBench(t, f, run)
			generator, sprout := b.Attach("generator"), fabrictest.Place(t, run.ID, "sprout-1")
			for range 2 {
				if _, err := f.Attach(t.Context(), fabric.Port{Instance: "sprout-1", NetNS: sprout}); err != nil {
					t.Fatal(err)
				}
				if err := f.Detach(t.Context(), "sprout-1"); err != nil {
					t.Fatal(err)
				}
			}
			before, segments := sent(t, f, "generator"), limits(t, netns.Path("vt-"+run.ID+"-generator"), "eth0").segments
			if err := b.Reach(generator, b.Attach("sprout-2")); err != nil {
				t.Fatal(err)
			}
			if passed := sent(t, f, "generator") - before; (passed > 0) == f.config.linkOf(fabric.Port{Instance: "generator"}).isPlain() {
				t.Errorf("%d packets passed through the emulator", passed)
			}
			if segments != 1 {
				t.Errorf("packets of the instance have up to %d segments, want 1", segments)
			}
		})
	}
}

// TestImpairDetachAgain checks a Detach that fails after the link has ended. The next Detach must
// succeed, and the link's counts must be kept once.
func TestImpairDetachAgain(t *testing.T) {
	var log bytes.Buffer
	f, err := onBridge(fabrictest.NewRun(t, t.TempDir()+"/runs"), Config{
		Link: Link{Delay: time.Millisecond}, By: Emulator, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	skipUnsupported(t, err)
	hosttest.AtEnd(t, func() error { return f.Close(context.Background()) })
	place := fabrictest.Place(t, f.config.Run.ID, "sprout-1")
	if _, err := f.Attach(t.Context(), fabric.Port{Instance: "sprout-1", NetNS: place}); err != nil {
		t.Fatal(err)
	}
	splice := f.attached["sprout-1"].splice
	splice.middle += "-absent"
	if err := f.Detach(t.Context(), "sprout-1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("detach without the emulators' namespace: got %v", err)
	}
	splice.middle = netns.Path(f.middle)
	for range 2 {
		if made, err := f.Made(t.Context()); err != nil || len(made) != 2 {
			t.Errorf("counts of the link: got %d directions, error %v, want 2", len(made), err)
		}
		if err := f.Detach(t.Context(), "sprout-1"); err != nil {
			t.Error(err)
		}
	}
	if text := log.String(); strings.Contains(text, "counts of an impaired link are lost") || strings.Count(text, "instance=sprout-1") != 2 {
		t.Errorf("got log %s", text)
	}
}

// sent returns the number of packets that an instance's link has sent on so far.
func sent(t *testing.T, f *Fabric, instance string) (packets int64) {
	t.Helper()
	made, err := f.Made(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		if m.Instance == instance {
			packets += m.Sent
		}
	}
	return packets
}

// packetLimits are limits of an interface.
type packetLimits struct {
	segments        uint32 // into which it cuts a packet that it sends
	merged, merged4 uint32 // bytes of received packets that it merges, of all but IPv4 and of IPv4; 0: the kernel does not tell
}

// limits returns the limits of an interface.
func limits(t *testing.T, path, name string) (l packetLimits) {
	t.Helper()
	err := netns.Do(path, func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			a := link.Attrs()
			l = packetLimits{segments: a.GSOMaxSegs, merged: a.GROMaxSize, merged4: a.GROIPv4MaxSize}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestImpairNeedsInterfaces checks that instances in the host's own network are
// refused.
func TestImpairNeedsInterfaces(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f, err := wrap(run, Config{Link: Link{Delay: time.Millisecond}, By: Emulator}, loopback.New(loopback.Config{Run: run}), nil)
	skipUnsupported(t, err)
	if _, err := f.Attach(t.Context(), fabric.Port{Instance: "sprout-1"}); !vitrine.IsUnsupported(err) {
		t.Errorf("attach on loopback: got %v, want Unsupported", err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// processesIn returns the running processes in a namespace.
func processesIn(t *testing.T, path string) (pids []int) {
	t.Helper()
	want, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range all {
		is, err := os.Stat(ns) // fails if the process has ended
		if err == nil && os.SameFile(is, want) {
			pid, err := strconv.Atoi(strings.Split(ns, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// stop stops a process and returns when all its threads have stopped. Until then the kernel does
// not treat the process as stopped.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	running := func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("threads of process %d: %d, %v", pid, len(threads), err)
		}
		return slices.ContainsFunc(threads, func(thread string) bool {
			stat, err := os.ReadFile(thread)
			return err != nil || !strings.Contains(string(stat), ") T ")
		})
	}
	for deadline := time.Now().Add(time.Minute); running(); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d did not stop", pid)
		}
	}
}

// startStopped starts a process in a namespace and stops it. argument is the process's last
// argument.
func startStopped(t *testing.T, namespace, argument string) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read unless_killed", argument)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := netns.Do(netns.Path(namespace), cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	stop(t, cmd.Process.Pid)
	return cmd.Process.Pid
}

// TestImpairKilled checks that an emulator ends with the run that started it, even if the emulator
// is stopped. Cleaning must remove the rest. It must end a remaining emulator, but no other process
// in the namespace.
func TestImpairKilled(t *testing.T) {
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			skipUnsupported(t, netns.Possible())
			root := t.TempDir() + "/runs"
			run, kill := fabrictest.Killable(t, "bridge", root, "")
			hosttest.AtEnd(t, func() error { return netns.Delete("vt-" + run + "-bono-1") })
			emulators := processesIn(t, netns.Path(middle(run)))
			if len(emulators) != 1 {
				t.Fatalf("got %d processes in the run's namespace, want only the emulator", emulators)
			}
			if stopped {
				stop(t, emulators[0])
			}
			kill()
			for deadline := time.Now().Add(time.Minute); len(processesIn(t, netns.Path(middle(run)))) > 0; {
				if time.Now().After(deadline) {
					t.Fatal("the emulator did not end with its run")
				}
			}
			left, mine := startStopped(t, middle(run), Verb), startStopped(t, middle(run), "mine")
			if err := clean(t, root); err != nil {
				t.Error(err)
			}
			if is := processesIn(t, "/proc/"+strconv.Itoa(mine)+"/ns/net"); !slices.Equal(is, []int{mine}) {
				t.Errorf("got processes %v in the namespace after cleaning, which had %d of a running emulator and %d of a user", is, left, mine)
			}
			for _, left := range []string{middle(run), "vt-" + run + "-fabric"} {
				if _, err := os.Stat(netns.Path(left)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("namespace %s still exists after cleaning: %v", left, err)
				}
			}
		})
	}
}

// clean removes what dead runs in root left, in the order of the program.
func clean(t *testing.T, root string) error {
	t.Helper()
	for _, cleaner := range []vitrine.Cleaner{Cleaner{Root: root}, segment.Cleaner{Root: root}} {
		if _, err := cleaner.Clean(t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// TestImpairLent checks that cleaning returns an interface to the host if a killed run had lent it
// to an instance with an impaired link.
func TestImpairLent(t *testing.T) {
	host := fabrictest.NewHost(t)
	root := t.TempDir() + "/runs"
	host.Do(t, func() error {
		run, kill := fabrictest.Killable(t, "lent", root, "")
		hosttest.AtEnd(t, func() error { return netns.Delete("vt-" + run + "-bono-1") })
		kill()
		return clean(t, root)
	})
	if links, err := fabrictest.Interfaces(host.Path); err != nil || !slices.Equal(links, []string{"eno1", "eno2", "lo"}) {
		t.Errorf("interfaces of the host: got %q, error %v", links, err)
	}
}

// TestImpairLentIsPutBack checks that the packets that a lent interface receives are not merged
// before its link sees them. The interface must be restored even if the instance's namespace is gone.
func TestImpairLentIsPutBack(t *testing.T) {
	for name, gone := range map[string]bool{"detached": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			host := fabrictest.NewHost(t)
			before := limits(t, host.Path, "eno1")
			run := fabrictest.NewRun(t, t.TempDir()+"/runs")
			host.Do(t, func() error {
				f, err := cases()["lent"].Make(run)
				if err != nil {
					return err
				}
				f.(*Fabric).number = 9999 // names of later links have more digits
				_, err = f.Attach(t.Context(), fabric.Port{Instance: "bono-1", NetNS: fabrictest.Place(t, run.ID, "bono-1")})
				if err == nil {
					if during := limits(t, netns.Path(middle(run.ID)), "o10000"); during.segments != 1 || during.merged > 1 || during.merged4 > 1 {
						t.Errorf("the interface in front of the link has the limits %+v, had %+v", during, before)
					}
				}
				if gone {
					err = errors.Join(err, netns.Delete("vt-"+run.ID+"-bono-1"))
				}
				return errors.Join(err, f.Close(t.Context()))
			})
			if links, err := fabrictest.Interfaces(host.Path); err != nil || !slices.Equal(links, []string{"eno1", "eno2", "lo"}) {
				t.Errorf("interfaces of the host: got %q, error %v", links, err)
			}
			if after := limits(t, host.Path, "eno1"); after != before || before.segments <= 1 {
				t.Errorf("eno1 had the limits %+v, now has %+v", before, after)
			}
		})
	}
}

// TestImpairLentWithoutCarrier checks that an interface of the host can be impaired before the other
// end of its cable is up.
func TestImpairLentWithoutCarrier(t *testing.T) {
	host := fabrictest.NewHost(t)
	host.Unplug(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	host.Do(t, func() error {
		f, err := cases()["lent"].Make(run)
		if err != nil {
			return err
		}
		_, err = f.Attach(t.Context(), fabric.Port{Instance: "bono-1", NetNS: fabrictest.Place(t, run.ID, "bono-1")})
		return errors.Join(err, f.Close(t.Context()))
	})
}

// An interrupter is the emulator's stdin. It calls interrupt before each order.
type interrupter struct {
	io.WriteCloser
	interrupt func()
}

func (i interrupter) Write(b []byte) (int, error) {
	i.interrupt()
	return i.WriteCloser.Write(b)
}

// TestImpairInterrupted checks that the links of other instances survive the end of an Attach's
// context while the emulator has an order.
func TestImpairInterrupted(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f, err := onBridge(run, Config{Link: Link{Delay: time.Millisecond}, By: Emulator})
	skipUnsupported(t, err)
	b := fabrictest.NewBench(t, f, run)
	generator := b.Attach("generator")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running := f.process.Load()
	running.stdin = interrupter{running.stdin, cancel}
	if _, err := f.Attach(ctx, fabric.Port{Instance: "bono-1", NetNS: fabrictest.Place(t, run.ID, "bono-1")}); err != nil {
		t.Errorf("attach whose context ended during the order: %v", err)
	}
	if err := b.Reach(generator, b.Attach("sprout-1")); err != nil {
		t.Error(err)
	}
}

// TestImpairEnded checks that the fabric reports the end of its emulator, even if no order follows.
func TestImpairEnded(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f, err := onBridge(run, Config{Link: Link{Delay: time.Millisecond}, By: Emulator})
	skipUnsupported(t, err)
	b := fabrictest.NewBench(t, f, run)
	if err := f.Ended(); err != nil {
		t.Errorf("without an emulator: %v", err)
	}
	b.Attach("sprout-1")
	if err := f.Ended(); err != nil {
		t.Errorf("with a running emulator: %v", err)
	}
	running := f.process.Load()
	running.kill()
	<-running.done
	f.mu.Lock() // as a slow Attach does
	defer f.mu.Unlock()
	if err := f.Ended(); err == nil || !strings.Contains(err.Error(), "the link emulator has ended (signal: killed)") {
		t.Errorf("with a killed emulator: got %v", err)
	}
}

// TestImpairEndedInside checks that an impaired fabric also reports the end of the wrapped fabric's
// processes.
func TestImpairEndedInside(t *testing.T) {
	f := &Fabric{inner: fabrictest.Ended{Err: errors.New("the switch has ended")}}
	if err := f.Ended(); err == nil || err.Error() != "the switch has ended" {
		t.Errorf("got %v, want the error of the wrapped fabric", err)
	}
}

// TestImpairShowsOutput checks that the error shows the output of an emulator that cannot start.
func TestImpairShowsOutput(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f, err := onBridge(run, Config{Link: Link{Delay: time.Millisecond}, By: Emulator})
	skipUnsupported(t, err)
	hosttest.AtEnd(t, func() error { return f.Close(context.Background()) })
	f.config.Command = []string{"sh", "-c", "echo no such luck >&2; exit 3"}
	_, err = f.Attach(t.Context(), fabric.Port{Instance: "sprout-1", NetNS: fabrictest.Place(t, run.ID, "sprout-1")})
	for _, want := range []string{"exit status 3", "no such luck"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want it to contain %q", err, want)
		}
	}
}

// TestImpairGone checks that an emulator without its interfaces sleeps and does not spin.
func TestImpairGone(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f, err := onBridge(run, Config{Link: Link{Delay: time.Millisecond}, By: Emulator})
	skipUnsupported(t, err)
	b := fabrictest.NewBench(t, f, run)
	b.Attach("sprout-1")
	err = netns.Do(netns.Path(middle(run.ID)), func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if link.Attrs().Name != "lo" {
				err = errors.Join(err, netlink.LinkDel(link))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pid := processesIn(t, netns.Path(middle(run.ID)))[0]
	for deadline := time.Now().Add(time.Minute); ; {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks { // the kernel function in which the thread sleeps
			if at, err := os.ReadFile(task); err == nil && strings.Contains(string(at), "poll") && !strings.Contains(string(at), "ep_poll") {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the emulator did not go to sleep")
		}
	}
}
