package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/segment"
	"vitrine/internal/cgroup"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/load"
	"vitrine/spec"
)

// probeInterval is the time between two readiness probes. It is much shorter than the CFS period
// of 20 ms, so that probing adds little to the start time.
const probeInterval = time.Millisecond

// bareLog is the file of each function's output, in its folder.
const bareLog = "log"

// A bare runs the function with the least work. Each instance has a place that is created once: a
// cgroup with the flavor's quota, CPUs and memory, and a network namespace on a bridge. Processes
// start in the cheapest known way, from an existing thread.
type bare struct {
	ims       *ims
	run       *runstate.Run
	groups    *cgroup.Host
	fabric    *segment.Segment
	generator *bareInstance
	functions []*bareInstance // in start order
}

type bareInstance struct {
	name      string
	component *spec.Component // nil: the generator
	dir       string
	netns     string
	limits    cgroup.Limits
	group     *cgroup.Group
	leaf      *cgroup.Leaf
	addr      netip.Addr
	args, env []string
	command   *exec.Cmd // nil: not running
}

// newBare creates the places. It returns a partly built bare together with an error, so that the
// caller can remove it.
func newBare(ctx context.Context, f *ims) (b *bare, err error) {
	b = &bare{ims: f}
	if b.groups, err = cgroup.Detect(); err != nil {
		return b, err
	}
	if b.run, err = runstate.New(runstate.DefaultRoot()); err != nil {
		return b, err
	}
	if b.fabric, err = bridge.New(bridge.Config{Run: b.run}); err != nil {
		return b, err
	}
	b.generator = &bareInstance{name: vitrine.Generator}
	b.generator.limits = cgroup.Limits{CPUs: f.cpus.Generator}
	if err := b.place(ctx, b.generator); err != nil {
		return b, err
	}
	for _, c := range f.deployment.Order() {
		in := &bareInstance{name: c.Name + "-1", component: c}
		b.functions = append(b.functions, in)
		in.limits = f.limits(c)
		if err := b.place(ctx, in); err != nil {
			return b, err
		}
	}
	for _, in := range b.functions {
		b.equip(in)
	}
	return b, nil
}

// place creates the instance's folder, cgroup and wired namespace.
func (b *bare) place(ctx context.Context, in *bareInstance) error {
	in.dir = filepath.Join(b.ims.dir, "bare", in.name)
	if err := os.MkdirAll(in.dir, 0o755); err != nil {
		return err
	}
	var err error
	if in.group, err = b.groups.Create(b.run.ID, in.name, in.limits); err != nil {
		return err
	}
	if in.leaf, err = in.group.Leaf("main"); err != nil {
		return err
	}
	if in.netns, err = netns.Create(b.namespace(in)); err != nil {
		return err
	}
	at, err := b.fabric.Attach(ctx, fabric.Port{Instance: in.name, NetNS: in.netns})
	in.addr = at.Addr
	return err
}

func (b *bare) namespace(in *bareInstance) string { return runstate.Name(b.run.ID, in.name) }

// equip sets the instance's command and environment.
func (b *bare) equip(in *bareInstance) {
	c := in.component
	vars := map[string]string{"ADDRESS": in.addr.String(), "VITRINE_INSTANCE": in.name, "VITRINE_INDEX": "1", "VITRINE_NUMBER": "1", "VITRINE_DIR": in.dir}
	for _, on := range c.Dependencies {
		vars[on.As] = b.at(on.Component, on.Port)
	}
	if c.Cluster != nil {
		vars[c.Cluster.As] = b.at(c.Name, c.Cluster.Port)
	}
	for name, value := range c.Environment {
		vars[name] = spec.Expand(value, vars)
	}
	in.args = c.Command.Expand(vars)
	if in.args[0] == "vitrine" {
		in.args[0] = b.ims.vitrine
	}
	in.env = in.env[:0]
	for name, value := range vars {
		in.env = append(in.env, name+"="+value)
	}
}

// at returns HOST:PORT for a named port of the component's instance, or "" if there is no such
// component.
func (b *bare) at(component, port string) string {
	for _, in := range b.functions {
		if in.component.Name == component {
			return in.port(port)
		}
	}
	return ""
}

func (in *bareInstance) port(name string) string {
	return netip.AddrPortFrom(in.addr, uint16(in.component.Ports[name])).String()
}

// redeploy measures the time without package trial. It returns the median time between two
// generators, in ms.
func (b *bare) redeploy(ctx context.Context) (ms float64, err error) {
	defer func() { err = errors.Join(err, b.stop()) }()
	for range redeployments + 1 {
		if err := b.stop(); err != nil {
			return 0, err
		}
		if err := b.start(ctx); err != nil {
			return 0, err
		}
		if err := b.generate(ctx); err != nil {
			return 0, err
		}
	}
	return b.ims.between()
}

