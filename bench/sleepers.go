package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/runstate"
)

// sleepers are idle instances: each is a sleeping process with its own cgroups
// and network namespace, which has lo and eth0. The bench creates them without
// substrate and fabric, so that it measures only the monitor.
type sleepers struct {
	host *cgroup.Host
	run  *runstate.Run
	each []*sleeper
}

type sleeper struct {
	vantage vitrine.Vantage
	command *exec.Cmd
}

// startSleepers returns partly started sleepers together with an error, so that
// the caller can remove them.
func startSleepers(ctx context.Context, n int) (s *sleepers, err error) {
	s = &sleepers{}
	if os.Geteuid() != 0 {
		return s, &vitrine.Unsupported{What: "instances with network namespaces of their own", Missing: "root"}
	}
	if s.host, err = cgroup.Detect(); err != nil {
		return s, err
	}
	if s.run, err = runstate.New(runstate.DefaultRoot()); err != nil {
		return s, err
	}
	for i := range n {
		if err := s.start(ctx, "idle-"+strconv.Itoa(i+1)); err != nil {
			return s, err
		}
		if i%2 == 1 {
			if err := wire(s.each[i-1], s.each[i]); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

func (s *sleepers) start(ctx context.Context, name string) error {
	group, err := s.host.Create(s.run.ID, name, cgroup.Limits{})
	if err != nil {
		return err
	}
	leaf, err := group.Leaf("main")
	if err != nil {
		return err
	}
	one := &sleeper{
		vantage: vitrine.Vantage{Instance: name, Component: "idle"},
		command: exec.CommandContext(ctx, "sleep", "infinity"),
	}
	one.command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: see Leaf.Start
		started <- leaf.Start(one.command)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	group.Vantage(&one.vantage)
	one.vantage.PID = one.command.Process.Pid
	one.vantage.NetNS = fmt.Sprintf("/proc/%d/ns/net", one.vantage.PID)
	s.each = append(s.each, one)
	return nil
}

// wire gives each of two sleepers an eth0, the two ends of a veth pair.
func wire(a, b *sleeper) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Namespace = "eth0", netlink.NsPid(a.vantage.PID)
	cable := netlink.NewVeth(attrs)
	cable.PeerName, cable.PeerNamespace = "eth0", netlink.NsPid(b.vantage.PID)
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("wire %s to %s: %w", a.vantage.Instance, b.vantage.Instance, err)
	}
	return nil
}

func (s *sleepers) vantages() (all []vitrine.Vantage) {
	for _, one := range s.each {
		all = append(all, one.vantage)
	}
	return all
}

// files lists the files that the monitor reads, in the format of reader.c. memory.stat of each
// instance is read once per second, in turn, and the other files in every sample.
func (s *sleepers) files() []byte {
	var b bytes.Buffer
	list := func(every, turn int, namespace, folder, name string) {
		if folder != "" {
			fmt.Fprintln(&b, every, turn, namespace, filepath.Join(folder, name))
		}
	}
	for _, name := range []string{"stat", "meminfo", "net/dev"} {
		list(1, 0, "-", "/proc", name)
	}
	for i, one := range s.each {
		v := one.vantage
		list(1, 0, "-", v.CgroupV2, "cpu.stat")
		list(1, 0, "-", v.CgroupV2, "memory.current")
		list(10, i%10, "-", v.CgroupV2, "memory.stat")
		list(1, 0, "-", v.CgroupCPUAcct, "cpuacct.usage")
		list(1, 0, "-", v.CgroupCPU, "cpu.stat")
		list(1, 0, "-", v.CgroupMemory, "memory.usage_in_bytes")
		list(10, i%10, "-", v.CgroupMemory, "memory.stat")
		list(1, 0, v.NetNS, "/proc/self/net", "dev")
	}
	return b.Bytes()
}

// remove ends the sleepers and removes their cgroups and run.
func (s *sleepers) remove() (err error) {
	for _, one := range s.each {
		err = errors.Join(err, one.command.Process.Kill())
		_ = one.command.Wait() // always an error, because the process was killed
	}
	if s.run != nil {
		err = errors.Join(err, s.host.RemoveRun(context.Background(), s.run.ID), s.run.Close())
	}
	return err
}
