// Package e2e tests the director end to end: the program itself, with real
// clients and instances.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"vitrine/internal/hosttest"
	"vitrine/internal/pidfd"
)

// patience is the timeout of every wait in these tests.
const patience = 60 * time.Second

// eventually polls until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	hosttest.Until(t, patience, what, ok)
}

// A process is a program and its children, in their own process group.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	log   string        // output file of the process and its children
	ended chan struct{} // closed when the process has ended; then err is set
	err   error
	once  sync.Once
}

// spawn starts a program, and stops it at the end of the test if it is still running.
func spawn(t testing.TB, name, dir string, environ []string, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), environ...)
	// Use a file instead of a pipe: the successors of a director's first process keep writing.
	out, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.log = out.Name()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		output := p.output()
		hosttest.NoRace(t, name, output)
		if t.Failed() && program != "sipp" { // sipp draws screens
			t.Logf("%s:\n%s", name, output[max(0, len(output)-4000):])
		}
	})
	return p
}

// output returns the output of the process and its children.
func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Errorf("output of %s: %v", p.name, err)
	}
	return string(text)
}

// signal signals the whole group.
func (p *process) signal(s syscall.Signal) {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		p.t.Errorf("signal %s: %v", p.name, err)
	}
}

// kill ends the group at once and waits for its first process.
func (p *process) kill() {
	p.once.Do(func() {
		p.signal(syscall.SIGKILL)
		<-p.ended
	})
}

// stop asks the group to end and waits for all its processes. After a hand-over the first one has ended before, and
// its successor serves.
func (p *process) stop() {
	p.once.Do(func() {
		p.signal(syscall.SIGTERM)
		group, err := pidfd.Where(func(c procfs.Proc) bool {
			s, err := c.Stat()
			return err == nil && s.PGRP == p.cmd.Process.Pid
		})
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err = group.Wait(ctx)
			cancel()
			group.Close()
		}
		if err != nil {
			p.t.Errorf("%s did not stop: %v", p.name, err)
		}
		p.signal(syscall.SIGKILL) // if that took too long
		<-p.ended
	})
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// A site is a set of loopback addresses for one test. On IPv4, each host has its own address.
// IPv6 has only one loopback address, so there the site has its own range of ports.
type site struct {
	t      testing.TB
	prefix string // prefix of the IPv4 addresses
	base   int    // first port on IPv6; 0: IPv4
	tcp    bool   // phones use TCP to the directors
	dir    string
	sipps  *atomic.Int32 // number of SIPps started
}

var sites = struct {
	sync.Mutex
	n int
}{}

func newSite(t testing.TB) site {
	s, _ := numberedSite(t)
	return s
}

func numberedSite(t testing.TB) (s site, n int) {
	sites.Lock()
	defer sites.Unlock()
	sites.n++
	s = site{t: t, prefix: fmt.Sprintf("127.%d.%d.", 200+os.Getpid()%50, 1+(os.Getpid()/50*7+sites.n)%250), dir: t.TempDir(), sipps: new(atomic.Int32)}
	return s, sites.n
}

// newSite6 returns a site on IPv6.
func newSite6(t testing.TB) site {
	s, n := numberedSite(t)
	s.base = 10000 + 512*((os.Getpid()*3+n)%40)
	return s
}

// Hosts of a site: directors from 1; phones from 31; instances 65 to 126, which a capture
// recognizes by their network.
const (
	firstDirector = 1
	firstPhone    = 31
	firstInstance = 65
)

func (s site) host(n int) string {
	if s.base > 0 {
		return "::1"
	}
	return fmt.Sprintf("%s%d", s.prefix, n)
}

// at returns a port of a host. On IPv6, a host has only 5060, one other port, and 0.
func (s site) at(n, port int) string {
	if s.base > 0 && port == sipPort {
		port = s.base + n
	} else if s.base > 0 && port > 0 {
		port = s.base + 256 + n
	}
	return net.JoinHostPort(s.host(n), strconv.Itoa(port))
}

const sipPort = 5060

// phonePort returns another port for each SIPp of the site. If SIPp selects its port, two that
// start at once may select the same, and over TCP one of them then ends.
func (s site) phonePort() int {
	n := int(s.sipps.Add(1)) % 128
	if s.base > 0 {
		return s.base + 128 + n
	}
	return sipPort + n
}

// isInstance reports whether an address is an instance's.
func (s site) isInstance(a netip.AddrPort) bool {
	if s.base > 0 {
		return a.Addr() == netip.IPv6Loopback() && int(a.Port()) >= s.base+firstInstance && int(a.Port()) < s.base+firstInstance+62
	}
	return netip.MustParsePrefix(s.prefix + "64/26").Contains(a.Addr())
}

// filter returns the filter of the capture: the traffic between instances and directors, and
// ICMP errors for packets that the directors refuse.
func (s site) filter(directors []*steward) string {
	if s.base > 0 {
		return fmt.Sprintf("ip6 host ::1 and udp portrange %d-%d and portrange %d-%d", s.base, s.base+firstPhone-1, s.base+firstInstance, s.base+firstInstance+61)
	}
	var hosts []string
	for _, d := range directors {
		hosts = append(hosts, "host "+netip.MustParseAddrPort(d.address).Addr().String())
	}
	return fmt.Sprintf("(udp and net %s64/26 and (%s)) or (icmp and src net %s0/27)", s.prefix, strings.Join(hosts, " or "), s.prefix)
}