// stop sends SIGTERM to all running instances and reaps them.
func (b *bare) stop() error {
	for _, in := range b.functions {
		if in.command == nil {
			continue
		}
		if err := unix.Kill(-in.command.Process.Pid, unix.SIGTERM); err != nil {
			return fmt.Errorf("stop %s: %w", in.name, err)
		}
	}
	for _, in := range b.functions {
		if in.command == nil {
			continue
		}
		if err := in.command.Wait(); err != nil {
			return fmt.Errorf("stop %s: %w", in.name, err)
		}
		in.command = nil
	}
	return nil
}

func (b *bare) start(ctx context.Context) error {
	for _, in := range b.functions {
		if err := in.start(ctx, bareLog); err != nil {
			return err
		}
		if err := b.await(ctx, in); err != nil {
			return fmt.Errorf("wait for %s: %w", in.name, err)
		}
	}
	return nil
}

// start starts the instance's command and appends its output to a file. The end
// of the context kills the command.
func (in *bareInstance) start(ctx context.Context, output string) error {
	log, err := os.OpenFile(filepath.Join(in.dir, output), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.CommandContext(ctx, in.args[0], in.args[1:]...)
	command.Env, command.Dir, command.Stdout, command.Stderr = in.env, in.dir, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := netns.Do(in.netns, func() error { return in.leaf.Start(command) }); err != nil {
		return fmt.Errorf("start %s: %w", in.name, err)
	}
	in.command = command
	return nil
}

// generate runs the generator until it exits.
func (b *bare) generate(ctx context.Context) error {
	entry, _ := b.ims.deployment.Entry()
	command := load.Command([]string{self(), answerCommand}, load.Trial{
		Rate: 1, Duration: 1, Targets: []string{b.at(entry.Name, entry.Entry)}, Scratch: b.generator.dir,
		Params: map[string]string{timesParam: b.ims.times()},
	})
	b.generator.args, b.generator.env = command.Args, command.Env
	if err := b.generator.start(ctx, "report"); err != nil {
		return err
	}
	err := b.generator.command.Wait()
	b.generator.command = nil
	return errors.Join(err, ctx.Err())
}

// await probes the instance from the generator's namespace until it is ready or its time limit is
// over.
func (b *bare) await(ctx context.Context, in *bareInstance) error {
	ready := in.component.Ready
	ctx, cancel := context.WithTimeout(ctx, ready.Timeout)
	defer cancel()
	return netns.Do(b.generator.netns, func() error {
		switch {
		case ready.TCP != "":
			return awaitTCP(ctx, in.port(ready.TCP))
		case ready.SIP != "":
			return awaitSIP(ctx, in.port(ready.SIP))
		}
		return &vitrine.Unsupported{What: "waiting for " + in.name, Missing: "a TCP or SIP check in " + imsFile}
	})
}

// awaitTCP returns nil when the port accepts a connection. It returns the cause if ctx ends before.
func awaitTCP(ctx context.Context, at string) error {
	var d net.Dialer
	for ctx.Err() == nil {
		if conn, err := d.DialContext(ctx, "tcp", at); err == nil {
			return conn.Close()
		}
		time.Sleep(probeInterval)
	}
	return context.Cause(ctx)
}

// awaitSIP returns nil when the port answers OPTIONS (RFC 3261 section 11). It returns the cause if
// ctx ends before.
func awaitSIP(ctx context.Context, at string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	self := conn.LocalAddr().String()
	options := strings.Join([]string{
		"OPTIONS sip:" + at + " SIP/2.0", "Via: SIP/2.0/UDP " + self + ";rport;branch=z9hG4bKbare", "Max-Forwards: 70",
		"From: <sip:bench@" + self + ">;tag=bare", "To: <sip:" + at + ">", "Call-ID: bare-" + self, "CSeq: 1 OPTIONS",
		"Content-Length: 0", "", "",
	}, "\r\n")
	answer := make([]byte, 2048)
	for ctx.Err() == nil {
		// A write may return the refusal of an earlier write. The next read or
		// write shows the present state.
		_, _ = conn.Write([]byte(options))
		if err := conn.SetReadDeadline(time.Now().Add(probeInterval)); err != nil {
			return err
		}
		n, err := conn.Read(answer)
		switch {
		case err == nil && strings.HasPrefix(string(answer[:n]), "SIP/2.0 "):
			return nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			time.Sleep(probeInterval) // refused: the server does not listen yet
		}
	}
	return context.Cause(ctx)
}

// remove kills the processes that still run and removes the places.
func (b *bare) remove() (err error) {
	for _, in := range b.functions {
		if in.command != nil { // still running after an error
			_ = in.command.Process.Kill() // may fail if the context's end has killed it
			_ = in.command.Wait()
		}
	}
	ctx := context.Background()
	if b.fabric != nil {
		err = errors.Join(err, b.fabric.Close(ctx))
	}
	if b.run == nil {
		return err
	}
	for _, in := range append(b.functions, b.generator) {
		if in != nil && in.netns != "" {
			err = errors.Join(err, netns.Delete(b.namespace(in)))
		}
	}
	return errors.Join(err, b.groups.RemoveRun(ctx, b.run.ID), b.run.Close())
}
