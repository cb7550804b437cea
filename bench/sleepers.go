package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/runs"
)

// Sleepers are instances that do nothing: each a sleeping process with its own
// cgroups and network namespace, in which it has lo and eth0. They are made by
// hand, not by a substrate, so that the bench measures the monitor alone.
type sleepers struct {
	run     *runs.Run
	each    []*sleeper
	cgroups []string // all that were made, parents first
}

type sleeper struct {
	vantage vitrine.Vantage
	command *exec.Cmd
}

// startSleepers also returns what was made before an error, to be removed.
func startSleepers(ctx context.Context, n int) (*sleepers, error) {
	s := &sleepers{}
	if os.Geteuid() != 0 {
		return s, &vitrine.Unsupported{What: "instances with cgroups and network namespaces", Missing: "root"}
	}
	var err error
	if s.run, err = runs.New(runs.DefaultRoot()); err != nil {
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
	v := vitrine.Vantage{Instance: name, Component: "idle"}
	folders, err := s.makeCgroups(name, &v)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "sleep", "infinity")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	v.PID = command.Process.Pid
	v.NetNS = fmt.Sprintf("/proc/%d/ns/net", v.PID)
	s.each = append(s.each, &sleeper{v, command})
	for _, folder := range folders {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(v.PID)), 0); err != nil {
			return fmt.Errorf("put %s into its cgroup: %w", name, err)
		}
	}
	return nil
}

// makeCgroups makes the instance's cgroups, of version 2 where that has the
// controllers.
func (s *sleepers) makeCgroups(name string, v *vitrine.Vantage) (folders []string, err error) {
	const root = "/sys/fs/cgroup"
	below := []string{"vitrine", s.run.ID, name}
	if controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		if !bytes.Contains(controllers, []byte("cpu")) || !bytes.Contains(controllers, []byte("memory")) {
			return nil, &vitrine.Unsupported{What: "cgroups", Missing: "the cpu and memory controllers of cgroup v2"}
		}
		v.CgroupV2, err = s.makeCgroup(root, below, true)
		return []string{v.CgroupV2}, err
	}
	for _, part := range []struct {
		controller string
		into       *string
	}{{"cpu", &v.CgroupCPU}, {"cpuacct", &v.CgroupCPUAcct}, {"memory", &v.CgroupMemory}} {
		hierarchy := filepath.Join(root, part.controller)
		if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.procs")); err != nil {
			return nil, &vitrine.Unsupported{What: "cgroups", Missing: "the controller " + part.controller}
		}
		if *part.into, err = s.makeCgroup(hierarchy, below, false); err != nil {
			return nil, err
		}
		folders = append(folders, *part.into)
	}
	return folders, nil
}

func (s *sleepers) makeCgroup(folder string, below []string, enable bool) (string, error) {
	for _, name := range below {
		if enable {
			if err := os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+cpu +memory"), 0); err != nil {
				return "", fmt.Errorf("enable controllers below %s: %w", folder, err)
			}
		}
		folder = filepath.Join(folder, name)
		switch err := os.Mkdir(folder, 0o755); {
		case err == nil:
			if name != below[0] { // the product's own folder stays for others
				s.cgroups = append(s.cgroups, folder)
			}
		case !errors.Is(err, os.ErrExist):
			return "", err
		}
	}
	return folder, nil
}

// wire gives each of two sleepers an eth0, the ends of one cable.
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

// files lists, for reader.c, what the monitor reads: memory.stat once a second,
// in turn, the rest in every sample.
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

// remove ends the sleepers and removes what was made.
func (s *sleepers) remove() (err error) {
	for _, one := range s.each {
		err = errors.Join(err, one.command.Process.Kill())
		_ = one.command.Wait() // killed, which is how it should end
	}
	for i := len(s.cgroups) - 1; i >= 0; i-- {
		err = errors.Join(err, os.Remove(s.cgroups[i]))
	}
	if s.run != nil {
		err = errors.Join(err, s.run.Close())
	}
	return err
}
