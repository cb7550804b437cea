package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/spec"
	"vitrine/testbed"
)

const stopGrace = 2 * time.Second

// A deployment is one sizing, placed.
type deployment struct {
	*testbed.Placement
	config    *Config
	instances []*instance // in the order of placement
}

// An instance is one running copy of a component.
type instance struct {
	*testbed.Instance
	component *spec.Component
	vars      map[string]string // values of ${VAR} in its command
	env       []string
}

func specsOf(all []planned) []testbed.Spec {
	specs := make([]testbed.Spec, len(all))
	for i, p := range all {
		specs[i] = p.Spec
	}
	return specs
}

// newDeployment gives each placed instance its environment, now that all
// addresses are known.
func newDeployment(c *Config, sizing vitrine.Sizing, placed *testbed.Placement, all []planned) *deployment {
	d := &deployment{Placement: placed, config: c}
	for i, p := range all {
		d.instances = append(d.instances, &instance{Instance: placed.Instances[i], component: p.component})
	}
	for i, in := range d.instances {
		in.vars = map[string]string{
			"ADDRESS":          in.Endpoint.Addr.String(),
			"VITRINE_INSTANCE": in.Name,
			"VITRINE_INDEX":    strconv.Itoa(all[i].index),
			"VITRINE_DIR":      in.Scratch(),
			"VITRINE_SIZING":   sizing.String(),
			"VITRINE_SPEC":     c.Deployment.Resolve("."),
		}
		d.setVariables(in)
	}
	return d
}

// setVariables adds to the instance's variables the addresses of other components and the
// component's own environment.
func (d *deployment) setVariables(in *instance) {
	c := in.component
	for _, dep := range c.Dependencies {
		if dep.As != "" {
			in.vars[dep.As] = d.addresses(dep.Component, dep.Port)
		}
	}
	if c.Cluster != nil {
		in.vars[c.Cluster.As] = d.addresses(c.Name, c.Cluster.Port)
	}
	given := maps.Clone(in.vars) // values refer to these, not to each other
	for name, value := range c.Environment {
		in.vars[name] = spec.Expand(value, given)
	}
	for name, value := range in.vars {
		in.env = append(in.env, name+"="+value)
	}
	slices.Sort(in.env)
}

// addresses lists addr:port of the component's instances, in their order.
func (d *deployment) addresses(component, port string) string {
	var all []string
	for _, in := range d.instances {
		if in.component.Name == component {
			all = append(all, in.at(port).String())
		}
	}
	return strings.Join(all, ",")
}

// at is the address of one of the component's ports on this instance.
func (in *instance) at(port string) netip.AddrPort { return in.At(uint16(in.component.Ports[port])) }

// targets lists addr:port of the entry component's instances.
func (d *deployment) targets() []string {
	entry, _ := d.config.Deployment.Entry()
	return strings.Split(d.addresses(entry.Name, entry.Entry), ",")
}

// boot installs and starts the components in the order of their dependencies, each
// ready before those that need it, and returns how long that took. It probes
// readiness from the generator's network namespace.
func (d *deployment) boot(ctx context.Context, from *testbed.Instance) (took time.Duration, err error) {
	began := time.Now()
	for _, c := range d.config.Deployment.Order() {
		group, gctx := errgroup.WithContext(ctx)
		for _, in := range d.instances {
			if in.component == c {
				group.Go(func() error { return d.bootInstance(gctx, in, from) })
			}
		}
		if err := group.Wait(); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func (d *deployment) bootInstance(ctx context.Context, in *instance, from *testbed.Instance) error {
	for _, install := range d.config.Deployment.Install {
		if install.Component != in.component.Name {
			continue
		}
		if err := in.install(ctx, install); err != nil {
			return fmt.Errorf("install %s by %s: %w", in.Name, install.Script, err)
		}
	}
	command := vitrine.Command{Args: d.expand(in, in.component.Command), Env: in.env, Dir: in.Scratch()}
	if err := in.Start(ctx, command); err != nil {
		return err
	}
	return d.awaitReady(ctx, in, from)
}

func (in *instance) install(ctx context.Context, i spec.Install) error {
	ctx, cancel := context.WithTimeoutCause(ctx, i.TimeLimit, fmt.Errorf("took longer than its time_limit of %s", i.TimeLimit))
	defer cancel()
	// A container sees only the instance's own folder, so the script goes there.
	script := filepath.Join(in.Scratch(), filepath.Base(i.Script))
	text, err := os.ReadFile(i.Script)
	if err != nil {
		return err
	}
	if err := os.WriteFile(script, text, 0o755); err != nil {
		return err
	}
	err = in.Run(ctx, vitrine.Command{Args: []string{script}, Env: in.env, Dir: in.Scratch()})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// awaitReady probes the instance as its component specifies.
func (d *deployment) awaitReady(ctx context.Context, in *instance, from *testbed.Instance) error {
	r := in.component.Ready
	if r == nil {
		return nil
	}
	if len(r.Command) > 0 {
		return in.Await(ctx, r.Timeout, func(ctx context.Context) error {
			return in.Run(ctx, vitrine.Command{Args: d.expand(in, r.Command), Env: in.env})
		})
	}
	var sip testbed.SIPProber
	defer sip.Close()
	return in.Await(ctx, r.Timeout, func(ctx context.Context) error {
		return from.Inside(func() error {
			switch {
			case r.TCP != "":
				return testbed.ProbeTCP(ctx, in.at(r.TCP))
			case r.SIP != "":
				return sip.Probe(ctx, in.at(r.SIP))
			case r.HTTP != nil:
				return testbed.ProbeHTTP(ctx, in.at(r.HTTP.Port), r.HTTP.Path)
			}
			return nil
		})
	})
}

// clear prepares a fresh deployment on the same places: it ends every process and
// deletes what the processes wrote.
func (d *deployment) clear(ctx context.Context) error {
	if err := d.Stop(ctx, stopGrace); err != nil {
		return err
	}
	var errs []error
	for _, in := range d.instances {
		errs = append(errs, in.ClearScratch())
	}
	return errors.Join(errs...)
}

// expand replaces variables in a command's arguments by the instance's values. The
// program "vitrine" is this executable. No arguments means the image's own command.
func (d *deployment) expand(in *instance, args []string) []string {
	out := spec.Args(args).Expand(in.vars)
	if len(out) > 0 && out[0] == "vitrine" {
		out[0] = d.config.Testbed.Self
	}
	return out
}
